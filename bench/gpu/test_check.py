"""Tests of the check itself: its conclusions from given output. python3 -m unittest"""

import contextlib
import io
import os
import tempfile
import time
import unittest
from unittest import mock

import check
import clients
import context
import modelled
import report
import timing
import traffic
from context import Context, lost
from report import FAILED, OK, SHORT, SKIPPED, Row
from runner import Budget, run

PERF = """[0] # nccl-tests version 2.19.6
[0] #       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong
[0]            8             2     float     sum      -1     9.07    0.00    0.00       0     9.03    0.00    0.00       0
[0]          512           128     float    prod      -1     9.11    0.06    0.06       0     9.10    0.06    0.06       0
[0] # Out of bounds values : 3 FAILED
"""


class WithoutGPU(Context):
    """A context that has asked no driver."""

    def __init__(self, out, seconds=60):
        self.out, self.budget, self.stub, self.no_gpu = out, Budget(seconds), True, "no GPU"
        self.machine, self.found, self.hung, self.dead = {}, {}, [], None


class WithGPU(WithoutGPU):
    """A context that believes in a GPU."""

    def __init__(self, out, seconds=60):
        super().__init__(out, seconds)
        self.stub, self.no_gpu = False, None


class WithDirectory(unittest.TestCase):
    def setUp(self):
        held = tempfile.TemporaryDirectory()
        self.addCleanup(held.cleanup)
        self.directory = held.name

    def log(self, name="log"):
        return os.path.join(self.directory, name)


class Commands(WithDirectory):
    def test_outcomes(self):
        self.assertTrue(run(["true"], self.log(), 60).ok)
        outcome = run(["sh", "-c", "echo fine; echo 'lightpath: rank 1: lost' >&2; echo later; exit 3"], self.log(), 60)
        self.assertEqual(outcome.code, 3)
        self.assertEqual(outcome.why(), "exit status 3: lightpath: rank 1: lost")
        outcome = run(
            ["sh", "-c", "echo '[0] an error'; echo 'lightpath: bench: a rank failed: rank 0: why'; exit 1"],
            self.log(),
            60,
        )
        self.assertEqual(outcome.why(), "exit status 1: lightpath: bench: a rank failed: rank 0: why")
        self.assertEqual(run(["sh", "-c", "echo one; echo two; exit 1"], self.log(), 60).why(), "exit status 1: two")
        self.assertFalse(run(["/nonexistent/program"], self.log(), 60).ok)

    def test_environment(self):
        self.assertIn("PLANES=7", run(["env"], self.log(), 60, {"PLANES": "7"}).text())

    def begun(self, command, limit):
        """The outcome of a command that writes a process's number, and the number. It retries with more time."""
        pid_file = self.log("pid")
        while True:
            with open(pid_file, "w"):
                pass
            outcome = run(["sh", "-c", command.format(pid_file)], self.log(), limit)
            with open(pid_file) as f:
                line = f.read()
            if line.endswith("\n"):
                return outcome, int(line)
            self.assertLess(limit, 60, "nothing was begun")
            limit *= 4

    def test_limit_ends_all_processes(self):
        """A command past its limit ends with its children. Processes that a command leaves behind end, too."""
        for limit, command in ((1, "sleep 600 & echo $! >{}; wait"), (60, "sleep 600 >/dev/null & echo $! >{}")):
            outcome, pid = self.begun(command, limit)
            self.assertEqual(outcome.code, 0 if limit == 60 else None)
            for _ in range(3000):
                if ended(pid):
                    break
                time.sleep(0.01)
            self.assertTrue(ended(pid), f"process {pid} lives on")
        self.assertIn("not done after", run(["sleep", "600"], self.log(), 0.1).why())
        self.assertIn("no time was left", run(["true"], self.log(), 0).why())

    def test_budget(self):
        now = [100.0]
        budget = Budget(30, clock=lambda: now[0])
        now[0] += 12
        self.assertEqual(budget.left(), 18)


def ended(pid):
    """Whether a process has ended. A zombie has ended."""
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True


