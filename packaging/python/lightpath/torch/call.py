"""What a call of a process group does, as functions of the library."""

from collections.abc import Callable, Sequence
from typing import Any

from lightpath.nccl import Nccl, ncclComm_t

# A function of the library and its arguments, without communicator and stream.
Function = tuple[Any, ...]


class Call:
    """Functions that run as one group. Then memory that is not direct delivers its results.

    title names the call in a profile.
    following returns a call that runs right after this one, and may depend on its results."""

    __slots__ = ("title", "functions", "memory", "following")

    def __init__(
        self,
        title: str,
        functions: Sequence[Function],
        memory: Sequence[Any],
        following: "Callable[[], Call] | None" = None,
    ) -> None:
        self.title, self.functions, self.memory, self.following = title, functions, memory, following

    def run(self, nccl: Nccl, comm: ncclComm_t) -> None:
        """Runs the functions, and returns when their results are in the memory that they name."""
        if len(self.functions) == 1:
            function, *args = self.functions[0]
            function(*args, comm, None)
            return
        nccl.ncclGroupStart()
        try:
            for function, *args in self.functions:
                function(*args, comm, None)
        finally:
            nccl.ncclGroupEnd()
