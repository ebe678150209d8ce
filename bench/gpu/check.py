#!/usr/bin/env python3
"""Checks and times Lightpath on a GPU: make gpu-check. Without a GPU it makes the checks that the driver's stub allows.

    check.py [--out DIR] [--only PART,...] [--skip PART,...] [--stub] [--seconds N]

Every part has a limit of its own, so that a part that hangs costs itself only. The table says for each result what was
asked for, what was skipped, and why. It is in DIR (build/gpu/check) as report.txt, report.md and report.json, with a
log for each command. The exit status is 1 if anything failed or fell short."""

import argparse
import concurrent.futures
import dataclasses
import datetime
import json
import os
import signal
import sys
import time
import traceback

import basics
import clients
import model
import report
import timing
from context import ROOT, Context, fail, skip, why_no_gpu
from report import Row
from runner import Budget, end_all

# Groups follow each other, the most valuable first; the parts of one group run side by side. A timed part runs alone.
GROUPS = [
    {"machine": basics.machine},
    {"build": basics.build},
    {"model": model.costs},
    {"kernels": timing.kernels},
    {"collectives": timing.collectives},
    {"driver": basics.driver_suite, "kernel-tests": basics.kernel_suite, "symbols": clients.symbols},
    {"mps": timing.mps},
    {"nvidia": timing.beside_nvidia},
    {"progress": timing.progress},
    {"nccl-tests": clients.nccl_tests, "torch": clients.torch, "cupy": clients.cupy, "planes": timing.planes},
    {"stub": basics.stub_suite},
]
PARTS = [name for group in GROUPS for name in group]
# Limits of the parts, in seconds. The longest parts of all groups together, without builds and without the stub, take
# less than ten minutes.
LIMITS = {
    "machine": 20,
    "build": 300,
    "model": 40,
    "kernels": 60,
    "collectives": 130,
    "mps": 40,
    "nvidia": 70,
    "progress": 40,
    "stub": 240,
}
LIMIT = 80


def run_part(context, name, part):
    """The rows of a part. If the part raises, one row reports that."""
    if context.dead:
        return [skip(name, "all of it", context.dead)]
    if context.budget.left() < 1:
        return [skip(name, "all of it", "no time was left")]
    begun = time.monotonic()
    try:
        rows = part(context.within(LIMITS.get(name, LIMIT)))
    except Exception as error:  # noqa: BLE001, whatever breaks one part must not end the others
        traceback.print_exc()
        rows = [fail(name, "all of it", f"{type(error).__name__}: {error}")]
    print(f"{name}: {time.monotonic() - begun:.0f} s", flush=True)
    return rows


def run_all(context, groups):
    rows = []
    for group in groups:
        with concurrent.futures.ThreadPoolExecutor(max_workers=len(group)) as pool:
            for part in [pool.submit(run_part, context, name, part) for name, part in group.items()]:
                rows += part.result()
        rows += examine(context)
    return rows


def examine(context):
    """After commands that did not end: does the driver still answer? If not, no later part can say anything."""
    if not context.hung or context.dead or context.stub:
        return []
    names, context.hung[:] = " ".join(context.hung), []
    why = why_no_gpu()
    if why is None:
        return [Row("machine", "the driver answers", note=f"after {names} did not end")]
    context.dead = f"{why}, since {names} did not end"
    return [fail("machine", "the driver answers", context.dead)]


def chosen(only, without):
    """The groups with the selected parts only."""
    names = set(only.split(",") if only else PARTS) - set(without.split(",") if without else [])
    unknown = names - set(PARTS) | (set((without or "").split(",")) - set(PARTS) - {""})
    if unknown:
        raise SystemExit(f"check.py: no part {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    groups = [{n: p for n, p in group.items() if n in names} for group in GROUPS]
    return [g for g in groups if g]


def write(context, rows, seconds):
    date = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    where = "over the stub of the driver, where times mean nothing" if context.stub else "on a GPU"
    head = f"Lightpath {where}, {date}, {seconds:.0f} s"
    texts = {
        "report.txt": f"{head}\n\n{report.text(rows)}\n",
        "report.md": f"{head}\n\n{report.markdown(rows)}\n",
        "report.json": json.dumps(
            {
                "date": date,
                "stub": context.stub,
                "machine": context.machine,
                "rows": [dataclasses.asdict(r) for r in rows],
            },
            indent=1,
        ),
    }
    for name, text in texts.items():
        with open(os.path.join(context.out, name), "w") as f:
            f.write(text)
    return texts["report.txt"]


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--out", default=os.path.join(ROOT, "build", "gpu", "check"), help="directory for logs and reports"
    )
    parser.add_argument("--only", help=f"parts to run, of {', '.join(PARTS)}")
    parser.add_argument("--skip", help="parts to leave out")
    parser.add_argument("--stub", action="store_true", help="over the stub of the driver, also where there is a GPU")
    parser.add_argument("--seconds", type=float, default=570, help="that everything may take")
    args = parser.parse_args(argv)
    groups = chosen(args.only, args.skip)
    out = os.path.abspath(args.out)
    os.makedirs(out, exist_ok=True)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end_all)
    begun = time.monotonic()
    context = Context(out, Budget(args.seconds), args.stub)
    rows = run_all(context, groups)
    print("\n" + write(context, rows, time.monotonic() - begun))
    return 1 if report.failed(rows) else 0


if __name__ == "__main__":
    sys.exit(main())
