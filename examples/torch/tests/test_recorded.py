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

TRAINING = "train.py --ways lightpath:ddp --hidden 512 --bucket-mb 0.25 --steps 15"


class Recorded(unittest.TestCase):
    def iteration(self, *arguments):
        """Runs a command of lightpath iteration, which must succeed."""
        command = [launch.command_path(), "iteration", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, cwd=launch.HERE)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def test_training(self):
        ranks.require_library()
        with tempfile.TemporaryDirectory() as directory:
            trace = os.path.join(directory, "trace.json")
            fabric = launch.write_fabric(
                os.path.join(directory, "fabric"), ["bandwidth: 10Gbps"] * 2, ranks=2, reconfig="1ms"
            )
            run = [launch.command_path(), "run", "-n", "2", "--", sys.executable, *TRAINING.split()]
            said = self.iteration("record", "-o", trace, "--", *run).stderr
            found = re.search(r"(\d+) iterations of (\d+) calls", said)
            self.assertTrue(found, said)
            self.assertGreaterEqual(int(found[1]), 10)
            with open(trace) as f:
                recorded = json.load(f)
            self.assertEqual(recorded["communicators"][0]["groups"], [[0, 1]])
            self.assertEqual(len(recorded["calls"]), int(found[2]))
            self.assertGreaterEqual(len(recorded["calls"]), 2)
            explained = self.iteration("explain", trace, "--fabric", fabric, "--time-limit", "1s")
            self.assertIn("An iteration takes", explained.stdout)