class Rows(unittest.TestCase):
    def test_share_of_the_limit(self):
        self.assertEqual(Row("p", "w", number=95, unit="GB/s", limit=100, asked=0.9).status, OK)
        self.assertEqual(Row("p", "w", number=85, unit="GB/s", limit=100, asked=0.9).status, SHORT)
        self.assertEqual(Row("p", "w", asked=0.9).status, SHORT, "nothing was measured")
        self.assertEqual(Row("p", "w", number=20, unit="us", limit=10).fraction, 0.5, "of times less is more")
        self.assertIsNone(Row("p", "w", number=0, unit="us", limit=10).fraction)

    def test_what_fails_the_check(self):
        self.assertFalse(report.failed([Row("p", "w"), Row("p", "w", SKIPPED)]))
        for status in (FAILED, SHORT):
            self.assertTrue(report.failed([Row("p", "w"), Row("p", "w", status)]))

    def test_tables(self):
        rows = [Row("p", "a|b", number=1234.5, unit="us"), Row("q", "c", FAILED, note="why")]
        self.assertEqual(report.text(rows).splitlines()[2].split(), ["p", "a|b", "ok", "1234", "us"])
        self.assertIn("| p | a\\|b | ok | 1234 us |", report.markdown(rows))
        self.assertEqual(len(report.markdown(rows).splitlines()), 4)


class Limits(unittest.TestCase):
    def test_traffic(self):
        """Two ranks, S bytes: both read and write S for AllReduce; 1000 GB/s are 250 of algbw, and as much of busbw."""
        self.assertEqual(traffic.moved("allreduce", 2, 10), 40)
        self.assertEqual(traffic.busbw_limit("allreduce", 2, 1000), 250)
        self.assertEqual(traffic.busbw_limit("allreduce", 4, 1000), 187.5)
        self.assertEqual(traffic.busbw_limit("alltoall", 4, 1000), 93.75)
        self.assertEqual(traffic.busbw_limit("sendrecv", 2, 1000), 250)
        self.assertEqual(traffic.busbw_limit("allgather", 4, 1000), 150)
        self.assertEqual(traffic.busbw_limit("reducescatter", 4, 1000), 150)
        self.assertEqual(traffic.busbw_limit("broadcast", 4, 1000), 250)

    def test_every_collective_has_traffic(self):
        for collective in ["allreduce", "alltoall", *timing.OTHERS]:
            self.assertGreater(traffic.busbw_limit(collective, 2, 1000), 0)


class Modelled(unittest.TestCase):
    TABLE = {"memory": 1000, "launch": 4000, "memory_operation": 700}

    def test_limits(self):
        """Small calls: two words and a kernel. Large ones: the memory's time. Turns of processes come on top."""
        limit = lambda *args: modelled.limit_us(self.TABLE, *args)  # noqa: E731
        self.assertEqual(limit("allreduce", 1, "threads", "8"), 4)
        self.assertEqual(limit("allreduce", 2, "threads", "8"), 5.4)
        self.assertAlmostEqual(limit("allreduce", 2, "threads", "1G"), 4 * (1 << 30) / 1e6)
        self.assertEqual(limit("sendrecv", 4, "sliced", "8"), 305.4)

    def test_the_constants_are_those_of_the_stub(self):
        table = modelled.constants()
        self.assertGreater(table["memory"], table["interconnect"])
        self.assertTrue(set(self.TABLE) <= set(table))

    def test_counts_are_those_of_the_busiest_rank(self):
        point = {"collective": "allreduce", "ranks": 2, "mode": "threads", "memory": "device", "size": "8"}
        line = {
            "interval": 1,
            "functions": {"cuLaunchKernel": 40, "cuCtxGetCurrent": 60},
            "calls": 100,
            "memory_operations": 240,
        }
        got = modelled.result(point, self.TABLE, 10.8, [{"pid": 1, "calls": 999}, {**line, "calls": 90}, line])
        self.assertEqual((got["calls"], got["memory_operations"], got["functions"]["cuLaunchKernel"]), (5, 12, 2))
        self.assertAlmostEqual(got["share"], 0.5)

    def test_before_and_now(self):
        point = {"collective": "allreduce", "ranks": 2, "mode": "threads", "memory": "device", "size": "8"}
        row = {
            **point,
            "time_us": 10.8,
            "share": 0.5,
            "memory_operations": 12,
            "functions": {"cuLaunchKernel": 2, "cuEventRecord": 1, "cuStreamGetId": 3},
        }
        old = {**row, "time_us": 21.6, "share": 0.25}
        cells = [cells for _, cells in modelled.compact([row], [old], ["8", "1M"])]
        self.assertEqual(cells[0][1], ["allreduce", "2", "threads", "21.6>10.8", "-"])
        self.assertEqual([c[1][3] for c in cells[1:]], ["25>50", "3/12"])
        self.assertEqual(modelled.cell({**point, "error": "hangs"}, None, str), "-")
        page = modelled.page([row], ["8", "1M"])
        self.assertIn(" 10.8", page)
        self.assertTrue(all(len(line) <= 120 for line in page.splitlines()))

    def test_other_collectives(self):
        """A table has the collectives that were asked for, in that order."""
        point = {"ranks": 2, "mode": "threads", "memory": "device", "size": "8", "error": "hangs"}
        rows = [{**point, "collective": c} for c in ("reduce", "allgather")]
        _, cells = next(modelled.compact(rows, [], ["8"]))
        self.assertEqual([line[0] for line in cells[1:]], ["reduce", "allgather"])

    def test_reads_the_other_build_first(self):
        """A table.json that is missing fails before minutes of measuring."""
        with mock.patch("modelled.measure", side_effect=AssertionError("measured")):
            with self.assertRaises(FileNotFoundError):
                modelled.main(["--before", "/nonexistent/table.json"])

    def test_a_block_of_alltoall(self):
        self.assertEqual(modelled.asked("alltoall", 8, "8"), 64)
        self.assertEqual(modelled.asked("allreduce", 8, "64K"), 65536)


