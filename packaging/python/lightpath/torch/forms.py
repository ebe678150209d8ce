"""The short forms of a process group's methods: tensors instead of lists, and fields of the options as arguments.

torch's C++ classes take both forms. DDP's join uses a short one."""

import functools
import sys
import types
from collections.abc import Callable
from typing import Any

import torch
from torch._C import _distributed_c10d as c10d
from torch.distributed import distributed_c10d

Method = Callable[..., Any]

FIELDS = {"op": "reduceOp", "root": "rootRank", "timeout": "timeout"}  # of options, by the names of arguments


def short_form(options: Any, tensors: int, *fields: str) -> Callable[[Method], Method]:
    """For a method of this many arguments with lists of tensors, then options: lets it take its short form as well."""

    def decorate(method: Method) -> Method:
        @functools.wraps(method)
        def call(self: Any, *args: Any, **named: Any) -> Any:
            if len(args) > tensors and type(args[tensors]) is options or "opts" in named:
                return method(self, *args, **named)
            lists, opts = list(args[:tensors]), options()
            if any(isinstance(each, torch.Tensor) for each in lists):
                lists = [[each] for each in lists]
            for field, value in (*zip(fields, args[tensors:]), *named.items()):
                if value is not None:
                    setattr(opts, FIELDS[field], value)
            return method(self, *lists, opts)

        return call

    return decorate


# The options of torch 2.15 say it, those of 1.13 do not; the function of torch that calls the group knows it always.
if hasattr(c10d.AllreduceOptions, "asyncOp"):

    def waits(opts: Any) -> bool:
        """Whether the caller of a collective waits for its work at once."""
        return opts is not None and not opts.asyncOp

else:
    _TORCH = vars(distributed_c10d)

    def waits(opts: Any) -> bool:
        """Whether the caller of a collective waits for its work at once."""
        frame: types.FrameType | None = sys._getframe(1)
        while frame and frame.f_globals.get("__package__") == __package__:
            frame = frame.f_back
        return frame is not None and frame.f_globals is _TORCH and frame.f_locals.get("async_op") is False
