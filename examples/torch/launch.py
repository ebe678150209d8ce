#!/usr/bin/env python3
"""Starts local ranks of a Python program as torchrun would, and with --optical an emulated optical fabric for them.

    launch.py -n 4 train.py --ways gloo:ddp,lightpath:ddp
    LIGHTPATH_TRANSPORT=tcp LIGHTPATH_PLANES=2 launch.py -n 4 train.py
    launch.py -n 4 --optical --planes 2 --bandwidth 1Gbps --reconfig 1ms train.py

Without --optical it is `lightpath run`. torchrun does as well: python3 -m torch.distributed.run --nproc_per_node 4
train.py"""

import argparse
import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import time

from lightpath import command_path

HERE = os.path.dirname(os.path.abspath(__file__))
# Longest wait for the switch to start.
SWITCH_SECONDS = 60

FABRIC = """version: 1
name: {name}
ranks: {ranks}
planes:
{planes}
ocs:
  - {{name: ocs0, driver: emulator, endpoint: "unix:{at}.sock", reconfig: {reconfig}}}
costs: {{{costs}}}
forwarding: true
{more}"""


def write_fabric(at, planes, name="torch", costs="alpha: 20us, hop: 5us", more="", **values):
    """Writes the fabric file {at}.yaml, and returns its path. planes: what is said of each plane."""
    rows = "\n".join(f"  - {{name: p{p}, {plane}, ocs: ocs0}}" for p, plane in enumerate(planes))
    with open(f"{at}.yaml", "w") as f:
        f.write(FABRIC.format(at=at, planes=rows, name=name, costs=costs, more=more, **values))
    return f"{at}.yaml"


@contextlib.contextmanager
def controller(at, more=""):
    """Runs the controller of the fabric {at}.yaml while the context lasts. more: lines of its configuration."""
    with open(f"{at}-ocsd.yaml", "w") as f:
        f.write(f"version: 1\nfabric: {at}.yaml\nsocket: {at}.sock\n{more}")
    with open(f"{at}.log", "w") as log:
        process = subprocess.Popen([command_path(), "ocsd", "--config", f"{at}-ocsd.yaml"], stdout=log, stderr=log)
    try:
        _wait_for(f"{at}.sock", process, f"{at}.log")
        yield
    finally:
        process.terminate()
        process.wait()


@contextlib.contextmanager
def optical_fabric(ranks, planes=2, bandwidth="1Gbps", reconfig="1ms"):
    """Runs an emulated fabric while the context lasts. Yields the environment for a job on it."""
    with tempfile.TemporaryDirectory(prefix="lightpath-torch-") as directory:
        at = os.path.join(directory, "fabric")
        fabric = write_fabric(at, [f"bandwidth: {bandwidth}"] * planes, ranks=ranks, reconfig=reconfig)
        with controller(at):
            yield {"LIGHTPATH_FABRIC": fabric}


def _wait_for(endpoint, switch, log):
    deadline = time.monotonic() + SWITCH_SECONDS
    while True:
        with socket.socket(socket.AF_UNIX) as s:
            with contextlib.suppress(OSError):
                s.connect(endpoint)
                return
        if switch.poll() is not None or time.monotonic() > deadline:
            with open(log) as f:
                raise RuntimeError(f"the emulated switch does not come up: {f.read().strip()}")
        time.sleep(0.01)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-n", "--ranks", type=int, default=4)
    parser.add_argument("--optical", action="store_true", help="over an emulated optical fabric")
    parser.add_argument("--planes", type=int, default=2, help="of the optical fabric")
    parser.add_argument("--bandwidth", default="1Gbps", help="of an optical plane")
    parser.add_argument("--reconfig", default="1ms", help="what switching takes")
    parser.add_argument("program", nargs=argparse.REMAINDER)
    args = parser.parse_args()
    if not args.program:
        parser.error("no program to start")
    program = args.program
    if not os.path.exists(program[0]):
        program[0] = os.path.join(HERE, program[0])
    fabric = contextlib.nullcontext({})
    if args.optical:
        fabric = optical_fabric(args.ranks, args.planes, args.bandwidth, args.reconfig)
    with fabric as environment:
        command = [command_path(), "run", "-n", str(args.ranks), "--preload=false", "--", sys.executable, *program]
        path = os.pathsep.join([HERE] + os.environ.get("PYTHONPATH", "").split(os.pathsep))
        sys.exit(
            subprocess.run(command, env={**os.environ, **environment, "PYTHONPATH": path.rstrip(os.pathsep)}).returncode
        )


if __name__ == "__main__":
    main()
