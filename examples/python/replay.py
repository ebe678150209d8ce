#!/usr/bin/env python3
"""Replays a trace of an iteration (docs/iteration.md) with real bytes.

    LIGHTPATH_FABRIC=fabric.yaml lightpath run -n 4 -- python3 examples/python/replay.py trace.json
    lightpath iteration plan trace.json --fabric fabric.yaml -o plan.json      # what it should take

Each rank makes the calls of the trace, and sleeps while the job computes. Rank 0 prints the median time of an
iteration, and how much of it the job waited for communication. Buffers are host memory, elements are floats."""

import argparse
import concurrent.futures
import ctypes
import json
import os
import statistics
import threading
import time

from allreduce import FLOAT32, SUM, join
from lightpath import library_path
from lightpath.nccl import Nccl, ncclComm_t

BEGIN, NO_COLOR = -1, -1


def waits(trace):
    """For each call: the calls that it comes after, with the computation in between, in seconds."""
    return [
        [(a, us / 1e6) for a, us in call.get("after", [(i - 1, call.get("gap_us", 0))])]
        for i, call in enumerate(trace["calls"])
    ]


def computation(trace):
    """The time of an iteration whose calls take no time, in seconds."""
    ends = []
    for after in waits(trace):
        ends.append(max(gap + (ends[a] if a != BEGIN else 0) for a, gap in after))
    tails = [end + call.get("tail_us", 0) / 1e6 for end, call in zip(ends, trace["calls"])]
    return max(tails + [trace.get("compute_us", 0) / 1e6])


def sleep_until(when):
    time.sleep(max(0, when - time.monotonic()))


class Replay:
    """A rank of the job. Each communicator has a thread, so that calls of several communicators overlap."""

    def __init__(self, trace, nccl, world, rank):
        self.trace, self.nccl, self.waits = trace, nccl, waits(trace)
        # By communicator: this rank's handle, its rank there and the number of ranks. None if it is in no group.
        self.comms, self.places = [], []
        for communicator in trace["communicators"]:
            groups = communicator["groups"]
            color = next((i for i, group in enumerate(groups) if rank in group), NO_COLOR)
            place = (groups[color].index(rank), len(groups[color])) if color != NO_COLOR else None
            comm = ncclComm_t()
            nccl.ncclCommSplit(world, color, place[0] if place else 0, ctypes.byref(comm), None)
            self.comms.append(comm if place else None)
            self.places.append(place)
        most = int(max(call["bytes"] for call in trace["calls"])) + 64
        self.buffers = [
            (ctypes.create_string_buffer(most), ctypes.create_string_buffer(most)) for _ in trace["communicators"]
        ]
        self.threads = concurrent.futures.ThreadPoolExecutor(len(self.comms))

    def call(self, i):
        """Makes a call, which returns when it is done."""
        call = self.trace["calls"][i]
        k = call.get("communicator", 0)
        if self.comms[k] is None:
            return
        (rank, size), (send, recv), count = self.places[k], self.buffers[k], int(call["bytes"]) // 4
        sizes = call.get("flow_bytes") or [call["bytes"]] * len(call.get("flows", []))
        tail = (self.comms[k], None)
        name, root = call.get("collective"), call.get("root", 0)
        if not name:
            self.nccl.ncclGroupStart()
            for (source, target), amount in zip(call["flows"], sizes):
                if source == rank:
                    self.nccl.ncclSend(send, int(amount) // 4, FLOAT32, target, *tail)
                if target == rank:
                    self.nccl.ncclRecv(recv, int(amount) // 4, FLOAT32, source, *tail)
            self.nccl.ncclGroupEnd()
        elif name == "allreduce":
            self.nccl.ncclAllReduce(send, recv, count, FLOAT32, SUM, *tail)
        elif name == "alltoall":
            self.nccl.ncclAlltoAll(send, recv, count // size, FLOAT32, *tail)
        elif name == "allgather":
            self.nccl.ncclAllGather(send, recv, count // size, FLOAT32, *tail)
        elif name == "reducescatter":
            self.nccl.ncclReduceScatter(send, recv, count // size, FLOAT32, SUM, *tail)
        elif name == "broadcast":
            self.nccl.ncclBroadcast(send, recv, count, FLOAT32, root, *tail)
        elif name == "reduce":
            self.nccl.ncclReduce(send, recv, count, FLOAT32, SUM, root, *tail)
        else:
            raise SystemExit(f"replay: calls[{i}].collective: {name} cannot be replayed")

    def iteration(self):
        """Makes the calls of an iteration."""
        begin = time.monotonic()
        done = [threading.Event() for _ in self.waits]
        ends = [begin] * len(done)

        def run(k):
            for i, call in enumerate(self.trace["calls"]):
                if call.get("communicator", 0) != k:
                    continue
                for a, gap in self.waits[i]:
                    if a != BEGIN:
                        done[a].wait()
                    sleep_until((begin if a == BEGIN else ends[a]) + gap)
                self.call(i)
                ends[i] = time.monotonic()
                done[i].set()

        for thread in [self.threads.submit(run, k) for k in range(len(self.comms))]:
            thread.result()
        tails = [end + call.get("tail_us", 0) / 1e6 for end, call in zip(ends, self.trace["calls"])]
        sleep_until(max(tails + [begin + self.trace.get("compute_us", 0) / 1e6]))


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("trace")
    parser.add_argument("--iterations", type=int, default=40, help="timed")
    parser.add_argument("--warmup", type=int, default=20, help="iterations before, in which rank 0 learns the sequence")
    parser.add_argument("--out", help="write the times of the iterations, in seconds, to this file as JSON")
    args = parser.parse_args(arguments)
    with open(args.trace) as f:
        trace = json.load(f)
    algorithms = {(c["collective"], c["algorithm"]) for c in trace["calls"] if c.get("collective")}
    os.environ.setdefault("LIGHTPATH_ALGORITHM", ",".join(sorted(f"{c}:{a}" for c, a in algorithms)))
    nccl = Nccl(library_path())
    world, rank, ranks = join(nccl)
    if ranks != trace["ranks"]:
        raise SystemExit(f"replay: {args.trace} has {trace['ranks']} ranks, and {ranks} have been started")
    replay = Replay(trace, nccl, world, rank)
    begins = []
    for _ in range(args.warmup + args.iterations + 1):
        begins.append(time.monotonic())
        replay.iteration()
    for comm in [c for c in replay.comms if c is not None] + [world]:
        nccl.ncclCommDestroy(comm)
    if rank == 0:
        times = [b - a for a, b in zip(begins[args.warmup :], begins[args.warmup + 1 :])]
        if args.out:
            with open(args.out, "w") as f:
                json.dump(times, f)
        median, alone = statistics.median(times), computation(trace)
        median, waited = 1e3 * median, 1e3 * (median - alone)
        print(f"{args.iterations} iterations: median {median:.2f} ms, {waited:.2f} ms of it waiting for communication")


if __name__ == "__main__":
    main()
