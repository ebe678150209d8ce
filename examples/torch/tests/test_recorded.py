"""An unmodified training is recorded, and its trace explained."""

import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

import ranks

import launch

FABRIC = """version: 1
name: recorded
ranks: 2
planes:
  - {name: p0, bandwidth: 10Gbps, ocs: ocs0}
  - {name: p1, bandwidth: 10Gbps, ocs: ocs0}
ocs:
  - {name: ocs0, driver: emulator, endpoint: "unix:/nowhere", reconfig: 1ms}
costs: {alpha: 5us, hop: 1us}
"""


class Recorded(unittest.TestCase):
    def test_training(self):
        ranks.require_library()
        command = launch.command_path()
        program = os.path.join(launch.HERE, "train.py")
        with tempfile.TemporaryDirectory() as directory:
            trace, fabric = os.path.join(directory, "trace.json"), os.path.join(directory, "fabric.yaml")
            with open(fabric, "w") as f:
                f.write(FABRIC)
            done = subprocess.run(
                [
                    command,
                    "iteration",
                    "record",
                    "-o",
                    trace,
                    "--",
                    command,
                    "run",
                    "-n",
                    "2",
                    "--",
                    sys.executable,
                    program,
                    "--ways",
                    "lightpath:ddp",
                    "--hidden",
                    "512",
                    "--bucket-mb",
                    "0.25",
                    "--steps",
                    "15",
                ],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                timeout=600,
            )
            self.assertEqual(done.returncode, 0, done.stderr)
            found = re.search(r"(\d+) iterations of (\d+) calls", done.stderr)
            self.assertTrue(found, done.stderr)
            self.assertGreaterEqual(int(found[1]), 10)
            with open(trace) as f:
                recorded = json.load(f)
            self.assertEqual(recorded["communicators"][0]["groups"], [[0, 1]])
            self.assertEqual(len(recorded["calls"]), int(found[2]))
            self.assertGreaterEqual(len(recorded["calls"]), 2)
            explained = subprocess.run(
                [command, "iteration", "explain", trace, "--fabric", fabric, "--time-limit", "1s"],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                timeout=600,
            )
            self.assertEqual(explained.returncode, 0, explained.stderr)
            self.assertIn("An iteration takes", explained.stdout)
