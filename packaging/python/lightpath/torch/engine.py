"""One communicator and its calls, which run in the order in which they were submitted.

The engine's thread runs them, so that a program goes on meanwhile. A caller that waits runs them itself if the thread
has not begun: handing a call to a thread and back takes longer than a short call."""

import collections
import ctypes
import datetime
import os
import threading
from collections.abc import Callable, Sequence
from typing import Any

from lightpath import library_path
from lightpath.nccl import Nccl, NcclError, UniqueId, ncclComm_t

from . import events
from .call import Call
from .work import Work, keep

_lock = threading.Lock()
_library: Nccl | None = None
_longest: datetime.timedelta | None = None  # the timeout of the first group
_process = object()  # of this process: a forked child gets another one

SUCCESS, IN_PROGRESS = 0, 7  # of ncclResult_t
DESTROYED = "the process group has been destroyed"


def _forked() -> None:
    global _process
    _process = object()


os.register_at_fork(after_in_child=_forked)


def library() -> Nccl:
    """The library, opened once per process. The core behind it loads with the first communicator."""
    global _library
    with _lock:
        if _library is None:
            _library = Nccl(library_path())
        return _library


def limit_of(timeout: datetime.timedelta) -> float | None:
    """Seconds that a call of a group with this timeout may take. None: as long as the library allows, which follows
    the first group."""
    global _longest
    with _lock:
        if _longest is None:
            _longest = timeout
        return timeout.total_seconds() if timeout < _longest else None


def unique_id() -> bytes:
    """The bytes of a new ncclUniqueId."""
    uid = UniqueId()
    library().ncclGetUniqueId(ctypes.byref(uid))
    return bytes(uid)


