"""Checks the installation, from Python: python3 -m lightpath.doctor. Exits with 1 if something is missing.

The checks of `lightpath doctor` come first. Then two ranks add numbers by the library, and by torch if it is there."""

import ctypes
import importlib.util
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable

from lightpath import command_path, library_path

# Longest time of the ranks; more is a hang.
RANK_SECONDS = 120

ALL_REDUCE = """
import lightpath.torch, os, sys, torch, torch.distributed as dist
dist.init_process_group("lightpath", init_method="file://" + sys.argv[1], rank=int(os.environ["RANK"]), world_size=2)
sum = torch.full((1000,), float(dist.get_rank() + 1))
dist.all_reduce(sum)
assert sum.eq(3).all(), sum
dist.destroy_process_group()
"""


def version() -> str:
    """The library and its version."""
    from lightpath.nccl import Nccl

    number = ctypes.c_int()
    Nccl(library_path()).ncclGetVersion(ctypes.byref(number))
    return f"{library_path()}, NCCL's interface {number.value}"


def torch() -> str:
    """An all_reduce of two ranks by torch's backend."""
    if importlib.util.find_spec("torch") is None:
        return "PyTorch is not installed (optional)"
    with tempfile.TemporaryDirectory(prefix="lightpath-doctor-") as folder:
        ranks = [command_path(), "run", "-n", "2", "--preload=false", "--"]
        program = [sys.executable, "-c", ALL_REDUCE, os.path.join(folder, "store")]
        done = subprocess.run(ranks + program, capture_output=True, text=True, timeout=RANK_SECONDS)
    if done.returncode:
        raise RuntimeError((done.stderr or done.stdout).strip())
    return "two ranks have made an all_reduce"


def check(name: str, test: Callable[[], str]) -> bool:
    """Prints the line of one check."""
    try:
        mark, detail = "ok  ", test()
    except Exception as error:
        mark, detail = "FAIL", str(error)
    print(f"{mark} {name:<20} {detail}", flush=True)
    return mark != "FAIL"


def main() -> int:
    """Runs all checks. Returns the exit status."""
    try:
        sound = subprocess.run([command_path(), "doctor"]).returncode == 0
    except OSError as error:
        print(f"FAIL command              {error}: install the package, or build the source tree with make")
        sound = False
    return 0 if all([sound, check("python: library", version), check("python: torch", torch)]) else 1


if __name__ == "__main__":
    sys.exit(main())
