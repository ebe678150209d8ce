"""Ranks for tests: processes forked from this one, which has torch and nothing of the library loaded."""

import multiprocessing
import multiprocessing.connection
import os
import sys
import tempfile
import time
import traceback
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

try:
    import torch
    import torch.distributed as dist
except ImportError:
    raise unittest.SkipTest("PyTorch is not installed (Debian: python3-torch)")

from lightpath import library_path

# Bounds a hang; nothing depends on how long anything takes.
BOUND_SECONDS = 240

_fork = multiprocessing.get_context("fork")


class Died(Exception):
    """A rank that ended without a result."""


def run(size, body, *args, env=None, backend="lightpath"):
    """Calls body(*args) on every rank of a default group and returns what each returned, in order. An
    exception on a rank stands in its place; the first, unless it is asked for, is raised by all_good."""
    with tempfile.TemporaryDirectory(prefix="lightpath-torch-") as directory:
        ranks = []
        for rank in range(size):
            ours, theirs = _fork.Pipe(duplex=False)
            process = _fork.Process(target=_rank, args=(rank, size, directory, backend, env or {}, theirs, body, args))
            process.start()
            theirs.close()
            ranks.append((process, ours))
        try:
            return _collect(ranks)
        finally:
            for process, pipe in ranks:
                process.kill()
                process.join()
                pipe.close()


def all_good(results):
    for rank, result in enumerate(results):
        if isinstance(result, BaseException):
            raise AssertionError(f"rank {rank}: {result}") from result
    return results


def _collect(ranks):
    results = [None] * len(ranks)
    waiting = {pipe: rank for rank, (_, pipe) in enumerate(ranks)}
    deadline = time.monotonic() + BOUND_SECONDS
    while waiting:
        ready = multiprocessing.connection.wait(list(waiting), max(0, deadline - time.monotonic()))
        if not ready:
            raise AssertionError(f"ranks {sorted(waiting.values())} are not done within {BOUND_SECONDS} s")
        for pipe in ready:
            rank = waiting.pop(pipe)
            try:
                results[rank] = pipe.recv()
            except EOFError:
                ranks[rank][0].join()
                results[rank] = Died(f"rank {rank} ended with {ranks[rank][0].exitcode} and no result")
    return results


def _rank(rank, size, directory, backend, env, pipe, body, args):
    os.environ.update(env, RANK=str(rank), WORLD_SIZE=str(size), LOCAL_RANK=str(rank))
    torch.set_num_threads(1)
    try:
        import lightpath.torch  # noqa: F401, registers the backend

        dist.init_process_group(backend, init_method=f"file://{directory}/store", rank=rank, world_size=size)
        result = body(*args)
        dist.destroy_process_group()
    except BaseException as error:
        # The text: an exception of torch's may not travel.
        result = RuntimeError(f"{error}\n{traceback.format_exc()}")
    pipe.send(result)
    pipe.close()


def require_library():
    if not os.path.exists(library_path()):
        raise unittest.SkipTest("lib/libnccl.so.2 is not there: run make")
