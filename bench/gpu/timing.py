"""Times of kernels beside a plain copy, and of collectives beside the memory's limit and NVIDIA's library."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time

from context import fail, lost, old_driver, old_nccl, real_nccl, skip, tool
from report import FAILED, Row
from traffic import busbw_limit

# Required shares of a plain copy's bandwidth. Kernels with arithmetic in every byte, or on single elements, have none.
KERNEL_SHARE = 0.9
JUDGED = {"int8", "uint8", "int32", "uint32", "int64", "uint64", "half", "float", "double", "bfloat16"}
OTHERS = ["allgather", "reducescatter", "broadcast", "reduce", "gather", "scatter", "sendrecv"]
STUB_NOTE = "no GPU: means nothing"


def kernels(c):
    flags = ["-json", os.path.join(c.out, "kernels.json")] + (["-bytes", "16384"] if c.stub else [])
    done = c.run("kernels", [c.path("bin", "lightpath-kernels"), *flags], 60)  # all types and sizes
    if not done.ok:
        return [lost("kernels", "copies and reductions", done)]
    rows = []
    measured = c.json("kernels.json")
    c.found["copy_gbs"] = measured[0]["gbs"]
    for k in measured:
        words = k["kernel"].split()
        judged = not c.stub and words[0] == "reduce" and words[3] in JUDGED and "," not in k["kernel"]
        if "1 element" in k["kernel"]:
            rows.append(Row("kernels", k["kernel"], number=k["time_us"], unit="us", note=note(c)))
            continue
        rows.append(
            Row(
                "kernels",
                k["kernel"],
                number=k["gbs"],
                unit="GB/s",
                limit=c.copy_gbs,
                asked=KERNEL_SHARE if judged else None,
                note=note(c),
            )
        )
    return rows


def note(c, *texts):
    return "; ".join(t for t in (STUB_NOTE if c.stub else "", *texts) if t)


class Bench:
    """lightpath bench over device memory: all ranks on device 0."""

    def __init__(self, c, part, label, flags=(), env=None, memory="device"):
        self.c, self.part, self.label, self.flags, self.env, self.memory = c, part, label, list(flags), env, memory

    def results(self, what, collective, ranks, size, *more):
        """The results, or None and a row with the failure."""
        name = "-".join(
            [
                self.part,
                *re.findall(r"\w+", self.label),
                collective,
                str(ranks),
                *re.findall(r"\w+", " ".join(more)),
                str(size),
            ]
        )
        out = os.path.join(self.c.out, f"{name}.json")
        command = [
            self.c.path("bin", "lightpath"), "bench", collective, "-n", ranks, "-b", size, "-e", size,
            "--memory", self.memory,
            "--device", 0, "--json", out, *self.flags, *more,
        ]  # fmt: skip
        done = self.c.run(name, command, env=self.env)
        if not done.ok:
            return None, lost(self.part, what, done)
        return self.c.json(f"{name}.json")["results"], None

    def latency(self, collective, ranks, launches=0):
        """The time of a call of 8 bytes a rank: back to back, or in a graph."""
        size = 8 * ranks if collective != "allreduce" else 8
        more = ["--out-of-place"] + (["--graph", str(launches)] if launches else [])
        what = f"{self.label} {collective}, {ranks} ranks, 8 B" + (", in a graph" if launches else "")
        results, wrong = self.results(what, collective, ranks, size, *more)
        return wrong or Row(self.part, what, number=results[0]["time_us"], unit="us", note=note(self.c))

    def bandwidth(self, collective, ranks, size):
        what = f"{self.label} {collective}, {ranks} ranks, {size}"
        results, wrong = self.results(what, collective, ranks, size, "--out-of-place")
        if wrong:
            return wrong
        planner = results[0]["planner"]
        if "--planner" in self.flags and not planner:
            return fail(self.part, what, "no plan was used: the call went over packet planes")
        limit = None
        if self.c.copy_gbs and not self.c.stub and ranks > 1:
            limit = busbw_limit(collective, ranks, self.c.copy_gbs)
        kind = "busbw" if ranks > 1 else "algbw"
        return Row(
            self.part,
            what,
            number=results[0][f"{kind}_gbs"],
            unit="GB/s",
            limit=limit,
            note=note(self.c, f"{results[0]['time_us']:.0f} us; {kind}", planner),
        )


def collectives(c):
    """2, 4 and 8 ranks on one device: within its memory, which is the default, and staged through host memory. The rows
    come in the order of their value: what has no time left is skipped."""
    path = {"LIGHTPATH_DEVICE_PATH": "direct"}
    direct = Bench(c, "collectives", "direct", env=path)
    threads = Bench(c, "collectives", "direct, threads:", ["--threads"], path)
    registered = Bench(c, "collectives", "direct, registered:", env=path, memory="registered")
    staged = Bench(c, "collectives", "staged", env={"LIGHTPATH_DEVICE_PATH": "staged"})
    large, medium = ("8K", "8K") if c.stub else ("256M", "64M")
    rows = []
    for ranks in (2,) if c.stub else (2, 8, 4):
        for collective in ("allreduce", "alltoall"):
            rows += [direct.latency(collective, ranks), direct.bandwidth(collective, ranks, large)]
            rows.append(registered.bandwidth(collective, ranks, "1M" if c.stub else large))
        rows += [threads.latency("allreduce", ranks), threads.bandwidth("allreduce", ranks, large)]
        if ranks == 2:
            rows += [
                staged.latency("allreduce", 2),
                staged.latency("allreduce", 2, 10),
                staged.bandwidth("allreduce", 2, medium),
            ]
        rows += [
            bench.latency(collective, ranks, 10)
            for bench in (direct, threads)
            for collective in ("allreduce", "alltoall")
        ]
    return rows + [direct.bandwidth(collective, 2 if c.stub else 4, medium) for collective in OTHERS]


@contextlib.contextmanager
def daemon(control):
    """NVIDIA's daemon for processes that share a GPU, and the environment of its clients. It raises OSError if it does
    not start, and ends with the block. The directory has a short name: sockets are in it."""
    folder = tempfile.mkdtemp(prefix="mps-")
    env = {
        "CUDA_MPS_PIPE_DIRECTORY": os.path.join(folder, "pipe"),
        "CUDA_MPS_LOG_DIRECTORY": os.path.join(folder, "log"),
    }
    for place in env.values():
        os.mkdir(place)
    process = subprocess.Popen(
        [control, "-f"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, **env},
        start_new_session=True,
    )
    try:
        for _ in range(100):
            if os.listdir(env["CUDA_MPS_PIPE_DIRECTORY"]) or process.poll() is not None:
                break
            time.sleep(0.05)
        if process.poll() is not None or not os.listdir(env["CUDA_MPS_PIPE_DIRECTORY"]):
            raise OSError("the daemon does not start here")
        yield env
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def mps(c):
    """Processes that share the device without taking turns."""
    what, control = "processes under MPS", tool("nvidia-cuda-mps-control")
    if c.stub or control is None:
        return [skip("mps", what, c.no_gpu or "no nvidia-cuda-mps-control here")]
    rows = []
    try:
        with daemon(control) as env:
            bench = Bench(c, "mps", "MPS, direct", env={"LIGHTPATH_DEVICE_PATH": "direct", **env})
            for ranks in (2, 8):
                rows += [
                    bench.latency("allreduce", ranks),
                    bench.bandwidth("allreduce", ranks, "256M"),
                    bench.bandwidth("alltoall", ranks, "256M"),
                ]
    except OSError as error:
        rows.append(skip("mps", what, str(error)))
    return rows


# Limits: the time that the CPU's part of a staged operation adds to a stream (us), and an idle process's CPU (us/s).
ADDED = 10
IDLE = 1000
METRIC = re.compile(r"([\d.e+]+) (cpu-us/s|[a-z0-9-]+-us)")


def metrics(text):
    """The metrics of each benchmark in a Go test's output, by name."""
    return {
        line.split()[0]: {name: float(number) for number, name in METRIC.findall(line)}
        for line in text.splitlines()
        if line.startswith("Benchmark")
    }


