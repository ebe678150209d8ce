"""The rank of cgo/rank over PyTorch's Gloo: same job file, same socket, same values and checks.

Timed are the process group's own methods on tensors over page-aligned memory that has been written.
Gloo's AllReduce works in place only and is timed so, without a copy. Its barrier stands where the
others have one in shared memory.
"""

import json
import mmap
import socket
import sys
import time

import numpy
import torch
import torch.distributed as dist

TYPES = {
    "half": torch.float16,
    "bfloat16": torch.bfloat16,
    "float": torch.float32,
    "double": torch.float64,
    "int8": torch.int8,
    "uint8": torch.uint8,
    "int32": torch.int32,
    "int64": torch.int64,
}
OPS = {"sum": dist.ReduceOp.SUM, "prod": dist.ReduceOp.PRODUCT, "max": dist.ReduceOp.MAX, "min": dist.ReduceOp.MIN}
FOLD = {"sum": numpy.add, "prod": numpy.multiply, "max": numpy.maximum, "min": numpy.minimum}
CHUNK = 1 << 20  # elements made or checked at a time


def values(run, rank, start, n):
    """Elements start..start+n of a rank's input, as data.c makes them."""
    x = numpy.arange(start + 1, start + n + 1, dtype=numpy.uint64)
    x *= numpy.uint64(0x9E3779B97F4A7C15)
    x += numpy.uint64((rank + 1) * 0xC2B2AE3D27D4EB4F & (1 << 64) - 1)
    x ^= x >> numpy.uint64(29)
    x *= numpy.uint64(0xBF58476D1CE4E5B9)
    h = (x >> numpy.uint64(32)).astype(numpy.int64)
    if run["op"] == "prod" and run["collective"] in ("allreduce", "reducescatter"):
        return numpy.where(h & 7 == 0, 2, 1)
    return h % 5 - (0 if run["type"] == "uint8" else 2)


def tensor(n, dtype):
    """n elements in pages of their own."""
    size = torch.empty(0, dtype=dtype).element_size()
    t = torch.frombuffer(mmap.mmap(-1, max(n * size, 1)), dtype=dtype, count=n) if n else torch.empty(0, dtype=dtype)
    return t.zero_()


class Rank:
    def __init__(self, rank, world, reserve):
        self.rank, self.world, self.reserve = rank, world, reserve
        self.group = dist.distributed_c10d._get_default_group()
        self.dirty = {}
        self.keep = {}

    def sizes(self, run):
        n = run["count"]
        send = n * self.world if run["collective"] == "alltoall" else n
        recv = n * self.world if run["collective"] in ("alltoall", "allgather") else n
        return send, recv

    def buffers(self, run):
        need, dtype = self.sizes(run), TYPES[run["type"]]
        send, recv = self.keep.get(dtype, (None, None))
        if send is None or send.numel() < need[0] or recv.numel() < need[1]:
            send, recv = tensor(need[0], dtype), tensor(need[1], dtype)
        shared = max(send.numel(), recv.numel()) * send.element_size() <= self.reserve
        self.keep = {dtype: (send, recv)} if shared else {}
        return send[: need[0]], recv[: need[1]]

    def fill(self, run, to):
        for at in range(0, to.numel(), CHUNK):
            n = min(CHUNK, to.numel() - at)
            to[at : at + n] = torch.from_numpy(values(run, self.rank, at, n)).to(to.dtype)

    def prepare(self, run, send, recv):
        recv.view(torch.uint8).fill_(0xA5)
        self.fill(run, send)
        if run["collective"] in ("allreduce", "broadcast"):
            recv.copy_(send)

    def call(self, run, send, recv):
        """A function of no arguments that is one collective."""
        group, what = self.group, run["collective"]
        if what == "allreduce":
            options = dist.AllreduceOptions()
            options.reduceOp = OPS[run["op"]]
            tensors = [recv]
            return lambda: group.allreduce(tensors, options).wait()
        if what == "broadcast":
            options = dist.BroadcastOptions()
            options.rootRank, options.rootTensor = run["root"], 0
            tensors = [recv]
            return lambda: group.broadcast(tensors, options).wait()
        if what == "allgather":
            parts, tensors = [list(recv.chunk(self.world))], [send]
            return lambda: group.allgather(parts, tensors).wait()
        if what == "alltoall":
            return lambda: group.alltoall_base(recv, send, [], []).wait()
        return None

    def want(self, run, start, n):
        what = run["collective"]
        if what == "broadcast":
            return values(run, run["root"], start, n)
        if what == "allreduce":
            acc = values(run, 0, start, n)
            for q in range(1, self.world):
                acc = FOLD[run["op"]](acc, values(run, q, start, n))
            return acc
        block = start // run["count"]
        within = start - block * run["count"]
        return values(run, block, within + (self.rank * run["count"] if what == "alltoall" else 0), n)

    def wrong(self, run, recv):
        bad = 0
        edge = run["count"] if run["collective"] in ("alltoall", "allgather") else max(recv.numel(), 1)
        for first in range(0, recv.numel(), edge):
            for at in range(first, first + edge, CHUNK):
                n = min(CHUNK, first + edge - at)
                got = recv[at : at + n].to(torch.float64).numpy()
                bad += int((got != self.want(run, at, n)).sum())
        return bad

    def run(self, run):
        send, recv = self.buffers(run)
        call = self.call(run, send, recv)
        self.prepare(run, send, recv)
        for _ in range(run["warmup"]):
            call()
        self.group.barrier().wait()
        start, cpu = time.monotonic_ns(), time.process_time_ns()
        for _ in range(run["iters"]):
            call()
        us, cpu_us = (t / 1e3 / run["iters"] for t in (time.monotonic_ns() - start, time.process_time_ns() - cpu))
        bad = 0
        if run["check"]:
            self.group.barrier().wait()
            self.prepare(run, send, recv)
            call()
            bad = self.wrong(run, recv)
        return us, cpu_us, bad

    def unsupported(self, run):
        what = run["collective"]
        if what == "reducescatter":
            return "PyTorch's Gloo has none"
        if what not in ("allreduce", "broadcast", "allgather", "alltoall"):
            return "not one of the collectives that are compared"
        if run["type"] not in TYPES or run["type"] == "bfloat16" and what == "allreduce":
            return "no such element type"
        if what == "allreduce" and run["op"] not in OPS:
            return "no such operator"
        return None


def parse(text):
    run = {}
    for word in text.split()[1:]:
        key, _, value = word.partition("=")
        run[key] = int(value) if value.isdigit() else value
    return run


def main():
    with open(sys.argv[2]) as f:
        job = dict(line.rstrip("\n").split("=", 1) for line in f if "=" in line)
    rank, world = int(job["rank"]), int(job["world"])
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="file://" + job["rendezvous"], rank=rank, world_size=world)
    end = socket.socket(socket.AF_UNIX)
    end.connect(job["commands"])
    stream = end.makefile("rw")

    def say(**fields):
        stream.write(json.dumps({"rank": rank, **fields}) + "\n")
        stream.flush()

    me = Rank(rank, world, int(job["reserve"]))
    say(library="Gloo in PyTorch " + torch.__version__)
    for line in stream:
        run = parse(line)
        why = me.unsupported(run)
        if why:
            say(unsupported=why)
            continue
        try:
            us, cpu_us, bad = me.run(run)
        except RuntimeError as e:
            say(error=str(e), result=1)
            return 1
        say(
            collective=run["collective"],
            bytes=run["bytes"],
            count=run["count"],
            inplace=run["inplace"],
            time_us=us,
            cpu_us=cpu_us,
            wrong=bad,
        )
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
