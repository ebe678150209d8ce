"""Calls as events of torch's profiler: lightpath:all_reduce and so on, with the shapes of inputs, from call to end."""

from typing import Any

from torch._C import _autograd

from .call import Call
from .tensors import Source

profiling = _autograd._profiler_enabled
end = _autograd._record_function_with_args_exit


def begin(call: Call) -> Any:
    """Returns the event of a call, which end takes. On another thread than this, it counts as asynchronous."""
    sources = [m.memory for m in call.memory if isinstance(m, Source)]
    return _autograd._record_function_with_args_enter(
        f"lightpath:{call.title}", *(sources or [tensor for m in call.memory for tensor in m.tensors])
    )