class Verdicts(unittest.TestCase):
    def test_nccl_tests(self):
        self.assertEqual(clients.verdict(PERF), (3, 2))
        self.assertEqual(clients.verdict(PERF.replace(": 3 FAILED", ": 0 OK")), (0, 2))
        self.assertEqual(clients.verdict("Test CUDA failure"), (None, 0))

    def test_training(self):
        curve = {"loss": [4.0, 3.0, 2.0], "step_ms": 10.0}
        near = {"loss": [4.0, 3.00001, 2.0], "step_ms": 5.0}
        self.assertEqual(clients.trained("w", near, curve).status, OK)
        for loss in ([4.0, 3.1, 2.0], [4.0, 4.0, 4.0], [4.0, float("nan"), 2.0]):
            self.assertEqual(clients.trained("w", {"loss": loss, "step_ms": 5.0}, curve).status, FAILED, loss)
        self.assertEqual(
            clients.trained("w", {"loss": [4.0] * 3, "step_ms": 1.0}, {"loss": [4.0] * 3, "step_ms": 1.0}).status,
            FAILED,
            "nothing was learned",
        )

    def test_progress(self):
        text = (
            "goos: linux\nBenchmarkProgress/ranks=1-2 \t 100\t 16.35 added-us\t 8.6 callback-p99-us\t 1.9 callback-us\n"
            "BenchmarkIdle/none-2 \t 1\t 33.00 cpu-us/s\nPASS\n"
        )
        found = timing.metrics(text)
        self.assertEqual(
            found["BenchmarkProgress/ranks=1-2"], {"added-us": 16.35, "callback-p99-us": 8.6, "callback-us": 1.9}
        )
        self.assertEqual(found["BenchmarkIdle/none-2"], {"cpu-us/s": 33})
        ways = {f"{way}{p}-us": 1.0 for way in ("hand", "callback", "goroutine", "staged") for p in ("", "-p99")}
        for stub, us, status in ((False, 9.9, OK), (False, 10.1, SHORT), (True, 99.0, OK)):
            context = WithoutGPU(tempfile.gettempdir())
            context.stub = stub
            row = timing.added(context, "BenchmarkProgress/ranks=1-2", {**ways, "added-us": us})
            self.assertEqual((row.status, row.what), (status, "8 B staged beside by hand, ranks=1: added"))
            self.assertEqual(
                [timing.idle(context, "w", used).status for used in (33, 1001)], [OK, OK if stub else FAILED]
            )

    def test_beside_nvidia(self):
        mine = lambda: Row("p", "mine", number=20, unit="us")  # noqa: E731
        rows = timing.compared(mine(), Row("p", "theirs", number=10, unit="us"))
        self.assertEqual((rows[0].fraction, rows[0].status), (0.5, OK))
        rows = timing.compared(mine(), Row("p", "theirs", FAILED, note="duplicate GPU"))
        self.assertEqual([r.status for r in rows], [OK, SKIPPED])
        rows = timing.compared(Row("p", "mine", FAILED), Row("p", "theirs", number=10, unit="us"))
        self.assertEqual(rows[0].status, FAILED)


