#!/usr/bin/env python3
"""A Python client of libnccl.so.2 that binds it as vLLM's pynccl does (lightpath.nccl).

    pynccl_client.py [--ranks 4] [--library lib/libnccl.so.2]

One process per rank; every result of every collective and type below is checked. Only the standard
library is needed."""

import argparse
import ctypes
import dataclasses
import struct
import subprocess
import sys

from lightpath import library_path
from lightpath.nccl import Nccl, NcclError, UniqueId, ncclComm_t, ncclWindow_t


@dataclasses.dataclass(frozen=True)
class Type:
    """An element type: NCCL's number, struct's letter, and how bytes and values convert."""

    name: str
    number: int
    code: str

    @property
    def size(self):
        return 2 if self.name == "bfloat16" else struct.calcsize(self.code)

    def pack(self, values):
        if self.name == "bfloat16":  # the upper half of a float; the values below have no lower half
            return b"".join(struct.pack("<f", v)[2:] for v in values)
        return struct.pack(f"<{len(values)}{self.code}", *values)

    def unpack(self, raw):
        if self.name == "bfloat16":
            return [struct.unpack("<f", b"\0\0" + raw[i : i + 2])[0] for i in range(0, len(raw), 2)]
        return list(struct.unpack(f"<{len(raw) // self.size}{self.code}", raw))


TYPES = (
    Type("int8", 0, "b"), Type("uint8", 1, "B"), Type("int32", 2, "i"), Type("uint32", 3, "I"),
    Type("int64", 4, "q"), Type("uint64", 5, "Q"), Type("float16", 6, "e"), Type("float32", 7, "f"),
    Type("float64", 8, "d"), Type("bfloat16", 9, ""),
)  # fmt: skip


def product(values):
    result = 1
    for v in values:
        result *= v
    return result


OPS = {"sum": (0, sum), "prod": (1, product), "max": (2, max), "min": (3, min)}


def value(rank, i):
    """Small integers: sums and products over the ranks are exact in every type."""
    return (rank + 2 * i) % 3 + 1


