"""Calls as events of torch's profiler: lightpath:all_reduce and so on, with the shapes of inputs, from call to end."""

from typing import Any

from torch._C import _autograd

from .call import Call
from .tensors import Source

# By the first function of a call that does not say what it is.
TITLES = {
    "ncclAllReduce": "all_reduce", "ncclReduce": "reduce", "ncclReduceScatter": "reduce_scatter",
    "ncclBroadcast": "broadcast", "ncclAllGather": "all_gather", "ncclGather": "gather", "ncclScatter": "scatter",
    "ncclAlltoAll": "all_to_all", "ncclSend": "send", "ncclRecv": "recv",
}  # fmt: skip

profiling = _autograd._profiler_enabled
end = _autograd._record_function_with_args_exit


def begin(call: Call) -> Any:
    """Returns the event of a call, which end takes. On another thread than this, it counts as asynchronous."""
    title = call.title or TITLES[call.functions[0][0].__name__]
    sources = [m.memory for m in call.memory if isinstance(m, Source)]
    return _autograd._record_function_with_args_enter(
        f"lightpath:{title}", *(sources or [tensor for m in call.memory for tensor in m.tensors])
    )