class Parts(WithDirectory):
    def run_all(self, groups, seconds=60):
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            return check.run_all(WithoutGPU(self.directory, seconds), groups)

    def test_a_part_that_breaks_is_one_row(self):
        def breaks(_):
            raise KeyError("loss")

        rows = self.run_all([{"a": breaks, "b": lambda _: [Row("b", "w")]}, {"c": lambda _: [Row("c", "w")]}])
        self.assertEqual([(r.part, r.status) for r in rows], [("a", FAILED), ("b", OK), ("c", OK)])
        self.assertIn("KeyError", rows[0].note)

    def test_no_time_left(self):
        rows = self.run_all([{"a": lambda _: [Row("a", "w")]}], seconds=0)
        self.assertEqual([(r.status, r.note) for r in rows], [(SKIPPED, "no time was left")])

    def test_a_part_has_its_own_limit(self):
        """Later parts see the results of a part. A part takes no longer than its limit."""
        seen = []

        def first(c):
            c.found["copy_gbs"] = 7
            return [Row("kernels", "w", number=c.budget.left())]

        def second(c):
            seen.append(c.copy_gbs)
            return [Row("collectives", "w", number=c.budget.left())]

        rows = self.run_all([{"kernels": first}, {"collectives": second}], seconds=1000)
        self.assertEqual(seen, [7])
        self.assertTrue(all(0 < r.number <= check.LIMITS[r.part] for r in rows), rows)

    def test_commands_without_time_are_skipped(self):
        """A command that its part's end cuts off is skipped, and so are later ones. A command that runs past its own
        limit has failed."""
        context = WithGPU(self.directory, seconds=0.2)
        rows = [
            lost("p", "w", context.run("first", ["sleep", "600"], 20)),
            lost("p", "w", context.run("second", ["true"], 20)),
        ]
        self.assertEqual([(r.status, "no time was left" in r.note) for r in rows], [(SKIPPED, True)] * 2)
        self.assertEqual(context.hung, [])
        context = WithGPU(self.directory)
        row = lost("p", "w", context.run("hangs", ["sh", "-c", "echo lightpath: rank 1 waits; sleep 600"], 0.3))
        self.assertEqual((row.status, context.hung), (FAILED, ["hangs"]))
        self.assertIn("rank 1 waits", row.note)
        self.assertEqual(lost("p", "w", context.run("fails", ["false"])).status, FAILED)

    def test_a_hanging_command(self):
        """If the driver still answers, the check goes on. If not, the rest is skipped, and the reason names it."""
        hangs = lambda c: [lost("a", "w", c.run("stuck", ["sleep", "600"], 0.1))]  # noqa: E731
        groups = [{"a": hangs}, {"b": lambda _: [Row("b", "w")]}]
        for why, want in ((None, [FAILED, OK, OK]), ("the CUDA driver does not answer", [FAILED, FAILED, SKIPPED])):
            context = WithGPU(self.directory)
            with mock.patch("check.why_no_gpu", return_value=why), contextlib.redirect_stdout(io.StringIO()):
                rows = check.run_all(context, groups)
            self.assertEqual([r.status for r in rows], want)
            self.assertIn("stuck", rows[1].note)
            self.assertTrue(report.failed(rows))
        self.assertIn("does not answer, since stuck did not end", rows[2].note)

    def test_limits(self):
        """All groups take less than ten minutes, without builds and the stub. A library that waits says so first."""
        groups = [g for g in check.GROUPS if not {"build", "stub"} & set(g)]
        self.assertLessEqual(sum(max(check.LIMITS.get(name, check.LIMIT) for name in g) for g in groups), 600)
        self.assertLess(context.LIBRARY_TIMEOUT, context.COMMAND_LIMIT)
        settings = WithGPU(self.directory).run("env", ["env"]).text()
        self.assertIn(f"LIGHTPATH_TIMEOUT={context.LIBRARY_TIMEOUT}s", settings)

    def test_choice(self):
        names = [n for g in check.chosen("torch,kernels", None) for n in g]
        self.assertEqual(names, ["kernels", "torch"])
        self.assertNotIn("torch", [n for g in check.chosen(None, "torch") for n in g])
        for only, without in (("gpu", None), (None, "gpu")):
            with self.assertRaisesRegex(SystemExit, "no part gpu"):
                check.chosen(only, without)

    def test_reports(self):
        context = WithoutGPU(self.directory)
        table = check.write(context, [Row("a", "w", FAILED, note="why")], 3)
        self.assertIn("times mean nothing", table)
        for name in ("report.txt", "report.md", "report.json"):
            with open(self.log(name)) as f:
                self.assertIn("why", f.read())


