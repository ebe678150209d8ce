#!/usr/bin/env python3
"""Times iterations over planes in the kernel by turns in five ways. Needs root.

    iterations.py --modes ddp,sharded,moe,pipeline --reconfig 1ms,5ms,25ms --rounds 3
    iterations.py --modes ../traces/groups.json --ranks 8

off     circuits, or packet planes where these are faster; each call has its own plan (LIGHTPATH_ITERATION=off)
auto    the same; calls that repeat are planned together (the default)
static  circuits that stay as they are: rank r to r^1 on even planes, to r^2 on odd ones
packet  TCP over planes of the same rate
memory  shared memory: what an iteration takes that does not wait for a network

A mode is a way of train.py, or a trace for ../python/replay.py. The fabric files of off and auto state the planes of
packet (--packet-planes), so that calls use these where they are faster. Calls that circuits do not serve use them in
any case. Calls of a trace have its algorithms, except where they may use packet planes. Exposed is what an iteration
takes longer than in memory, or than the computation of the trace. Planned is the exposed communication that `lightpath
iteration plan` expects for the trace, or for the calls as recorded in memory."""

import argparse
import contextlib
import ctypes
import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile

from launch import HERE, controller, write_fabric
from lightpath import command_path

sys.path.append(os.path.join(HERE, "..", "python"))
import replay

HOSTS = os.path.join(HERE, "..", "..", "bench", "hosts.sh")
# Arguments of train.py: an iteration takes 100 to 300 ms on two cores.
MODES = {
    "ddp": "--hidden 512 --batch 256 --bucket-mb 0.25",
    "sharded": "--hidden 384 --batch 384",
    "fsdp": "--hidden 384 --batch 384",
    "moe": "--hidden 256 --batch 384 --bucket-mb 0.25",
    "pipeline": "--hidden 384 --batch 512",
}
# The same in all ways, so that losses are: what the library takes on circuits.
ALGORITHMS = "allreduce:rabenseifner,reducescatter:rabenseifner,allgather:recursive-doubling,alltoall:pairwise"
PLANNED = {"off": "percall", "auto": "iteration", "static": "static", "packet": "packet"}
# Ranks are forked: torch needs seconds to load.
FORK = multiprocessing.get_context("fork")
CLONE_NEWNET = 0x40000000


def is_trace(mode):
    return mode.endswith(".json")


def be_rank(host, env, program, arguments):
    """Runs the main function of a program as a rank, in the namespace of a host if there is one."""
    os.dup2(2, 1)
    os.environ.update(env)
    if host:
        with open(host) as namespace:
            if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), f"cannot enter {host}")
    program(arguments)


