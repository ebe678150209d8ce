"""Costs of operations on this device, beside the table of the model (cgo/cuda/stub/constants.h)."""

import json
import os
import shutil

from context import LIBRARY, ROOT, fail, skip
from report import Row

SOURCES = [
    *(f"cgo/cuda/tests/{name}.c" for name in ("costs", "gpu", "tests", "vector")), "cgo/rank/data.c", "cgo/rank/call.c",
]  # fmt: skip
FLAGS = ["-std=gnu11", "-O2", "-Icgo/front", "-pthread"]


def costs(c):
    what = "costs of operations"
    compiler = os.environ.get("CC", "cc")
    if not (shutil.which(compiler) and os.path.exists(LIBRARY)):
        return [skip("model", what, "no C compiler, or no library")]
    program = os.path.join(c.out, "costs")
    lib = os.path.join(ROOT, "lib")
    built = c.run("costs-build", [compiler, *FLAGS, "-o", program, *SOURCES, f"-L{lib}", "-lnccl", f"-Wl,-rpath,{lib}", "-lm", "-ldl"], 60)
    if not built.ok:
        return [fail("model", what, built.why())]
    env, note = {}, ""
    if c.stub:  # the model measures itself
        share = os.path.join(c.out, "share")
        shutil.rmtree(share, ignore_errors=True)
        os.makedirs(share)
        env = {"STUB_CUDA_CLOCK": os.path.join(share, "report"), "STUB_CUDA_SHARE": share, "STUB_CUDA_SKIP": "65536"}
        note = "; no GPU: the model measures itself"
    done = c.run("costs", [program, *(["exact"] if c.stub else [])], 60, env)
    if not done.ok:
        return [fail("model", what, done.why())]
    rows = [json.loads(line) for line in done.text().splitlines() if line.startswith("{")]
    return [Row("model", f"{r['name']}: {r['what']}", number=r["measured"], unit=r["unit"], note=f"model: {r['model']:g}{note}") for r in rows]
