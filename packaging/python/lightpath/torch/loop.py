"""Messages of a rank to itself, which meet in its memory. NCCL has them in groups; torch batches them."""

import collections
import datetime
import threading

from torch import Tensor

from .tensors import check
from .work import Work, keep


class Loop:
    """Pairs sends with receives of the same tag, in order. All methods may be called from any thread."""

    def __init__(self, label: str, timeout: datetime.timedelta) -> None:
        self._label, self._seconds = label, timeout.total_seconds()
        self._lock = threading.Lock()
        self._waiting: dict[int, collections.deque[tuple[bool, Tensor, Work]]] = {}  # by tag

    def post(self, sends: bool, tensor: Tensor, tag: int) -> Work:
        """Returns the work of a send or a receive. It is done when the other one has come."""
        check(tensor)
        work = Work(self, [tensor])
        keep(work)
        with self._lock:
            queue = self._waiting.setdefault(tag, collections.deque())
            if not queue or queue[0][0] == sends:
                queue.append((sends, tensor, work))
                return work
            _, other, work_of_other = queue.popleft()
        source, target = (tensor, other) if sends else (other, tensor)
        error = None
        if source.numel() != target.numel() or source.dtype != target.dtype:
            error = (
                f"lightpath {self._label}: a message to itself of {source.numel()} elements, type {source.dtype}, "
                f"has a receive of {target.numel()}, type {target.dtype}"
            )
        else:
            target.detach().copy_(source.detach().reshape(target.shape))
        for each in (work_of_other, work):
            each.complete(error)
        return work

    def help(self, work: Work) -> None:
        """Returns when a work is complete, which no waiting can hasten."""
        if work.block(self._seconds):
            return
        if self._withdraw(work):
            work.complete(f"lightpath {self._label}: no match for a message to itself in {self._seconds:g} s")
        else:
            work.block()  # its match has come meanwhile

    def _withdraw(self, work: Work) -> bool:
        """Removes a work that waits. Returns whether it did."""
        with self._lock:
            for queue in self._waiting.values():
                for i, (_, _, each) in enumerate(queue):
                    if each is work:
                        del queue[i]
                        return True
        return False
