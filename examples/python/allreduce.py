#!/usr/bin/env python3
"""A small program that uses NCCL: one AllReduce over all ranks, with host memory and the standard library only.

    lightpath run -n 4 -- python3 examples/python/allreduce.py

torchrun, mpirun with RANK and WORLD_SIZE set, srun with `lightpath run --`, or a shell may start the ranks as well.
Without these variables the program is the only rank."""

import ctypes
import os
import socket
import struct
import time

from lightpath import library_path
from lightpath.nccl import Nccl, UniqueId, ncclComm_t

COUNT = 1024
FLOAT32, SUM = 7, 0


def exchange_id(nccl, rank, world, address):
    """Rank 0 makes the unique id and sends it to every other rank over TCP."""
    unique_id = UniqueId()
    if rank == 0:
        nccl.ncclGetUniqueId(ctypes.byref(unique_id))
        with socket.create_server(address) as server:
            for _ in range(world - 1):
                peer, _ = server.accept()
                with peer:
                    peer.sendall(bytes(unique_id))
        return unique_id
    deadline = time.monotonic() + 30
    while True:
        try:
            with socket.create_connection(address) as server, server.makefile("rb") as stream:
                return UniqueId.from_buffer_copy(stream.read(ctypes.sizeof(UniqueId)))
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def join(nccl):
    """Makes the communicator of all ranks. Returns it, this rank, and how many there are."""
    rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    address = os.environ.get("MASTER_ADDR", "127.0.0.1"), int(os.environ.get("MASTER_PORT", 29500))
    comm = ncclComm_t()
    nccl.ncclCommInitRank(ctypes.byref(comm), world, exchange_id(nccl, rank, world, address), rank)
    return comm, rank, world


def main():
    nccl = Nccl(library_path())
    comm, rank, world = join(nccl)
    buffer = ctypes.create_string_buffer(struct.pack(f"<{COUNT}f", *[rank + 1] * COUNT))
    nccl.ncclAllReduce(buffer, buffer, COUNT, FLOAT32, SUM, comm, None)
    result = struct.unpack_from(f"<{COUNT}f", buffer)
    nccl.ncclCommDestroy(comm)
    want = world * (world + 1) / 2
    if any(value != want for value in result):
        raise SystemExit(f"rank {rank} of {world}: wrong sum {result[0]}, want {want}")
    print(f"rank {rank} of {world}: the sum is {result[0]}")


if __name__ == "__main__":
    main()
