#!/usr/bin/env python3
"""Modelled times of collectives on one device, beside their limits: make gpu-model.

    modelled.py [--out DIR] [--before FILE] [--page FILE] [--ranks 1,2,4,8] [--sizes 8,64K,...] [--collectives ...]

It runs lightpath bench over the driver's stub with its virtual clock (docs/design/gpu-model.md). DIR (build/gpu/model)
gets table.txt, table.md and table.json. --before names the table.json of another build: each cell then has both
numbers. --page writes a page for docs/."""

import argparse
import concurrent.futures
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

import report
from context import ROOT, STUB
from traffic import moved

SIZES = ["8", "64K", "1M", "16M", "256M", "1G"]
COLLECTIVES = ["allreduce", "alltoall", "sendrecv"]
RANKS = [1, 2, 4, 8]
MEMORIES = ["device", "registered"]
# sliced: processes take turns on the device. processes: they share it, as with MPS.
MODES = ["threads", "processes", "sliced"]
SLICE_US = 100
REST = "1s"  # after the warm-up: peers open memory that recurs
LIMIT_S = 120  # of one point: a call that hangs ends in an error of the library, before


def constants(path=os.path.join(ROOT, "cgo", "cuda", "stub", "constants.h")):
    """The model's table."""
    with open(path) as f:
        return {name: int(value) for name, value in re.findall(r"^CONSTANT\((\w+), (\d+),", f.read(), re.MULTILINE)}


def in_bytes(size):
    return int(size[:-1]) << {"K": 10, "M": 20, "G": 30}[size[-1]] if size[-1] in "KMG" else int(size)


def limit_us(table, collective, ranks, mode, size):
    """The least time of a call. Large messages: the memory reads every input once and writes every result once. Small
    ones: a rank says that its input is there, waits for the others, and runs one kernel. Turns of processes follow each
    other."""
    latency = table["launch"] + (2 * table["memory_operation"] if ranks > 1 else 0)
    memory = moved(collective, ranks, asked(collective, ranks, size)) / table["memory"]  # bytes over GB/s are ns
    turns = (ranks - 1) * SLICE_US if mode == "sliced" else 0
    return max(latency, memory) / 1e3 + turns


def points(args):
    for collective, ranks, mode, memory, size in itertools.product(
        args.collectives, args.ranks, args.modes, MEMORIES, args.sizes
    ):
        if ranks > 1 or mode == "threads":
            yield {"collective": collective, "ranks": ranks, "mode": mode, "memory": memory, "size": size}


def iterations(size):
    return 20 if in_bytes(size) <= 1 << 20 else 4


def asked(collective, ranks, size):
    """Bytes of the call: a block of All-to-All has at least 8."""
    return max(in_bytes(size), 8 * ranks) if collective == "alltoall" else in_bytes(size)


def command(point, out):
    size = str(asked(point["collective"], point["ranks"], point["size"]))
    return [
        os.path.join(ROOT, "bin", "lightpath"), "bench", point["collective"], "-n", str(point["ranks"]),
        "-b", size, "-e", size, "--memory", point["memory"], "--device", "0", "--out-of-place", "-c", "0",
        "-w", "2", "--rest", REST, "-i", str(iterations(point["size"])), "--json", out,
        *(["--threads"] if point["mode"] == "threads" else []),
    ]  # fmt: skip


def measure(point, table):
    """The point with its results, or with "error"."""
    folder = tempfile.mkdtemp(prefix="gpu-model-")
    out, clock = os.path.join(folder, "out.json"), os.path.join(folder, "clock.json")
    env = {
        **os.environ, "LD_LIBRARY_PATH": STUB, "STUB_CUDA_DEVICES": "1", "STUB_CUDA_CLOCK": clock,
        "STUB_CUDA_SHARE": folder, "STUB_CUDA_SKIP": "0", "NCCL_MULTI_RANK_GPU_ENABLE": "1",
        "LIGHTPATH_DEVICE_PATH": "direct", "LIGHTPATH_TIMEOUT": "60s",
    }  # fmt: skip
    if point["mode"] == "sliced":
        env["STUB_CUDA_SLICE"] = str(SLICE_US)
    try:
        done = subprocess.run(
            command(point, out), env=env, capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
        if done.returncode:
            lines = done.stderr.strip().splitlines() or ["no output"]
            return {**point, "error": next((line for line in lines if line.startswith("lightpath:")), lines[-1])}
        with open(out) as f:
            time_us = json.load(f)["results"][0]["time_us"]
        with open(clock) as f:
            lines = [json.loads(line) for line in f]
    except subprocess.TimeoutExpired:
        return {**point, "error": f"not done after {LIMIT_S} s"}
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return {**point, **result(point, table, time_us, lines)}


def result(point, table, time_us, lines):
    """What the bench and the clock's report say of a point. Counts are those of a call of the busiest rank."""
    calls = iterations(point["size"])
    most = max((line for line in lines if "interval" in line), key=lambda line: line["calls"])
    limit = limit_us(table, point["collective"], point["ranks"], point["mode"], point["size"])
    names = {name: n / calls for name, n in most["functions"].items()}
    return {
        "time_us": time_us,
        "limit_us": limit,
        "share": limit / time_us if time_us else 0,
        "calls": most["calls"] / calls,
        "memory_operations": most["memory_operations"] / calls,
        "functions": names,
    }


def key(row):
    return tuple(row[name] for name in ("collective", "ranks", "mode", "memory", "size"))


def short(value):
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2g}"


