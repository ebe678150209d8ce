"""A torch.distributed backend for CPU tensors over libnccl.so.2, in Python and ctypes alone.

    import lightpath.torch                      # registers the backend "lightpath"
    torch.distributed.init_process_group("lightpath")

Runs with torch 1.13 (Debian's python3-torch) and with current releases; docs/torch.md says what differs.
The library is the one that lightpath.library_path names. Nothing of it is loaded before the first process
group is made, so processes may fork until then."""

import inspect
import types

import torch.distributed as dist
from torch.distributed import distributed_c10d

from lightpath.nccl import NcclError

from .group import LightpathProcessGroup
from .work import Work

__all__ = ["BACKEND", "LightpathProcessGroup", "NcclError"]

BACKEND = "lightpath"


def _register() -> None:
    register = dist.Backend.register_backend
    if "devices" in inspect.signature(register).parameters:
        register(BACKEND, LightpathProcessGroup.create, devices=["cpu"])
    else:  # 1.13 knows no devices
        register(BACKEND, LightpathProcessGroup.create)
    # The flight recorder of torch 2.15 needs a C++ half, and breaks a group without one. It leaves these alone.
    alone: set[str] = getattr(distributed_c10d, "_FR_SELF_RECORDING_BACKENDS", set())
    alone.add(BACKEND)


def _leave_uncompiled(each: type) -> None:
    """Keeps torch.compile from a class's methods and all that they call. It cannot compile a group in Python."""
    try:
        from torch._C._dynamo import eval_frame as e

        skip = e._FrameExecStrategy(e._FrameAction.SKIP, e._FrameAction.SKIP)
    except (ImportError, AttributeError):  # of older versions
        return
    for member in vars(each).values():
        if isinstance(member, types.FunctionType):
            e.set_code_exec_strategy(member.__code__, skip)


_register()
_leave_uncompiled(LightpathProcessGroup)
_leave_uncompiled(Work)