class Fabrics:
    """What ranks run on: hosts with packet planes, and circuits by switching time, with their controllers."""

    def __init__(self, args, directory, stack):
        self.args, self.directory, self.stack, self.tag = args, directory, stack, f"lpi{os.getpid()}"
        mtu = args.mtu
        wire = f"{args.mbps * (mtu + 14) / (mtu - 52):.1f}mbit"  # bandwidth of the payload is the same as on circuits
        stack.callback(subprocess.run, ["bash", HOSTS, "down", self.tag, str(args.ranks)])
        hosts = [self.tag, str(args.ranks), str(args.planes), wire, str(mtu)]
        for command in "up", "circuits":
            subprocess.run(["bash", HOSTS, command, *hosts], check=True)
        self.planes = os.path.join(directory, "planes.yaml")
        with open(self.planes, "w") as f:
            rows = "".join(f"  - {{name: e{p}, bandwidth: {args.mbps}Mbps}}\n" for p in range(args.planes))
            f.write(f"version: 1\nranks: {args.ranks}\nplanes:\n{rows}")
        stated = self._measure() if args.packet_planes == "measured" else args.packet_planes
        self.packets = "" if stated == "none" else f"packet_planes: {stated}\n"
        self.files = {reconfig: self._circuits(reconfig) for reconfig in args.reconfig.split(",")}
        self.files["static"] = self._circuits("1ms", pinned=True)

    def _measure(self):
        """Measures what packet planes cost. Returns their field of a fabric file."""
        bench = [command_path(), *"bench allreduce -b 64K -e 1M -i 5 --algorithm ring --fit --json -".split()]
        ranks = []
        for rank in range(self.args.ranks):
            inside = ["ip", "netns", "exec", f"{self.tag}-{rank}", *bench]
            env = {**os.environ, **self._environment(), "RANK": str(rank)}
            ranks.append(subprocess.Popen(inside, env=env, stdout=subprocess.PIPE))
        out = [rank.communicate()[0] for rank in ranks]
        if any(rank.returncode for rank in ranks):
            raise SystemExit("iterations.py: the measurement of the packet planes failed")
        costs = json.loads(out[0])["packet_planes"]
        field = f"{{bandwidth: {1e3 * costs['bandwidth_gbps']:.1f}Mbps, alpha: {costs['alpha_us']:.1f}us}}"
        print(f"packet planes: {field}", flush=True)
        return field

    def _environment(self):
        """Variables of ranks that use packet planes."""
        interfaces = ",".join(f"e{p}" for p in range(self.args.planes))
        return {
            "WORLD_SIZE": str(self.args.ranks), "MASTER_PORT": "29500", "MASTER_ADDR": "10.77.0.1",
            "GLOO_SOCKET_IFNAME": "e0", "NCCL_SOCKET_IFNAME": f"={interfaces}",
            "LIGHTPATH_TRANSPORT": "tcp", "LIGHTPATH_PLANES": str(self.args.planes), "LIGHTPATH_FABRIC": self.planes,
        }  # fmt: skip

    def _circuits(self, reconfig, pinned=False):
        name = f"{self.tag}{'s' if pinned else reconfig}"
        at = os.path.join(self.directory, name)
        fabric = write_fabric(
            at,
            [f"bandwidth: {self.args.mbps}Mbps, interface: p{p}" for p in range(self.args.planes)],
            name=name,
            costs="alpha: 100us, hop: 30us",
            more="pinned_by: job\n" if pinned else self.packets,
            ranks=self.args.ranks,
            reconfig=reconfig,
        )
        maps = [[r ^ (1 + p % 2) for r in range(self.args.ranks)] for p in range(self.args.planes)]
        command = [command_path(), "fabric"]
        self.stack.callback(subprocess.run, [*command, "down", "--fabric", fabric], stdout=2)
        subprocess.run([*command, "up", "--fabric", fabric, "--mtu", str(self.args.mtu)], check=True, stdout=2)
        self.stack.enter_context(controller(at, f"initial: {json.dumps(maps)}\n"))
        return fabric

    def run(self, mode, way, reconfig, more=None):
        """Runs a mode in a way. Returns the times of rank 0's iterations in seconds, and what it has computed."""
        out = os.path.join(self.directory, "result.json")
        env = self._environment()
        if way in ("off", "auto"):
            env.update(LIGHTPATH_FABRIC=self.files[reconfig], LIGHTPATH_ITERATION=way)
        elif way == "static":
            env.update(LIGHTPATH_FABRIC=self.files["static"])
        elif way == "memory":
            env.update(
                NCCL_SOCKET_IFNAME="lo",
                GLOO_SOCKET_IFNAME="lo",
                MASTER_ADDR="127.0.0.1",
                LIGHTPATH_TRANSPORT="shm",
                LIGHTPATH_PLANES="1",
            )
        warmup, iterations = self.args.warmup, self.args.iterations
        if is_trace(mode):
            if way == "packet" or self.packets and way != "static":
                env["LIGHTPATH_ALGORITHM"] = ""  # what the library takes on packet planes, not the trace's
            program = replay.main
            arguments = [mode, "--out", out, "--warmup", str(warmup), "--iterations", str(iterations)]
        else:
            import train

            program, env["LIGHTPATH_ALGORITHM"] = train.main, self.args.algorithms
            arguments = f"--ways lightpath:{mode} --steps {warmup + iterations} --out {out} {MODES[mode]}".split()
        ranks = []
        for rank in range(self.args.ranks):
            host = None if way == "memory" else f"/run/netns/{self.tag}-{rank}"
            own = {**env, "RANK": str(rank), **(more or {})}
            ranks.append(FORK.Process(target=be_rank, args=(host, own, program, arguments)))
            ranks[-1].start()
        for rank in ranks:
            rank.join()
        if any(rank.exitcode for rank in ranks):
            raise SystemExit(f"iterations.py: {mode}, {way} {reconfig}: a rank failed")
        with open(out) as f:
            result = json.load(f)
        if is_trace(mode):
            return result, None
        result = result["ways"][f"lightpath:{mode}"]
        return result["iterations"][warmup:], result["loss"]

    def planned(self, mode):
        """The exposed communication that the planner expects, in ms, by switching time, or static, and way."""
        trace = mode if is_trace(mode) else self.record(mode)
        by_reconfig = {}
        for reconfig, fabric in self.files.items():
            plan = [command_path(), "iteration", "plan", trace, "--fabric", fabric, "--json"]
            done = subprocess.run([*plan, "-o", os.devnull], check=True, stdout=subprocess.PIPE)
            ways = json.loads(done.stdout)["ways"]
            by_reconfig[reconfig] = {w["name"]: w["exposed_us"] / 1e3 for w in ways}
        return by_reconfig

    def record(self, mode):
        """Records the calls of a mode in memory. Returns the trace."""
        library = os.path.join(os.path.dirname(command_path()), "..", "lib", "liblightpath-record.so")
        with tempfile.TemporaryDirectory() as recordings:
            trace = os.path.join(self.directory, f"{mode}.json")
            more = {"LIGHTPATH_ITERATION_RECORD": recordings, "VLLM_NCCL_SO_PATH": os.path.abspath(library)}
            self.run(mode, "memory", "", more)
            record = [command_path(), "iteration", "record", "--merge", recordings, "-o", trace]
            subprocess.run(record, check=True, stdout=2)
        return trace


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--modes", default="ddp,sharded,moe,pipeline", help="ways of train.py, or traces")
    parser.add_argument("--ways", default="off,auto,static,packet,memory")
    parser.add_argument("--reconfig", default="1ms,5ms,25ms", help="switching times")
    parser.add_argument("--ranks", type=int, default=4, help="those of a trace")
    parser.add_argument("--planes", type=int, default=2)
    parser.add_argument("--mbps", type=int, default=100, help="of a plane")
    parser.add_argument("--mtu", type=int, default=9000, help="of all planes; a step of few frames is less exact")
    parser.add_argument(
        "--packet-planes",
        default="measured",
        help="their costs in the fabric files, such as {bandwidth: 200Mbps, alpha: 20us}; none: the files state none",
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--warmup", type=int, default=20, help="iterations of a run that do not count")
    parser.add_argument("--iterations", type=int, default=40, help="of a run that count")
    parser.add_argument("--algorithms", default=ALGORITHMS, help="LIGHTPATH_ALGORITHM")
    args = parser.parse_args()
    args.modes = [os.path.abspath(mode) if is_trace(mode) else mode for mode in args.modes.split(",")]
    trains = not all(map(is_trace, args.modes))
    if trains and "memory" not in args.ways.split(","):
        parser.error("--ways: without memory nothing is known of exposed communication")
    if trains:
        load_torch()
    return args


def load_torch():
    """Loads what ranks need of torch, before they fork."""
    import torch

    torch.set_num_threads(1)
    torch.optim.Adam([torch.nn.Parameter(torch.zeros(1))]).step()


def main():
    args = arguments()
    with tempfile.TemporaryDirectory(prefix="lightpath-iterations-") as directory, contextlib.ExitStack() as stack:
        fabrics = Fabrics(args, directory, stack)
        for mode in args.modes:
            measure(args, fabrics, mode)


def measure(args, fabrics, mode):
    """Trains in each way, by turns, and prints the table of a mode."""
    reconfigs = args.reconfig.split(",")
    ways = [w for w in args.ways.split(",") if w != "memory" or not is_trace(mode)]
    turns = [(w, r) for w in ways for r in (reconfigs if w in ("off", "auto") else [""])]
    times, computed = {turn: [] for turn in turns}, None
    for number in range(args.rounds):
        for turn in turns if number % 2 == 0 else reversed(turns):
            iterations, result = fabrics.run(mode, *turn)
            times[turn] += [1e3 * s for s in iterations]
            if computed not in (None, result):
                raise SystemExit(f"iterations.py: {mode}, {turn}: other losses than {turns[0]}")
            computed = result
    planned = fabrics.planned(mode)
    if is_trace(mode):
        with open(mode) as f:
            alone = 1e3 * replay.computation(json.load(f))
    else:
        alone = statistics.median(times["memory", ""])
    print(f"{os.path.basename(mode)}: {'iteration [quartiles]':>27} {'exposed':>9} {'planned':>9}   ms")
    for way, reconfig in turns:
        low, middle, high = statistics.quantiles(times[way, reconfig], n=4)
        file = "static" if way == "static" else reconfig or reconfigs[0]
        expected = planned[file].get(PLANNED.get(way), float("nan"))
        print(
            f"{way:7} {reconfig:5} {middle:8.1f} [{low:.1f}, {high:.1f}] {middle - alone:9.1f} {expected:9.1f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
