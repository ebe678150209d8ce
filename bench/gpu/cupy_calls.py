#!/usr/bin/env python3
"""One rank over CuPy's NCCL binding: cupy_calls.py FILE. Rank 0 passes the unique id to the others in FILE."""

import os
import sys
import time

import cupy
from cupy.cuda import nccl

# CuPy's numbers of NCCL's types.
TYPES = {
    "float32": nccl.NCCL_FLOAT32,
    "float64": nccl.NCCL_FLOAT64,
    "float16": nccl.NCCL_FLOAT16,
    "int32": nccl.NCCL_INT32,
    "uint8": nccl.NCCL_UINT8,
}
SECONDS = 60


def meet(path, rank):
    """The unique id, which is bytes in CuPy."""
    if rank == 0:
        with open(f"{path}.new", "w") as f:
            f.write(nccl.get_unique_id().hex())
        os.replace(f"{path}.new", path)
    for _ in range(SECONDS * 100):
        if os.path.exists(path):
            with open(path) as f:
                return bytes.fromhex(f.read())
        time.sleep(0.01)
    raise SystemExit(f"rank 0 left no unique id in {path} within {SECONDS} s")


def same(got, want, what):
    if not bool((got == want).all()):
        raise SystemExit(f"{what}: got {got[:4]}..., want {want[:4]}...")
    return 1


def main():
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    cupy.cuda.Device(0).use()
    comm = nccl.NcclCommunicator(world, meet(sys.argv[1], rank), rank)
    stream = cupy.cuda.Stream(non_blocking=True)
    checks = same(cupy.array([comm.rank_id(), comm.size()]), cupy.array([rank, world]), "rank_id and size")
    for name, number in TYPES.items():
        for count in (1, 1000, 40001):
            with stream:
                mine = (cupy.arange(count) % 5 + rank).astype(name)
                got, everyone, next_door = cupy.zeros_like(mine), cupy.zeros(count * world, name), cupy.zeros_like(mine)
                comm.allReduce(mine.data.ptr, got.data.ptr, count, number, nccl.NCCL_SUM, stream.ptr)
                comm.allGather(mine.data.ptr, everyone.data.ptr, count, number, stream.ptr)
                nccl.groupStart()
                comm.send(mine.data.ptr, count, number, (rank + 1) % world, stream.ptr)
                comm.recv(next_door.data.ptr, count, number, (rank - 1) % world, stream.ptr)
                nccl.groupEnd()
                of = [(cupy.arange(count) % 5 + r).astype(name) for r in range(world)]
                checks += same(got, sum(of[1:], of[0]), f"allReduce of {count} {name}")
                checks += same(everyone, cupy.concatenate(of), f"allGather of {count} {name}")
                checks += same(next_door, of[(rank - 1) % world], f"send and receive of {count} {name}")
    stream.synchronize()
    comm.destroy()
    print(f"{checks} checks", flush=True)


if __name__ == "__main__":
    main()
