"""Lightpath: the collectives of NCCL for clusters whose hosts are joined by optical circuit switches.

    import lightpath.torch                  # registers the torch.distributed backend "lightpath"
    lightpath run -n 4 -- python3 train.py  # the command, also as python3 -m lightpath
    python3 -m lightpath.doctor             # checks the installation

The package contains libnccl.so.2. Programs that load NCCL themselves use it by LD_PRELOAD of library_path()."""

import os
from pathlib import Path

__all__ = ["command_path", "library_path"]

_HERE = Path(__file__).resolve().parent


def _installed(folder: str, name: str) -> str | None:
    """The path of a file of the package, else of the source tree that contains it, else None."""
    for root in (_HERE, *_HERE.parents):
        if (root / folder / name).is_file():
            return str(root / folder / name)
    return None


def library_path() -> str:
    """The libnccl.so.2 to open: VLLM_NCCL_SO_PATH, else the one of this package or source tree, else the system's."""
    return os.environ.get("VLLM_NCCL_SO_PATH") or _installed("lib", "libnccl.so.2") or "libnccl.so.2"


def command_path() -> str:
    """The lightpath command: of this package or source tree, else the one in PATH."""
    return _installed("bin", "lightpath") or "lightpath"