def progress(c):
    """The CPU's cost in a staged operation, and while there is none (cgo/cuda/progress_test.go)."""
    program, env = c.path("build", "gpu", "cuda.test"), {"STUB_CUDA_LOOKS": "1000000", "NCCL_DEBUG": ""}
    rows = []
    for name, turns in (("Progress", 100 if c.stub else 2000), ("Idle/(none|staged|direct)/4", 1)):
        done = c.run(
            f"progress-{name.split('/')[0]}",
            [program, "-test.run", "^$", "-test.bench", name, "-test.benchtime", f"{turns}x"],
            env=env,
        )
        found = metrics(done.text())
        if not done.ok or not found:
            rows.append(lost("progress", name, done))
            continue
        for which, m in found.items():
            if "added-us" in m:
                rows.append(added(c, which, m))
            elif "cpu-us/s" in m:
                rows.append(idle(c, which, m["cpu-us/s"]))
    return rows


def added(c, which, m):
    ways = ", ".join(
        f"{way} {m[f'{way}-us']:.1f} (p99 {m[f'{way}-p99-us']:.1f})"
        for way in ("hand", "callback", "goroutine", "staged")
    )
    return Row(
        "progress",
        f"8 B staged beside by hand, {which.split('/')[-1].split('-')[0]}: added",
        number=m["added-us"],
        unit="us",
        limit=ADDED,
        asked=None if c.stub else 1,
        note=note(c, ways),
    )


