"""The short forms of a process group's methods: tensors instead of lists, and fields of the options as arguments.

torch's C++ classes take both forms. DDP's join uses a short one."""

import functools
from collections.abc import Callable
from typing import Any

import torch

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
