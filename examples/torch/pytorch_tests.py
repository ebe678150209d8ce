#!/usr/bin/env python3
"""PyTorch's own tests of a backend, over Lightpath: torch.testing._internal.distributed of the wheel of PyTorch 2.

    pytorch_tests.py                      # all, over Gloo and over Lightpath, and how they compare
    pytorch_tests.py test_all_reduce_sum  # some, over Lightpath

A test reads the name of the backend to know whether it applies. Here both backends pass for Gloo and MPI, to which
PyTorch confines all_to_all on the CPU, and for NCCL in the tests that these two skip. Tests that want a GPU for each
rank get the CPU, where their calls allow it. Four ranks are forked for each test."""

import argparse
import contextlib
import importlib
import io
import logging
import os
import pathlib
import re
import sys
import tempfile
import time
import types
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import torch

RANKS, SECONDS = 4, 240  # seconds bound a hang
BACKENDS = "gloo", "lightpath"
TESTS = "torch.testing._internal.distributed.distributed_test"
# Beginnings of names, for which Lightpath has no answer.
REFUSED = {
    "test_monitored_barrier": "the test compares the words of Gloo's errors",
    "test_send_recv_any_source": "NCCL has no receive from any source",
}


class Backend(str):
    """The name of a backend, equal to those of the backends whose tests are to apply."""

    def __new__(cls, name, *passes_for):
        self = super().__new__(cls, name)
        self.passes_for = passes_for
        return self

    def __eq__(self, other):
        return str(self) == other or other in self.passes_for

    def __ne__(self, other):
        return not self == other

    def __hash__(self):  # for sets of names
        return hash(self.passes_for[0])


class OnCpu(torch.overrides.TorchFunctionMode):
    """Tensors and modules that were to be on a GPU are on the CPU."""

    def __torch_function__(self, function, _, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if self.on_gpu(kwargs.get("device")):
            kwargs["device"] = "cpu"
        if function is torch.Tensor.cuda:
            return args[0]
        if function is torch.Tensor.to and len(args) > 1 and self.on_gpu(args[1]):
            args = (args[0], "cpu", *args[2:])
        return function(*args, **kwargs)

    @staticmethod
    def on_gpu(device):
        return type(device) is int or str(device).startswith("cuda")


def without_gpus(common):
    """Lets tests run that want GPUs, or eight ranks."""
    ddp = torch.nn.parallel.DistributedDataParallel
    init = ddp.__init__
    ddp.__init__ = lambda self, *args, device_ids=None, output_device=None, **rest: init(self, *args, **rest)
    torch.cuda.set_device, torch.cuda.synchronize = (lambda *_: None), (lambda device=None: None)
    torch.cuda.current_device = lambda: 0
    common.skip_if_no_gpu = common.skip_if_small_worldsize = lambda test: test
    common.skip_if_lt_x_gpu = common.requires_nccl_version = lambda *_, **__: lambda test: test
    common.require_n_gpus_for_nccl_backend = common.nccl_skip_if_lt_x_gpu = common.skip_if_lt_x_gpu
    common.init_multigpu_helper = lambda size, _: {rank: [rank] for rank in range(size)}


def prepare(directory):
    """Sets what PyTorch's module of tests reads."""
    try:
        import expecttest  # noqa: F401
    except ImportError:  # torch wants its class alone, and these tests do without
        sys.modules["expecttest"] = types.SimpleNamespace(TestCase=unittest.TestCase)
    import lightpath.torch  # noqa: F401, registers the backend
    from torch.testing._internal import common_distributed as common

    common.DistTestCases.backend_feature["plugin"].add("lightpath")
    without_gpus(common)
    os.environ.update(
        WORLD_SIZE=str(RANKS), INIT_METHOD=f"file://{directory}/store", PYTORCH_PRINT_REPRO_ON_FAILURE="0",
        DISTRIBUTED_TESTS_DEFAULT_TIMEOUT=str(SECONDS),
    )  # fmt: skip


def tests(directory, *passes_for):
    """PyTorch's module of tests, for these names of backends, and a TestCase with all of them."""
    real, os.environ = os.environ, {**os.environ, "BACKEND": Backend("lightpath", *passes_for)}
    sys.modules.pop(TESTS, None)
    try:
        module = importlib.import_module(TESTS)
    finally:
        os.environ = real
    for profiled in (module.PROFILING_SUPPORTED_BACKENDS, module.SEND_RECV_PROFILING_SUPPORTED_BACKENDS):
        profiled.append("lightpath")
    module.Barrier.sync.__func__.__defaults__ = (None, SECONDS)

    class Distributed(module.TestDistBackend, module.DistributedTest._DistTestBase):
        def setUp(self):
            super().setUp()
            pathlib.Path(directory, "store").unlink(missing_ok=True)  # of a test that makes the first group again
            self._start_processes(torch.multiprocessing.get_context("fork").Process)

        @classmethod
        def _run(cls, *args, **kwargs):
            quiet = os.open(os.devnull, os.O_WRONLY)
            os.dup2(quiet, 1)
            os.dup2(quiet, 2)
            super()._run(*args, **kwargs)

        def run_test(self, name, pipe):
            with OnCpu():
                super().run_test(name, pipe)

    return module, Distributed, passes_for


def run(suites, name, backend):
    """(pass, skip or fail, why) of one test, by the first suite that does not skip it."""
    os.environ["BACKEND"] = backend
    for module, case, passes_for in suites:
        sys.modules[TESTS] = module  # for pickled objects
        # While they run, names of NCCL stand for things of GPUs.
        module.BACKEND = backend if "nccl" in passes_for else Backend(backend, *passes_for)
        result = unittest.TestResult()
        with contextlib.redirect_stdout(io.StringIO()):
            case(name).run(result)
        if not result.skipped:
            break
    if result.skipped:
        return "skip", result.skipped[0][1]
    bad = result.errors + result.failures
    lines = [line for _, text in bad for line in text.splitlines()]
    errors = dict.fromkeys(line for line in lines if re.match(r"[\w.]*(Error|Exception): (?!Process \d)", line))
    return ("fail", "; ".join(errors) or lines[-1]) if bad else ("pass", "")


def refusal(name):
    return next((why for beginning, why in REFUSED.items() if name.startswith(beginning)), None)


def main(names):
    if int(torch.__version__.split(".")[0]) < 2:
        sys.exit(f"pytorch_tests.py: the tests of torch {torch.__version__} do not run here: install torch 2")
    logging.disable(logging.INFO)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="lightpath-pytorch-") as directory:
        prepare(directory)
        suites = tests(directory, "gloo", "mpi"), tests(directory, "nccl")
        backends = BACKENDS[1:] if names else BACKENDS
        counts, bad = {}, []
        for name in names or unittest.defaultTestLoader.getTestCaseNames(suites[0][1]):
            began = time.monotonic()
            results = [run(suites, name, backend) for backend in backends]
            states = tuple(state for state, _ in results)
            counts[states] = counts.get(states, 0) + 1
            told = "  ".join(f"{backend} {state}" for backend, state in zip(backends, states))
            state, why = results[-1]
            refused = state == "fail" and refusal(name)
            print(f"{name}  {told}  {time.monotonic() - began:.1f} s  {(refused or why).strip()}", flush=True)
            if not refused and state != "pass" and (names or states[0] == "pass"):
                bad.append(name)
    for states, count in counts.items():
        print(f"{count} tests: {', '.join(map(' '.join, zip(backends, states)))}")
    sys.exit(f"failed over Lightpath: {' '.join(bad)}" if bad else 0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    main(parser.parse_args().names)
