#!/usr/bin/env python3
"""Executes an iteration of a training job on emulated circuits of several topologies (docs/jobs-delta.md).

    python3 examples/python/replay_job.py --rate 20 --slow 2 -- --model mixtral-8x22b --bandwidth 50 --micro-batches 4

What follows "--" goes to `lightpath topology delta generate`. For each topology the script plans the circuits, starts
the controller of an emulated switch and a process per pod, and prints the planned and the measured iteration. Times are
the job's times --slow. Between any two instants at which a rate of the schedule changes, the pods exchange their bytes
of that slot in one group of sends and receives. Rank 0 measures the slowest pod, by turns of the topologies."""

import argparse
import collections
import ctypes
import json
import os
import pathlib
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time

from allreduce import FLOAT32, join
from lightpath import command_path, library_path
from lightpath.nccl import Nccl
from replay import sleep_until

INT8, MAX = 0, 2
WAYS = "fast:fair fast:critical prop-alloc:fair sqrt-alloc:fair iter-halve:fair"


def slots(job, schedule, tick, slow, scale):
    """The exchanges of an iteration: begin and end in seconds times slow, and {(from, to): bytes times scale}.
    No slot is shorter than a tick, in seconds."""
    parts = []  # pair, begin, end, bytes
    for task, span in zip(job["tasks"], schedule["tasks"]):
        for begin, end, size in span.get("segments", []):
            parts.append(((task["from"], task["to"]), begin * slow / 1e6, end * slow / 1e6, size * scale))
    edges = [0.0]
    for instant in sorted({x for _, *interval, _ in parts for x in interval}):
        if instant - edges[-1] >= tick:
            edges.append(instant)
    edges = [*(edges[:-1] or edges), max(end for _, _, end, _ in parts)]
    result = []
    for begin, end in zip(edges, edges[1:]):
        pairs = collections.Counter()
        for pair, a, b, size in parts:
            pairs[pair] += size * max(0, min(end, b) - max(begin, a)) / (b - a)
        pairs = {pair: round(size) for pair, size in pairs.items() if round(size)}
        if pairs:
            result.append((begin, end, pairs))
    return result


class Pod:
    """A rank of the job."""

    def __init__(self, nccl, comm, rank, plan):
        self.nccl, self.comm, self.rank, self.plan = nccl, comm, rank, plan
        most = collections.Counter()
        for _, _, pairs in plan:
            for pair, size in pairs.items():
                most[pair] = max(most[pair], size)
        self.buffers = {pair: ctypes.create_string_buffer(size) for pair, size in most.items() if rank in pair}
        self.word = ctypes.create_string_buffer(1)

    def exchange(self, pairs):
        """Posts this pod's group of a slot. All pods must post, so a pod without traffic sends a byte to itself."""
        mine = {pair: size for pair, size in pairs.items() if self.rank in pair} or {(self.rank, self.rank): 1}
        self.nccl.ncclGroupStart()
        for (source, target), size in mine.items():
            buffer = self.buffers.get((source, target), self.word)
            if source == self.rank:
                self.nccl.ncclSend(buffer, size, INT8, target, self.comm, None)
            if target == self.rank:
                self.nccl.ncclRecv(buffer, size, INT8, source, self.comm, None)
        self.nccl.ncclGroupEnd()

    def slowest(self, seconds):
        """Waits for all pods, and returns the greatest of their numbers."""
        value = ctypes.c_float(seconds)
        self.nccl.ncclAllReduce(ctypes.byref(value), ctypes.byref(value), 1, FLOAT32, MAX, self.comm, None)
        return value.value

    def check(self):
        """Exchanges the bytes of all slots, and compares each byte received."""
        for k, (_, _, pairs) in enumerate(self.plan):
            mine = {p: random.Random(f"{k} {p}").randbytes(size) for p, size in pairs.items() if self.rank in p}
            for pair, data in mine.items():
                ctypes.memmove(self.buffers[pair], data if pair[0] == self.rank else bytes(len(data)), len(data))
            self.exchange(pairs)
            for pair, data in mine.items():
                if self.buffers[pair].raw[: len(data)] != data:
                    raise SystemExit(f"slot {k}: rank {self.rank}: wrong bytes of {pair}")

    def iteration(self, length):
        """Executes the slots. A slot that ends late moves all later ones: pods compute for as long as planned."""
        begin, late = time.monotonic(), 0.0
        for start, end, pairs in self.plan:
            sleep_until(begin + late + start)
            self.exchange(pairs)
            late = max(late, time.monotonic() - begin - end)
        sleep_until(begin + late + length)
        return time.monotonic() - begin

    def check_circuits(self, trace):
        """Ends the program unless the exchange of every slot with bytes of this pod has a program on circuits."""
        lines = trace.read_text().splitlines() if trace.exists() else []
        known = {line["count"] for line in map(json.loads, lines) if line["planner"] == "static"}
        for k, (_, _, pairs) in enumerate(self.plan):
            size = sum(size for pair, size in pairs.items() if self.rank in pair)
            if size and size not in known:
                raise SystemExit(f"slot {k}: rank {self.rank}: {size} bytes were not on circuits")


