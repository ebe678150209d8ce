"""Costs of operations on this device, beside the table of the model (cgo/cuda/stub/constants.h)."""

import json
import os
import shutil

from context import LIBRARY, ROOT, lost, skip
from report import Row

SHARED = [*(f"cgo/cuda/tests/{name}.c" for name in ("gpu", "tests", "vector")), "cgo/rank/data.c", "cgo/rank/call.c"]
FLAGS = ["-std=gnu11", "-O2", "-Icgo/front", "-pthread"]
ARCHITECTURES = ["80", "90", "100"]  # with machine code of the kernels
START_MS = 300  # the target for a first communicator


def compiled(c, name):
    """A program of cgo/cuda/tests, or None and the failure."""
    program, lib = os.path.join(c.out, name), os.path.join(ROOT, "lib")
    command = [
        os.environ.get("CC", "cc"), *FLAGS, "-o", program, f"cgo/cuda/tests/{name}.c", *SHARED, f"-L{lib}", "-lnccl",
        f"-Wl,-rpath,{lib}", "-lm", "-ldl",
    ]  # fmt: skip
    built = c.run(f"{name}-build", command)
    return (program, None) if built.ok else (None, lost("model", name, built))


def clock(c, name):
    """The environment in which the stub models time, for a program that has not run before. Empty on a device."""
    if not c.stub:
        return {}
    share = os.path.join(c.out, name)
    shutil.rmtree(share, ignore_errors=True)
    os.makedirs(share)
    return {"STUB_CUDA_CLOCK": os.path.join(share, "report"), "STUB_CUDA_SHARE": share, "STUB_CUDA_SKIP": "65536"}


def lines(done):
    return [json.loads(line) for line in done.text().splitlines() if line.startswith("{")]


def costs(c):
    compiler = os.environ.get("CC", "cc")
    if not (shutil.which(compiler) and os.path.exists(LIBRARY)):
        return [skip("model", "costs of operations", "no C compiler, or no library")]
    return operations(c) + starts(c)


def operations(c):
    program, wrong = compiled(c, "costs")
    if wrong:
        return [wrong]
    note = "; no GPU: the model measures itself" if c.stub else ""
    done = c.run("costs", [program, *(["exact"] if c.stub else [])], env=clock(c, "share"))
    if not done.ok:
        return [lost("model", "costs of operations", done)]
    return [
        Row(
            "model",
            f"{r['name']}: {r['what']}",
            number=r["measured"],
            unit=r["unit"],
            note=f"model: {r['model']:g}{note}",
        )
        for r in lines(done)
    ]


def starts(c):
    """The time until the first communicator is there. With machine code it needs no compiler of the driver."""
    program, wrong = compiled(c, "start")
    if wrong:
        return [wrong]
    text = os.path.join(c.out, "ptx")
    os.makedirs(text, exist_ok=True)
    env = {}
    if c.stub:
        joined = c.run(
            "join", ["python3", "cgo/cuda/kernels/join.py", "cgo/cuda/kernels/kernels.zip", text, *ARCHITECTURES]
        )
        if not joined.ok:
            return [lost("model", "start", joined)]
        env = {"STUB_CUDA_PTX": text, "STUB_CUDA_ARCH": "90"}
    rows = []
    for how, ranks in (("processes", 1), ("threads", 2), ("processes", 2)):
        what = f"start, {ranks} {how}"
        done = c.run(f"start-{how}-{ranks}", [program, how, ranks], env={**env, **clock(c, f"share-{how}-{ranks}")})
        if not done.ok:
            rows.append(lost("model", what, done))
            continue
        for r in lines(done):
            first = r["what"].startswith("first")
            note = "modelled, without the CPU's own work" if c.stub else ""
            rows.append(
                Row(
                    "model",
                    f"start: {r['what']}",
                    number=r["measured"],
                    unit=r["unit"],
                    limit=START_MS if first else None,
                    note=note,
                )
            )
    return rows
