"""Facts about the machine that all parts of the check need, and the way in which parts run commands."""

import copy
import ctypes
import importlib.util
import json
import os
import shutil
import subprocess
import sys

from report import FAILED, SKIPPED, Row
from runner import Budget, run

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
STUB = os.path.join(ROOT, "build", "gpu", "libcuda")
LIBRARY = os.path.join(ROOT, "lib", "libnccl.so.2")


class Context:
    """stub: whether the driver is cgo/cuda/stub, whose times mean nothing. no_gpu is then the reason."""

    def __init__(self, out, budget, stub=False):
        self.out, self.budget = out, budget
        self.no_gpu = "the stub of the driver was asked for" if stub else why_no_gpu()
        self.stub = self.no_gpu is not None
        # Results that parts pass to later parts: facts of the machine, and "copy_gbs", the rate of a plain copy.
        self.machine, self.found = {}, {}

    def within(self, seconds):
        """A copy for a part with a limit of its own, at most the limit of the whole check."""
        part = copy.copy(self)
        part.budget = Budget(min(seconds, self.budget.left()))
        return part

    @property
    def copy_gbs(self):
        return self.found.get("copy_gbs")

    def path(self, *names):
        return os.path.join(ROOT, *names)

    def run(self, name, command, limit, env=None):
        """Runs a command of the check over this machine's driver, in the tree's root; its log is NAME.log."""
        settings = {"NCCL_MULTI_RANK_GPU_ENABLE": "1", "NCCL_DEBUG": "WARN", "LP_CUDA_REAL": "1"}
        if self.stub:  # which is then the driver that the loader finds
            settings |= {"LD_LIBRARY_PATH": STUB, "STUB_CUDA_DEVICES": "1"}
        limit = min(limit, self.budget.left())
        return run(command, os.path.join(self.out, f"{name}.log"), limit, {**settings, **(env or {})}, ROOT)

    def json(self, name):
        with open(os.path.join(self.out, name)) as f:
            return json.load(f)


def skip(part, what, why):
    return Row(part, what, SKIPPED, note=why)


def fail(part, what, why):
    return Row(part, what, FAILED, note=why)


def why_no_gpu():
    """Why there is no usable GPU, or None. Another process asks, so that this one never loads the driver."""
    ask = [sys.executable, "-c", f"import sys; sys.path.insert(0, {os.path.dirname(__file__)!r}); import context; context.ask_driver()"]
    try:
        done = subprocess.run(ask, capture_output=True, text=True, timeout=60, check=False)
    except subprocess.TimeoutExpired:
        return "the CUDA driver does not answer within 60 s"
    return None if done.returncode == 0 else (done.stdout + done.stderr).strip().splitlines()[-1]


def ask_driver():
    """Ends the process: with 0 if the driver has a device, else with a line that names the problem."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        sys.exit(f"no CUDA driver: {error}")
    if hasattr(driver, "stubFail"):
        sys.exit("the driver is the stub of cgo/cuda/stub")
    count = ctypes.c_int()
    code = driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count))
    if code or count.value < 1:
        sys.exit(f"the CUDA driver has no device (error {code})")


def real_nccl():
    """NVIDIA's libnccl.so.2, or None: LIGHTPATH_REAL_NCCL, else what the Python packages have."""
    named = os.environ.get("LIGHTPATH_REAL_NCCL")
    places = [named] if named else [os.path.join(p, "nvidia", "nccl", "lib", "libnccl.so.2") for p in sys.path]
    return next((p for p in places if p and os.path.exists(p)), None)


def module_version(name):
    """The version of a module, read without importing it; None: it is not installed."""
    import importlib.metadata as metadata

    if importlib.util.find_spec(name) is None:
        return None
    packages = metadata.packages_distributions().get(name, [name])
    try:
        return metadata.version(packages[0])
    except metadata.PackageNotFoundError:
        return "unknown"


def tool(name):
    """A program of the CUDA toolkit or the system, or None."""
    return shutil.which(name) or shutil.which(os.path.join(os.environ.get("CUDA_HOME", "/usr/local/cuda"), "bin", name))
