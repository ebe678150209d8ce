"""A torch.distributed backend for CPU tensors over libnccl.so.2, in Python and ctypes alone.

    import lightpath.torch                      # registers the backend "lightpath"
    torch.distributed.init_process_group("lightpath")

Runs with torch 1.13 (Debian's python3-torch) and with current releases; docs/torch.md says what differs.
The library is the one that lightpath.library_path names. Nothing of it is loaded before the first process
group is made, so processes may fork until then."""

import inspect

import torch.distributed as dist

from lightpath.nccl import NcclError

from .group import LightpathProcessGroup

__all__ = ["BACKEND", "LightpathProcessGroup", "NcclError"]

BACKEND = "lightpath"


def _register() -> None:
    register = dist.Backend.register_backend
    if "devices" in inspect.signature(register).parameters:
        register(BACKEND, LightpathProcessGroup.create, devices=["cpu"])
    else:  # 1.13 knows no devices
        register(BACKEND, LightpathProcessGroup.create)


_register()
