"""A job that loses ranks and gets one trains as if nothing had happened."""

import unittest

import ranks  # before the others: it says where they are

import elastic
import train


class Elastic(unittest.TestCase):
    def trains_on(self, *options):
        ranks.require_library()
        args = elastic.arguments(["-n", "3", "--steps", "18", "--kill", "4", "--kill", "8", "--join", "12", *options])
        results = elastic.run(args)
        sizes = results["elastic"]["ranks"]
        self.assertEqual((sizes[0], min(sizes), sizes[-1]), (3, 1, 2))
        self.assertLess(train.difference(results["steady"], results["elastic"]), 1e-4)

    def test_ranks_are_killed(self):
        self.trains_on()

    def test_ranks_are_killed_on_circuits(self):
        self.trains_on("--optical")


if __name__ == "__main__":
    unittest.main()