class Rank:
    """One rank's communicator and its checks."""

    def __init__(self, nccl, ranks, rank, unique_id):
        self.nccl, self.ranks, self.rank = nccl, ranks, rank
        self.comm = ncclComm_t()
        nccl.ncclCommInitRank(ctypes.byref(self.comm), ranks, unique_id, rank)

    def buffers(self, dtype, send, recv_count):
        raw = dtype.pack(send)
        return ctypes.create_string_buffer(raw, max(len(raw), 1)), ctypes.create_string_buffer(
            max(recv_count * dtype.size, 1)
        )

    def expect(self, what, dtype, buffer, want):
        got = dtype.unpack(buffer.raw[: len(want) * dtype.size])
        if got != want:
            raise AssertionError(f"rank {self.rank}: {what} of {dtype.name}: {got[:8]}, want {want[:8]}")

    def reductions(self, dtype, n):
        ranks = range(self.ranks)
        for name, (op, reduce) in OPS.items():
            want = [reduce([value(r, i) for r in ranks]) for i in range(n * self.ranks)]
            send, recv = self.buffers(dtype, [value(self.rank, i) for i in range(n * self.ranks)], n * self.ranks)
            self.nccl.ncclAllReduce(send, recv, n * self.ranks, dtype.number, op, self.comm, None)
            self.expect(f"AllReduce {name}", dtype, recv, want)
            self.nccl.ncclReduceScatter(send, recv, n, dtype.number, op, self.comm, None)
            self.expect(f"ReduceScatter {name}", dtype, recv, want[n * self.rank : n * (self.rank + 1)])
            root = self.ranks - 1
            self.nccl.ncclReduce(send, recv, n, dtype.number, op, root, self.comm, None)
            if self.rank == root:
                self.expect(f"Reduce {name}", dtype, recv, want[:n])
            # In place.
            self.nccl.ncclAllReduce(send, send, n * self.ranks, dtype.number, op, self.comm, None)
            self.expect(f"AllReduce {name} in place", dtype, send, want)

    def copies(self, dtype, n):
        mine = [value(self.rank, i) for i in range(n * self.ranks)]
        send, recv = self.buffers(dtype, mine, n * self.ranks)
        self.nccl.ncclAllGather(send, recv, n, dtype.number, self.comm, None)
        self.expect("AllGather", dtype, recv, [value(r, i) for r in range(self.ranks) for i in range(n)])
        self.nccl.ncclBroadcast(send, recv, n, dtype.number, 0, self.comm, None)
        self.expect("Broadcast", dtype, recv, [value(0, i) for i in range(n)])
        self.nccl.ncclAlltoAll(send, recv, n, dtype.number, self.comm, None)
        self.expect("AlltoAll", dtype, recv, [value(r, n * self.rank + i) for r in range(self.ranks) for i in range(n)])

    def ring(self, dtype, n):
        """A grouped send and receive: without the group each would wait for the other."""
        send, recv = self.buffers(dtype, [value(self.rank, i) for i in range(n)], n)
        before = (self.rank - 1) % self.ranks
        self.nccl.ncclGroupStart()
        self.nccl.ncclSend(send, n, dtype.number, (self.rank + 1) % self.ranks, self.comm, None)
        self.nccl.ncclRecv(recv, n, dtype.number, before, self.comm, None)
        self.nccl.ncclGroupEnd()
        self.expect("Send and Recv", dtype, recv, [value(before, i) for i in range(n)])

    def window(self):
        """Windows are whole pages, as ncclMemAlloc gives them."""
        memory, window = ctypes.c_void_p(), ncclWindow_t()
        self.nccl.ncclMemAlloc(ctypes.byref(memory), 4096)
        self.nccl.ncclCommWindowRegister(self.comm, memory, 4096, ctypes.byref(window), 1)
        self.nccl.ncclCommWindowDeregister(self.comm, window)
        self.nccl.ncclMemFree(memory)

    def mistakes(self):
        """A wrong call raises an error with the reason, and has no other effect."""
        memory = ctypes.create_string_buffer(8)
        for args, says in (
            ((memory, memory, 1, 99, 0, self.comm, None), "type"),
            ((memory, memory, 1, 7, 0, None, None), "comm"),
        ):
            try:
                self.nccl.ncclAllReduce(*args)
            except NcclError as error:
                assert says in str(error), error
            else:
                raise AssertionError(f"rank {self.rank}: a call without a valid {says} succeeded")

    def run(self):
        count = ctypes.c_int()
        self.nccl.ncclCommCount(self.comm, ctypes.byref(count))
        assert count.value == self.ranks
        for dtype in TYPES:
            for n in (1, 7, 1024):
                self.reductions(dtype, n)
                self.copies(dtype, n)
                self.ring(dtype, n)
        self.window()
        self.mistakes()
        self.reductions(TYPES[7], 3)
        self.nccl.ncclCommDestroy(self.comm)


def start(args, nccl):
    """Starts one process per rank and hands each the id."""
    unique_id = UniqueId()
    nccl.ncclGetUniqueId(ctypes.byref(unique_id))
    ranks = []
    for rank in range(args.ranks):
        command = [sys.executable, __file__, "--ranks", str(args.ranks), "--rank", str(rank), "--library", args.library]
        ranks.append(subprocess.Popen(command, stdin=subprocess.PIPE))
        ranks[-1].stdin.write(bytes(unique_id))
        ranks[-1].stdin.close()
    failed = [rank for rank, process in enumerate(ranks) if process.wait() != 0]
    if failed:
        sys.exit(f"ranks {failed} failed")
    version = ctypes.c_int()
    nccl.ncclGetVersion(ctypes.byref(version))
    print(f"NCCL {version.value}, {args.ranks} ranks: all results are right")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--library", default=library_path())
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    nccl = Nccl(args.library)
    if args.rank is None:
        start(args, nccl)
        return
    unique_id = UniqueId.from_buffer_copy(sys.stdin.buffer.read(ctypes.sizeof(UniqueId)))
    Rank(nccl, args.ranks, args.rank, unique_id).run()


if __name__ == "__main__":
    main()
