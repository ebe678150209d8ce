"""Python's multiprocessing with the library: ranks that are forked before it is used, spawned, or from a fork server
can make communicators. Calls in children forked afterwards, as a DataLoader's workers are, fail, and the parent's
collectives continue."""

import ctypes
import multiprocessing
import sys
import threading

RANKS, COUNT = 3, 20000
FLOAT, SUM, INVALID_USAGE = 7, 0, 5


class UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_byte * 128)]


def library(path):
    nccl = ctypes.CDLL(path)
    nccl.ncclGetLastError.restype = ctypes.c_char_p
    nccl.ncclGetLastError.argtypes = [ctypes.c_void_p]
    nccl.ncclCommInitRank.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_int, UniqueId, ctypes.c_int]
    pointer, size, enum = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    nccl.ncclAllReduce.argtypes = [pointer, pointer, size, enum, enum, pointer, pointer]
    nccl.ncclCommDestroy.argtypes = [ctypes.c_void_p]
    return nccl


def check(nccl, code, want=0):
    if code != want:
        raise AssertionError(f"result {code}, want {want}: {nccl.ncclGetLastError(None)}")


def new_id(nccl):
    unique_id = UniqueId()
    check(nccl, nccl.ncclGetUniqueId(ctypes.byref(unique_id)))
    return unique_id


def join(nccl, ranks, unique_id, rank):
    comm = ctypes.c_void_p()
    check(nccl, nccl.ncclCommInitRank(ctypes.byref(comm), ranks, unique_id, rank))
    return comm


def reduce(nccl, comm, ranks, rank):
    buffer = (ctypes.c_float * COUNT)(*([float(rank)] * COUNT))
    check(nccl, nccl.ncclAllReduce(buffer, buffer, COUNT, FLOAT, SUM, comm, None))
    assert buffer[0] == buffer[COUNT - 1] == ranks * (ranks - 1) / 2, (buffer[0], buffer[COUNT - 1])


def rank_process(path, rank, inbox, outboxes):
    """Rank 0 makes the id and sends it to the others: a process that has made an id has used the library."""
    nccl = library(path)
    if rank == 0:
        unique_id = new_id(nccl)
        for box in outboxes:
            box.put(bytes(unique_id))
    else:
        unique_id = UniqueId.from_buffer_copy(inbox.get())
    comm = join(nccl, RANKS, unique_id, rank)
    for _ in range(10):
        reduce(nccl, comm, RANKS, rank)
    check(nccl, nccl.ncclCommDestroy(comm))


def ranks_by(method, path):
    context = multiprocessing.get_context(method)
    boxes = [context.SimpleQueue() for _ in range(RANKS)]
    arguments = [(path, r, boxes[r], boxes[1:] if r == 0 else None) for r in range(RANKS)]
    children = [context.Process(target=rank_process, args=a) for a in arguments]
    for child in children:
        child.start()
    ended(children, method)


def ended(children, what):
    for child in children:
        child.join(100)
        if child.exitcode != 0:
            for c in children:
                c.kill()
            raise AssertionError(f"{what}: a child ended with {child.exitcode}")


def refused(path):
    nccl = library(path)
    check(nccl, nccl.ncclGetUniqueId(ctypes.byref(UniqueId())), INVALID_USAGE)
    assert b"forked" in nccl.ncclGetLastError(None)


def workers_during_collectives(path):
    nccl = library(path)
    unique_id, stop, failures = new_id(nccl), threading.Event(), []
    ready = threading.Barrier(3)

    def rank(r):
        try:
            comm = join(nccl, 2, unique_id, r)
            ready.wait(100)
            while True:
                buffer = (ctypes.c_float * COUNT)(float(r == 0 and stop.is_set()), 1.0)
                check(nccl, nccl.ncclAllReduce(buffer, buffer, COUNT, FLOAT, SUM, comm, None))
                assert buffer[1] == 2
                if buffer[0] > 0:
                    break
            check(nccl, nccl.ncclCommDestroy(comm))
        except BaseException as e:  # no one else sees a thread's exception
            failures.append(e)
            raise

    threads = [threading.Thread(target=rank, args=(r,)) for r in range(2)]
    for t in threads:
        t.start()
    ready.wait(100)
    context = multiprocessing.get_context("fork")
    for _ in range(5):
        children = [context.Process(target=refused, args=(path,)) for _ in range(4)]
        for child in children:
            child.start()
        ended(children, "fork during collectives")
    ranks_by("spawn", path)  # these load the library anew
    stop.set()
    for t in threads:
        t.join(100)
    assert not failures and not any(t.is_alive() for t in threads), failures


if __name__ == "__main__":
    library_path = sys.argv[1]
    for start_method in ("fork", "spawn", "forkserver"):  # this process has not used the library yet
        ranks_by(start_method, library_path)
    workers_during_collectives(library_path)
    refused_after = multiprocessing.get_context("fork").Process(target=refused, args=(library_path,))
    refused_after.start()
    ended([refused_after], "fork after use")
