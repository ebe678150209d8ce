"""Handles of calls under way, as torch.distributed expects them."""

import collections
import datetime
import os
import queue
import threading
from collections.abc import Sequence
from typing import Any, Protocol

import torch.distributed as dist
from torch.futures import Future

from lightpath.nccl import NcclError

from . import events

NO_TIMEOUT = datetime.timedelta(0)
# 1.13 exports the class under another name.
_Work: Any = getattr(dist, "Work", None) or getattr(dist, "_Work", None) or dist.distributed_c10d.Work


class Helper(Protocol):
    """Runs a call, or waits until another thread has."""

    def help(self, work: "Work") -> None: ...


class Work(_Work):
    """One call of an engine. Thread-safe. The engine calls complete, once.

    torch's own works made of futures are not usable: their wait returns True after a failure of the future."""

    # Most works keep these values until they are done.
    done = False
    event: Any = None  # of the profiler
    _kept = False
    # The text alone: an exception would refer to the frames that have raised it, and so to their tensors.
    _error: str | None = None
    _ended: threading.Event | None = None
    _begun: Future | None = None
    _future: Future | None = None

    def __init__(self, engine: Helper | None, outputs: Sequence[Any]) -> None:
        _Work.__init__(self)
        self._engine, self._outputs = engine, outputs
        self._lock = threading.Lock()  # of done, _ended and the futures

    def complete(self, error: str | None = None) -> None:
        """Ends the waits, which raise the error."""
        self._error = error
        if self.event is not None:
            events.end(self.event)
        with self._lock:
            self.done = True
            ended, begun, self._begun = self._ended, self._begun, None
        if ended is not None:
            ended.set()
        if begun is not None:
            _callbacks.complete(begun)

    def block(self, seconds: float | None = None) -> bool:
        """Waits until the call is complete, and reports whether it is."""
        with self._lock:
            if self.done:
                return True
            if self._ended is None:
                self._ended = threading.Event()
        return self._ended.wait(seconds)

    def wait(self, timeout: datetime.timedelta = NO_TIMEOUT) -> bool:
        seconds = timeout.total_seconds() if timeout else None
        if not self.done:
            if seconds is None and self._engine is not None:
                self._engine.help(self)
            elif not self.block(seconds):
                raise NcclError(f"lightpath: not done within {seconds} s")
        if self._kept:
            _kept.waited(self)
        if self._error is not None:
            raise NcclError(self._error)
        return True

    def is_small(self, limit: int) -> bool:
        """Whether the call has one output, of at most so many elements."""
        outputs = self._outputs
        return len(outputs) == 1 and not isinstance(outputs[0], list) and outputs[0].numel() <= limit

    def synchronize(self) -> None:
        self.wait()

    def get_future(self) -> Future:
        """A future whose callbacks run on threads of their own: a callback may wait for a later call, which the
        engine's thread has to run."""
        with self._lock:
            if self._future is None:
                self._begun = Future()
                # Errors of a future reach C++ (DDP's reducer) only from a callback that raises: set_exception hands
                # C++ a value that it takes for a result.
                self._future = self._begun.then(self._deliver)
            begun = None
            if self.done:
                begun, self._begun = self._begun, None
        if begun is not None:
            begun.set_result(None)
        return self._future

    def _deliver(self, _: Future) -> Sequence[Any]:
        if self._error is not None:
            raise NcclError(self._error)
        return self._outputs

    def is_completed(self) -> bool:
        return self.done

    def is_success(self) -> bool:
        return self.done and self._error is None

    def exception(self) -> Exception | None:
        return NcclError(self._error) if self._error is not None else None

    def result(self) -> Sequence[Any]:
        self.wait()
        return self._outputs


class _Callbacks:
    """Threads that complete futures, and so run their callbacks. Each callback has a thread at once, however many
    others wait; so callbacks of different calls may run at the same time."""

    def __init__(self) -> None:
        self._lock, self._idle = threading.Lock(), 0
        self._futures: queue.SimpleQueue[Future] = queue.SimpleQueue()

    def complete(self, future: Future) -> None:
        with self._lock:
            if self._idle == 0:
                threading.Thread(target=self._serve, name="lightpath callbacks", daemon=True).start()
            else:
                self._idle -= 1
        self._futures.put(future)

    def _serve(self) -> None:
        while True:
            self._futures.get().set_result(None)
            with self._lock:
                self._idle += 1


_callbacks = _Callbacks()
os.register_at_fork(after_in_child=lambda: _Callbacks.__init__(_callbacks))  # a child has none of the threads


class _Kept:
    """Works that only C++ may hold. If its Python half is gone, a work of 1.13 waits for ever, and one of 2.15 has no
    future for DDP's join. So each stays here until a caller has waited for it, or until it is done and one of the
    oldest."""

    LIMIT = 1024
    # DDP's join asks in C++ for the result of a work for which it has waited already: the latest few with results of
    # at most so many elements stay as well.
    WAITED, SMALL = 64, 64

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._works: collections.OrderedDict[int, Work] = collections.OrderedDict()
        self._waited: collections.deque[Work] = collections.deque(maxlen=self.WAITED)

    def add(self, work: Work) -> None:
        work._kept = True
        with self._lock:
            self._works[id(work)] = work
            while len(self._works) > self.LIMIT:
                key, oldest = self._works.popitem(last=False)
                if not oldest.done:
                    self._works[key] = oldest  # a receive may wait for long, and others are done
                    break

    def waited(self, work: Work) -> None:
        with self._lock:
            if self._works.pop(id(work), None) is not None and work.is_small(self.SMALL):
                self._waited.append(work)


_kept = _Kept()
keep = _kept.add