# Calls that put an operation on a stream begin with these names.
OPERATIONS = (
    "cuLaunch",
    "cuMemcpy",
    "cuStreamBatchMemOp",
    "cuStreamWait",
    "cuStreamWriteValue",
    "cuGraphLaunch",
    "cuEventRecord",
)


def idle_calls(row):
    """Driver calls that put nothing on a stream."""
    return sum(n for name, n in row["functions"].items() if not name.startswith(OPERATIONS))


def cell(row, before, show):
    """A number now, or before>now."""
    texts = [
        show(r) if r is not None and "error" not in r else "-" for r in ([before, row] if before is not None else [row])
    ]
    return ">".join(dict.fromkeys(texts))


TIMES = ("us per call", lambda r: short(r["time_us"]))
SHARES = ("share of the limit in percent", lambda r: f"{100 * r['share']:.0f}")
COUNTS = (
    "driver calls that put nothing on a stream/memory operations",
    lambda r: f"{idle_calls(r):.0f}/{r['memory_operations']:.0f}",
)
PAGE_SIZES = ["8", "1M", "256M"]  # of counts


def compact(rows, before, sizes, kinds=(TIMES, SHARES, COUNTS)):
    """Tables as lists of lines of cells, each under a title."""
    now, old = {key(row): row for row in rows}, {key(row): row for row in before}
    lines = list(dict.fromkeys(key(row)[:4] for row in rows))  # in the order of points
    for memory in MEMORIES:
        for title, show in kinds:
            body = []
            for k in (k for k in lines if k[3] == memory):
                cells = [cell(now.get((*k, s)), old.get((*k, s)) if before else None, show) for s in sizes]
                body.append([k[0], str(k[1]), k[2] if k[1] > 1 else "-", *cells])
            if body:
                yield f"{memory}: {title}", [["", "ranks", "as", *sizes], *body]


def text(tables):
    out = []
    for title, cells in tables:
        out += [title, *report.aligned(cells), ""]
    return "\n".join(out)


def markdown(tables):
    out = []
    for title, cells in tables:
        out += [f"**{title}**", "", *report.piped(cells), ""]
    return "\n".join(out)


PAGE = """# Modelled times of collectives on one device

    make gpu-model

Ranks share the modelled H200 of [design/gpu-model.md](design/gpu-model.md), as threads or as processes: with MPS
(`processes`), or in turns of 100 us (`sliced`). The limit is that of the memory. A small call needs at least a write, a
wait and a kernel; processes in turns also need the changes. `device` are buffers that are not registered.

{tables}"""


def page(rows, sizes):
    """The page of docs/: times and shares of all sizes, counts of some."""
    tables = [
        *compact(rows, [], sizes, (TIMES, SHARES)),
        *compact(rows, [], [s for s in PAGE_SIZES if s in sizes], (COUNTS,)),
    ]
    blocks = "\n".join(
        f"## {title.capitalize()}\n\n```\n{text([('', cells)]).strip(chr(10))}\n```\n" for title, cells in tables
    )
    return PAGE.format(tables=blocks.rstrip())


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = lambda value: value.split(",")  # noqa: E731
    parser.add_argument("--out", default=os.path.join(ROOT, "build", "gpu", "model"))
    parser.add_argument("--before", help="table.json of another build")
    parser.add_argument("--page", help="file for a page of docs/")
    parser.add_argument("--sizes", type=names, default=SIZES)
    parser.add_argument("--collectives", type=names, default=COLLECTIVES)
    parser.add_argument("--ranks", type=lambda value: [int(n) for n in value.split(",")], default=RANKS)
    parser.add_argument("--modes", type=names, default=MODES)
    args = parser.parse_args(argv)
    before = []
    if args.before:
        with open(args.before) as f:
            before = json.load(f)["rows"]
    table = constants()
    with concurrent.futures.ThreadPoolExecutor(max_workers=2) as pool:
        rows = list(pool.map(lambda point: measure(point, table), points(args)))
    os.makedirs(args.out, exist_ok=True)
    tables = list(compact(rows, before, args.sizes))
    for name, content in (
        ("txt", text(tables)),
        ("md", markdown(tables)),
        ("json", json.dumps({"constants": table, "rows": rows}, indent=1)),
    ):
        with open(os.path.join(args.out, f"table.{name}"), "w") as f:
            f.write(content + "\n")
    if args.page:
        with open(args.page, "w") as f:
            f.write(page(rows, args.sizes) + "\n")
    print(text(tables))
    wrong = [row for row in rows if "error" in row]
    for row in wrong:
        print(*key(row), row["error"], sep=" ", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