class Versions(WithDirectory):
    def test_numbers(self):
        self.assertEqual(context.version("NVIDIA UNIX x86_64 580.65.06  Sun"), (580, 65, 6))
        self.assertIsNone(context.version("none"))
        self.assertEqual([context.nccl_code(n) for n in (23007, 22105, 2708)], [(2, 30, 7), (2, 21, 5), (2, 7, 8)])

    def test_old_driver(self):
        """NVIDIA's libraries and their users are skipped. Lightpath's own parts are not."""
        gpu = WithGPU(self.directory)
        for found, reason in (
            ((550, 54, 15), "driver 550.54.15 is older than 580"),
            ((580, 65, 6), None),
            (None, None),
        ):
            with mock.patch("context.driver_version", return_value=found):
                self.assertEqual(context.old_driver(), reason)
        with (
            mock.patch("context.driver_version", return_value=(550, 54, 15)),
            mock.patch("timing.real_nccl", return_value="/lib"),
            mock.patch("clients.module_version", return_value="2.11"),
        ):  # fmt: skip
            for part in (timing.beside_nvidia, clients.nccl_tests, clients.torch, clients.cupy):
                self.assertEqual(
                    [(r.status, r.note) for r in part(gpu)], [(SKIPPED, "driver 550.54.15 is older than 580")]
                )

    def test_old_nccl(self):
        gpu = WithGPU(self.directory)
        for found, words in (((2, 27, 3), "NCCL 2.27.3 is older than 2.30"), (None, "does not say its version")):
            with (
                mock.patch("context.nccl_version", return_value=found),
                mock.patch("timing.real_nccl", return_value="/lib"),
            ):
                (row,) = timing.beside_nvidia(gpu)
                self.assertEqual(row.status, SKIPPED)
                self.assertIn(words, row.note)
        with mock.patch("context.nccl_version", return_value=(2, 30, 7)):
            self.assertIsNone(context.old_nccl("/lib"))
        self.assertIsNone(context.nccl_version("/nonexistent"))


class MPS(WithDirectory):
    def control(self, script):
        path = os.path.join(self.directory, "nvidia-cuda-mps-control")
        with open(path, "w") as f:
            f.write(f"#!/bin/sh\n{script}\n")
        os.chmod(path, 0o755)
        return path

    def test_daemon_ends_with_the_part(self):
        path = self.control(f'echo $$ >{self.log("pid")}; touch "$CUDA_MPS_PIPE_DIRECTORY/control"; sleep 600')
        with timing.daemon(path) as env, open(self.log("pid")) as f:
            pid = int(f.read())
            self.assertFalse(ended(pid))
            self.assertTrue(os.path.isdir(env["CUDA_MPS_LOG_DIRECTORY"]))
        self.assertTrue(ended(pid))
        self.assertFalse(os.path.exists(env["CUDA_MPS_PIPE_DIRECTORY"]))

    def test_skipped(self):
        gpu = WithGPU(self.directory)
        for control, words in ((None, "no nvidia-cuda-mps-control"), (self.control("exit 1"), "does not start")):
            with mock.patch("timing.tool", return_value=control):
                (row,) = timing.mps(gpu)
            self.assertEqual(row.status, SKIPPED)
            self.assertIn(words, row.note)


if __name__ == "__main__":
    unittest.main()