def run_pod(args, folder):
    """Executes iterations as one pod. Rank 0 writes the result."""
    trace = folder / f"trace{os.environ['RANK']}"
    # Rounds wait for late pods, so that none uses packet planes.
    os.environ |= {"LIGHTPATH_DEMAND_WAIT": "1m", "LIGHTPATH_TRACE": str(trace)}
    job, schedule = (json.loads((folder / name).read_text()) for name in ("job.json", "schedule.json"))
    scale = args.slow * args.rate / (1e3 * job["bandwidth_gbps"])
    plan = slots(job, schedule, args.tick / 1e3, args.slow, scale)
    nccl = Nccl(library_path())
    comm, rank, _ = join(nccl)
    pod = Pod(nccl, comm, rank, plan)
    pod.check()
    length, times = schedule["makespan_us"] / 1e6 * args.slow, []
    for _ in range(args.iterations):
        pod.slowest(0)
        times.append(pod.slowest(pod.iteration(length)))
    pod.check_circuits(trace)
    nccl.ncclCommDestroy(comm)
    if rank == 0:
        size = sum(sum(pairs.values()) for _, _, pairs in plan)
        (folder / "result.json").write_text(json.dumps([length, len(plan), size, times]))


def run(*command, **more):
    """Runs a command, which must succeed."""
    done = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **more)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}: {done.stdout}")


def measure(args, folder, algorithm, sharing):
    """Executes iterations on one topology. Returns the planned length, slots and bytes, and the measured times."""
    job, topology, schedule, fabric, ocsd, socket = (
        folder / name for name in ("job.json", "topology.json", "schedule.json", "fabric.yaml", "ocsd.yaml", "socket")
    )
    delta = [command_path(), "topology", "delta"]
    files = ["--fabric", fabric, "--ocsd", ocsd, "--endpoint", f"unix:{socket}", "--listen", "127.0.0.1:0"]
    how = ["--in", job, "--sharing", sharing]
    run(*delta, "plan", *how, "--algorithm", algorithm, "--out", topology, *files)
    run(*delta, "simulate", *how, "--topology", topology, "--schedule", schedule, "--out", os.devnull)
    fabric.write_text(re.sub("bandwidth: [^,]*", f"bandwidth: {args.rate:g}Mbps", fabric.read_text()))
    for trace in folder.glob("trace*"):
        trace.unlink()
    with open(folder / "ocsd.log", "w") as log:
        controller = subprocess.Popen([command_path(), "ocsd", "--config", ocsd], stdout=log, stderr=log)
    try:
        while not socket.exists():
            if controller.poll() is not None:
                raise SystemExit((folder / "ocsd.log").read_text())
            time.sleep(0.05)
        pods = len(json.loads(job.read_text())["pods"])
        environment = os.environ | {"LIGHTPATH_FABRIC": str(fabric), "REPLAY_FOLDER": str(folder)}
        run(command_path(), "run", "-n", pods, "--", sys.executable, __file__, *sys.argv[1:], env=environment)
    finally:
        controller.terminate()
        controller.wait()
    return json.loads((folder / "result.json").read_text())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ways", default=WAYS, help="ALGORITHM:SHARING ... of `topology delta plan`")
    parser.add_argument("--rate", type=float, default=20, help="Mb/s of an emulated circuit")
    parser.add_argument("--slow", type=float, default=2, help="by how much the iteration is slowed down")
    parser.add_argument("--tick", type=float, default=2, help="ms of the shortest slot")
    parser.add_argument("--iterations", type=int, default=3, help="timed, in each turn")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("generate", nargs="*", help="flags of `topology delta generate`")
    args = parser.parse_args()
    if "REPLAY_FOLDER" in os.environ:
        return run_pod(args, pathlib.Path(os.environ["REPLAY_FOLDER"]))
    with tempfile.TemporaryDirectory() as name:
        folder, results = pathlib.Path(name), collections.defaultdict(list)
        job = folder / "job.json"
        run(command_path(), "topology", "delta", "generate", "--full", "--out", job, *args.generate)
        for turn in range(args.turns):
            for way in args.ways.split():
                print(f"turn {turn + 1} of {args.turns}: {way}", file=sys.stderr, flush=True)
                results[way].append(measure(args, folder, *way.split(":")))
    for way, turns in results.items():
        planned, count, size, _ = turns[0]
        times = [t for turn in turns for t in turn[3]]
        median = statistics.median(times)
        print(
            f"{way:16} planned {planned:.3f} s, measured {median:.3f} s ({100 * (median / planned - 1):+.1f} %), "
            f"{min(times):.3f} to {max(times):.3f}; {count} exchanges, {size / 1e6:.0f} MB on circuits"
        )


if __name__ == "__main__":
    main()
