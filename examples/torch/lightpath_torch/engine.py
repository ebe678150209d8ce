"""One communicator and the thread that runs its calls, in the order in which they were submitted."""

import ctypes
import os
import queue
import threading

from .nccl_binding import Nccl, NcclError, UniqueId, default_path, ncclComm_t
from .work import Work, keep

_lock = threading.Lock()
_library = None


def library():
    """The library, opened once per process. The core behind it loads with the first communicator."""
    global _library
    with _lock:
        if _library is None:
            _library = Nccl(default_path(os.path.dirname(__file__)))
        return _library


def unique_id():
    """The bytes of a new ncclUniqueId."""
    uid = UniqueId()
    library().ncclGetUniqueId(ctypes.byref(uid))
    return bytes(uid)


class Call:
    """What one call does: functions of the library with their arguments (communicator and stream are
    appended), run as one group, then what puts results where they belong. Holds the memory in use."""

    __slots__ = ("functions", "finish", "memory")

    def __init__(self, functions, finish=(), memory=()):
        self.functions, self.finish, self.memory = functions, finish, memory


class Engine:
    """Runs calls on one communicator. submit and close may be called from any thread."""

    def __init__(self, connect, label):
        """connect returns (size, unique id, rank). It runs on the engine's thread, because it may wait for peers."""
        self._connect, self._label = connect, label
        self._nccl, self._comm = library(), ncclComm_t()
        self._pid = os.getpid()
        self._calls = queue.SimpleQueue()
        self._connected = Work([])
        self._state = threading.Lock()  # of what follows, and of the life of _comm
        self._closed, self._pending = False, 0
        self._thread = threading.Thread(target=self._serve, name=f"lightpath {label}", daemon=True)
        self._thread.start()

    def connected(self):
        """Returns when the communicator is ready, or raises the reason why it cannot be made."""
        self._connected.wait()

    def submit(self, call, outputs):
        work = Work(outputs)
        keep(work)
        if os.getpid() != self._pid:
            # A forked child has the queue but no thread that serves it. The library refuses the call and says what to do.
            try:
                self._execute(call)
            except NcclError as e:
                work.complete(self._named(e))
            return work
        with self._state:
            if not self._closed:
                self._pending += 1
                self._calls.put((call, work))
                return work
        work.complete(NcclError(f"lightpath {self._label}: the process group has been destroyed"))
        return work

    def close(self):
        """Ends the communicator. Calls in progress fail."""
        if os.getpid() != self._pid:
            return
        with self._state:
            if self._closed:
                return
            self._closed = True
            if self._pending and self._comm:
                self._nccl.lib.ncclCommAbort(self._comm)  # releases the thread if it waits for peers
                self._comm = ncclComm_t()
            self._calls.put(None)
        if threading.current_thread() is not self._thread:  # the garbage collector may run close() on that thread
            self._thread.join(CLOSE_SECONDS)

    def _serve(self):
        error = self._open()
        while True:
            item = self._calls.get()
            if item is None:
                break
            call, work = item
            if error is None:
                self._run(call, work)
            else:
                self._finish(work, error)
            del item, call, work  # releases the call's memory before the next call
        with self._state:
            if self._comm:
                self._nccl.lib.ncclCommDestroy(self._comm)
                self._comm = ncclComm_t()

    def _open(self):
        error = None
        try:
            size, uid, rank = self._connect()
            self._nccl.ncclCommInitRank(ctypes.byref(self._comm), size, UniqueId.from_buffer_copy(uid), rank)
        except Exception as e:
            error = self._named(e)
        self._connect = None  # it refers to the group, which would never be collected
        self._connected.complete(error)
        return error

    def _run(self, call, work):
        error = None
        try:
            self._execute(call)
            for finish in call.finish:
                finish()
        except Exception as e:
            error = self._named(e)
        self._finish(work, error)

    def _finish(self, work, error):
        with self._state:
            self._pending -= 1
        work.complete(error)

    def _execute(self, call):
        if len(call.functions) == 1:
            function, *args = call.functions[0]
            function(*args, self._comm, None)
            return
        self._nccl.ncclGroupStart()
        try:
            for function, *args in call.functions:
                function(*args, self._comm, None)
        finally:
            self._nccl.ncclGroupEnd()

    def _named(self, error):
        return NcclError(f"lightpath {self._label}: {error}")


# How long a closing engine waits for its thread. Only a call that the library cannot release takes that long.
CLOSE_SECONDS = 30