def idle(c, which, used):
    what = f"CPU time without a call, {which}"
    if used > IDLE and not c.stub:
        return fail("progress", what, f"{used:.0f} us a second, of at most {IDLE}")
    return Row("progress", what, number=used, unit="us/s", note=note(c))


def gpudirect(c):
    """Messages between device memory and RDMA ports, if there are ports."""
    what = "GPUDirect RDMA"
    if c.stub or not os.path.isdir("/sys/class/infiniband") or not os.listdir("/sys/class/infiniband"):
        return [skip("planes", what, c.no_gpu or "no RDMA device here")]
    bench = Bench(c, "planes", "rdma, GPUDirect", ["--transport", "rdma"], {"LIGHTPATH_DEVICE_PATH": "rdma"})
    return [bench.latency("allreduce", 2), bench.bandwidth("allreduce", 2, "64M")]


def planes(c):
    """Results over packet planes and switched circuits. Device memory is staged, unless RDMA ports reach it."""
    size = "64K" if c.stub else "8M"
    rows = [Bench(c, "planes", "tcp", ["--transport", "tcp", "--planes", "2"]).bandwidth("allreduce", 2, size)]
    fabric = os.path.join(c.out, "fabric.yaml")
    with open(fabric, "w") as f:
        f.write(FABRIC.format(ranks=4, socket=os.path.join(c.out, "ocs.sock")))
    for planner in ("swot", "weave") if not c.stub else ("swot",):
        bench = Bench(
            c, "planes", f"optical {planner}", ["--fabric", fabric, "--planner", planner], {"LIGHTPATH_PLAN_WAIT": "1"}
        )
        rows += [bench.bandwidth(collective, 4, size) for collective in ("allreduce", "alltoall")]
    return rows + gpudirect(c)


FABRIC = """version: 1
name: gpu-check
ranks: {ranks}
planes:
  - {{name: p0, bandwidth: 10Gbps, ocs: ocs0}}
  - {{name: p1, bandwidth: 10Gbps, ocs: ocs0}}
ocs:
  - {{name: ocs0, driver: emulator, endpoint: "unix:{socket}", reconfig: 200us}}
costs: {{alpha: 20us, hop: 5us}}
forwarding: true
"""


def beside_nvidia(c):
    """One rank, and two ranks on one device if NVIDIA's library supports that, by turns."""
    real = real_nccl()
    if c.stub or real is None:
        return [
            skip(
                "nvidia",
                "beside NVIDIA's library",
                c.no_gpu or "no libnccl.so.2 of NVIDIA's (LIGHTPATH_REAL_NCCL names one)",
            )
        ]
    if old_driver() or old_nccl(real):
        return [skip("nvidia", "beside NVIDIA's library", old_driver() or old_nccl(real))]
    rows = []
    for ranks, flags in ((1, []), (2, []), (2, ["--threads"])):
        label = " threads:" if flags else ""
        ours, theirs = (
            Bench(c, "nvidia", f"Lightpath{label}", flags),
            Bench(c, "nvidia", f"NVIDIA{label}", [*flags, "--library", real]),
        )
        for collective in ("allreduce", "alltoall"):
            rows += compared(ours.latency(collective, ranks), theirs.latency(collective, ranks))
            rows += compared(ours.latency(collective, ranks, 10), theirs.latency(collective, ranks, 10))
            rows += compared(ours.bandwidth(collective, ranks, "256M"), theirs.bandwidth(collective, ranks, "256M"))
    return rows + interposed(c, real, theirs)


def interposed(c, real, theirs):
    """Lightpath's schedules as grouped sends and receives of NVIDIA's library, beside its own collectives."""
    env = {
        "LIGHTPATH_NCCL_FALLBACK_LIB": real,
        "LIGHTPATH_FALLBACK": "interpose",
        "LIGHTPATH_ALGORITHM": "allreduce:ring",
    }
    mode = Bench(c, "nvidia", "interposed ring", ["--threads"], env)
    reference = theirs.bandwidth("allreduce", 2, "64M")
    if reference.status == FAILED:
        return [skip("nvidia", "interposed ring allreduce, 2 ranks", f"NVIDIA's: {reference.note}")]
    return compared(mode.bandwidth("allreduce", 2, "64M"), reference)


def compared(ours, theirs):
    """Both times, ours compared with theirs. If NVIDIA's library lacks a call, Lightpath has not failed."""
    if theirs.status == FAILED:
        return [ours, skip(theirs.part, theirs.what, f"NVIDIA's: {theirs.note}")]
    if ours.status != FAILED:
        ours.limit = theirs.number
        ours.note = "; ".join(t for t in (ours.note, "limit: NVIDIA's") if t)
    return [ours, theirs]