class Engine:
    """Runs calls on one communicator. All methods may be called from any thread."""

    def __init__(
        self, connect: Callable[[threading.Event], tuple[int, bytes, int]], label: str, limit: float | None = None
    ) -> None:
        """connect returns (size, unique id, rank). It runs on the engine's thread, because it may wait for peers. It
        raises when the event that it gets is set.
        limit: seconds that a call may take, if that is less than the library allows."""
        self._connect: Callable[[threading.Event], tuple[int, bytes, int]] | None = connect
        self._label, self._limit = label, limit
        self.uid = b""  # of the communicator
        self._nccl, self._comm = library(), ncclComm_t()
        self._process = _process
        self._calls: collections.deque[tuple[Call, Work]] = collections.deque()
        self._running = threading.Lock()  # held by the thread that takes calls from the queue and runs them
        # Wakes the engine's thread when it is released. So the thread looks for calls at once when it has connected.
        self._bell = threading.Lock()
        self._failed: str | None = None  # the reason for which there is no communicator
        self._timed: Call | None = None  # the call that the limit applies to now
        self._connected = Work(None, [])
        self._state = threading.Lock()  # of what follows, and of the life of _comm
        self._closed, self._pending = threading.Event(), 0
        self._running.acquire()
        self._thread = threading.Thread(target=self._serve, name=f"lightpath {label}", daemon=True)
        self._thread.start()

    @property
    def owned(self) -> bool:
        """Whether this process has made the engine. A forked child has not."""
        return self._process is _process

    def connected(self) -> None:
        """Returns when the communicator is ready, or raises the reason why it cannot be made."""
        self._connected.wait()

    def check(self) -> None:
        """Raises if the communicator has failed: if a rank has died, its peers know without a call."""
        with self._state:
            state, failed = ctypes.c_int(), self._failed
            if self._comm and not failed:
                self._nccl.ncclCommGetAsyncError(self._comm, ctypes.byref(state))
                if state.value not in (SUCCESS, IN_PROGRESS):
                    failed = self._nccl.lib.ncclGetLastError(self._comm).decode()
        if failed:
            raise NcclError(failed)

    def submit(self, call: Call, outputs: Sequence[Any], waits: bool = False) -> Work:
        """Returns the call's work. waits: the caller waits for the work at once."""
        work = Work(self, outputs)
        if not self.owned:
            # A forked child has the queue but no thread that serves it. The library refuses the call and says why.
            try:
                call.run(self._nccl, self._comm)
            except NcclError as e:
                work.complete(self._named(e))
            return work
        with self._state:
            if self._closed.is_set():
                work.complete(self._named(DESTROYED))
                return work
            if events.profiling():
                work.event = events.begin(call)
                waits = False  # an event must end on another thread
            self._pending += 1
            self._calls.append((call, work))
        if not waits:
            keep(work)
            self._ring()
        return work

    def help(self, work: Work) -> None:
        """Returns when a work is complete. Runs it, and the calls before it, if no other thread runs calls."""
        if work.event is None:
            self._run(work)
        if not work.done:
            work.block()

    def _ring(self) -> None:
        try:
            self._bell.release()
        except RuntimeError:
            pass  # it has rung, and the thread has not come yet

    def close(self) -> None:
        """Ends the communicator. Calls in progress fail."""
        if not self.owned:
            return
        with self._state:
            if self._closed.is_set():
                return
            self._closed.set()
            if self._pending:
                self._end_all(DESTROYED)  # releases the thread that waits for peers
        self._ring()
        if threading.current_thread() is not self._thread:  # the garbage collector may run close() on that thread
            self._thread.join(CLOSE_SECONDS)

    def _serve(self) -> None:
        error = self._open()
        with self._state:
            self._failed = self._failed or error
        self._running.release()
        while not (self._closed.is_set() and not self._calls):
            self._bell.acquire()
            self._run()
        with self._running, self._state:
            if self._comm:
                self._nccl.lib.ncclCommDestroy(self._comm)
                self._comm = ncclComm_t()

    def _open(self) -> str | None:
        error = None
        connect, self._connect = self._connect, None  # it refers to the group, which would never be collected
        assert connect
        try:
            # The library refuses a forked child. Its connection to the store is the parent's, which it must not use.
            self._nccl.ncclGroupStart()
            self._nccl.ncclGroupEnd()
            size, self.uid, rank = connect(self._closed)
            self._nccl.ncclCommInitRank(ctypes.byref(self._comm), size, UniqueId.from_buffer_copy(self.uid), rank)
        except Exception as e:
            error = self._named(e)
        self._connected.complete(error)
        return error

    def _run(self, until: Work | None = None) -> None:
        """Runs calls of the queue, the last one that of a work, unless another thread does so already."""
        if not self._running.acquire(blocking=False):
            return  # that thread rings the bell if it leaves calls
        try:
            while self._calls and not (until is not None and until.done):
                self._run_next()
        finally:
            self._running.release()
            if self._calls:
                self._ring()

    def _run_next(self) -> None:
        """Runs the first call of the queue. The caller holds _running."""
        call, work = self._calls.popleft()
        try:
            error = self._failed or self._execute(call)
        except BaseException:  # of a signal's handler
            error = self._named("interrupted")
            raise
        finally:
            with self._state:
                self._pending -= 1
            work.complete(error)

    def _execute(self, first: Call) -> str | None:
        """Runs a call and those that follow from it. Returns what has failed."""
        call: Call | None = first
        try:
            while call is not None:
                if self._limit is None:
                    call.run(self._nccl, self._comm)
                else:
                    self._execute_in_time(call, self._limit)
                for memory in call.memory:
                    if not memory.direct:
                        memory.deliver()
                call = call.following and call.following()
        except Exception as e:
            return self._failed or self._named(e)
        return None

    def _execute_in_time(self, call: Call, seconds: float) -> None:
        limit = threading.Timer(seconds, self._expire, (call,))
        limit.daemon = True
        self._timed = call
        limit.start()
        try:
            call.run(self._nccl, self._comm)
        finally:
            limit.cancel()
            with self._state:
                self._timed = None

    def _expire(self, call: Call) -> None:
        """Ends the communicator if the call is not done. So the call fails here, and the peers' calls fail as well."""
        with self._state:
            if self._timed is call and self._comm:
                self._end_all(f"timeout : a call was not done within the group's {self._limit:g} s")

    def _end_all(self, reason: str) -> None:
        """Ends the communicator, and all its calls. The caller holds _state."""
        self._failed = self._failed or self._named(reason)
        if self._comm:
            self._nccl.lib.ncclCommAbort(self._comm)
            self._comm = ncclComm_t()

    def _named(self, error: object) -> str:
        return f"lightpath {self._label}: {error}"


# How long a closing engine waits for its thread. Only a call that the library cannot release takes that long.
CLOSE_SECONDS = 30
