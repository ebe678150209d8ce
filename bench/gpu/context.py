"""Facts about the machine that all parts of the check need, and the way in which parts run commands."""

import copy
import ctypes
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys

from report import FAILED, SKIPPED, Row
from runner import Budget, run

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
STUB = os.path.join(ROOT, "build", "gpu", "libcuda")
LIBRARY = os.path.join(ROOT, "lib", "libnccl.so.2")
# A wait of the library ends with an error that names what is missing, before the command that waits is killed.
LIBRARY_TIMEOUT = 15
COMMAND_LIMIT = 20
STUB_PATIENCE = 3  # times both: the stub runs kernels on the CPU, beside other work
# NVIDIA's libraries for CUDA 13 need this driver. Ranks of an older NCCL cannot share a GPU.
OLDEST_DRIVER, OLDEST_NCCL = (580,), (2, 30)


class Context:
    """stub: whether the driver is cgo/cuda/stub, whose times mean nothing. no_gpu is then the reason."""

    def __init__(self, out, budget, stub=False):
        self.out, self.budget = out, budget
        self.no_gpu = "the stub of the driver was asked for" if stub else why_no_gpu()
        self.stub = self.no_gpu is not None
        # Results that parts pass to later parts: facts of the machine, and "copy_gbs", the rate of a plain copy.
        self.machine, self.found = {}, {}
        self.hung = []  # names of commands that did not end
        self.dead = None  # why the driver does not answer any more

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

    def run(self, name, command, limit=COMMAND_LIMIT, env=None):
        """Runs a command of the check over this machine's driver, in the tree's root; its log is NAME.log."""
        patience = STUB_PATIENCE if self.stub else 1
        settings = {
            "NCCL_MULTI_RANK_GPU_ENABLE": "1", "NCCL_DEBUG": "WARN", "LP_CUDA_REAL": "1",
            "LIGHTPATH_TIMEOUT": f"{LIBRARY_TIMEOUT * patience}s",
        }  # fmt: skip
        if self.stub:  # which is then the driver that the loader finds
            settings |= {"LD_LIBRARY_PATH": STUB, "STUB_CUDA_DEVICES": "1"}
        left, limit = self.budget.left(), limit * patience
        done = run(
            command,
            os.path.join(self.out, f"{name}.log"),
            min(limit, left),
            {**settings, **(env or {})},
            ROOT,
            cut=left < limit,
        )
        if done.hung:
            self.hung.append(name)
        return done

    def json(self, name):
        with open(os.path.join(self.out, name)) as f:
            return json.load(f)


def skip(part, what, why):
    return Row(part, what, SKIPPED, note=why)


def fail(part, what, why):
    return Row(part, what, FAILED, note=why)


def lost(part, what, done):
    """The row of a command that gave no result: skipped if the part had no more time, else failed."""
    if done.cut and done.code is None:
        return skip(part, what, f"no time was left: {done.why()}" if done.seconds else "no time was left")
    return fail(part, what, done.why())


def why_no_gpu():
    """Why there is no usable GPU, or None. Another process asks, so that this one never loads the driver."""
    ask = [
        sys.executable,
        "-c",
        f"import sys; sys.path.insert(0, {os.path.dirname(__file__)!r}); import context; context.ask_driver()",
    ]
    try:
        done = subprocess.run(ask, capture_output=True, text=True, timeout=COMMAND_LIMIT, check=False)
    except subprocess.TimeoutExpired:
        return f"the CUDA driver does not answer within {COMMAND_LIMIT} s"
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


def version(text):
    """The first version number in a text, as a tuple; None: there is none."""
    found = re.search(r"\d+(\.\d+)+", text or "")
    return tuple(map(int, found[0].split("."))) if found else None


def driver_version():
    try:
        with open("/proc/driver/nvidia/version") as f:
            return version(f.readline().split("Kernel Module", 1)[-1])
    except OSError:
        return None


def old_driver():
    """Why the driver is too old for NVIDIA's libraries, or None."""
    found = driver_version()
    if not found or found >= OLDEST_DRIVER:
        return None
    return f"driver {'.'.join(map(str, found))} is older than {OLDEST_DRIVER[0]}"


def nccl_version(path):
    """The version of a libnccl.so.2, or None. Another process asks, as in why_no_gpu."""
    ask = (
        "import ctypes, sys; v = ctypes.c_int(); ctypes.CDLL(sys.argv[1]).ncclGetVersion(ctypes.byref(v)); "
        "print(v.value)"
    )
    try:
        done = subprocess.run(
            [sys.executable, "-c", ask, path], capture_output=True, text=True, timeout=COMMAND_LIMIT, check=False
        )
        return nccl_code(int(done.stdout.split()[-1]))
    except (subprocess.TimeoutExpired, ValueError, IndexError):
        return None


def nccl_code(code):
    """The version that a number of ncclGetVersion stands for. It had fewer digits until 2.8."""
    minors = 100 if code >= 10000 else 10
    return code // 100 // minors, code // 100 % minors, code % 100


def old_nccl(path):
    """Why ranks of this libnccl.so.2 cannot share a GPU, or None."""
    found = nccl_version(path)
    if found is None:
        return f"{path} does not say its version"
    if found >= OLDEST_NCCL:
        return None
    return f"NCCL {'.'.join(map(str, found))} is older than {'.'.join(map(str, OLDEST_NCCL))}"


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
