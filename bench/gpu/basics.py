"""The machine, the build, and the suites of tests over the stub and over the driver."""

import os
import platform
import shutil
import subprocess

from context import COMMAND_LIMIT, LIBRARY, fail, lost, module_version, real_nccl, skip, tool
from report import OK, Row

BUILT = [
    "lib/libnccl.so.2", "lib/liblightpath.so", "bin/lightpath", "bin/lightpath-rank", "bin/lightpath-kernels",
    "build/gpu/cuda.test", "build/gpu/libcuda/libcuda.so.1",
]  # fmt: skip


def said(*command):
    """The first line of a command's output, or a dash."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_LIMIT, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return "-"
    return (done.stdout.strip().splitlines() or ["-"])[0]


def machine(c):
    gpu = c.no_gpu and f"none ({c.no_gpu})"
    if not c.stub:
        gpu = said(
            "nvidia-smi",
            "--query-gpu=name,memory.total,driver_version,clocks.max.sm,clocks.max.mem",
            "--format=csv,noheader",
        )
    with open("/proc/cpuinfo") as f:
        models = [line.split(":", 1)[1].strip() for line in f if line.startswith("model name")]
    nvcc = tool("nvcc")
    about = nvcc and subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=False).stdout
    facts = {
        "GPU": gpu,
        "processors": f"{os.cpu_count()} x {(models or [platform.machine()])[0]}",
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') >> 30} GiB",
        "system": f"{platform.release()}, glibc {platform.libc_ver()[1]}, load {os.getloadavg()[0]:.1f}",
        "toolkit": about.split("release ")[-1].split(",")[0] if nvcc else "none",
        "NVIDIA's NCCL": real_nccl() or "none",
        "Python": f"{platform.python_version()}, "
        f"torch {module_version('torch') or 'none'}, cupy {module_version('cupy') or 'none'}",
        "Lightpath": said("git", "describe", "--always", "--dirty"),
    }
    c.machine.update(facts)
    return [Row("machine", name, OK, note=value) for name, value in facts.items()]


def build(c):
    what = "libraries and programs"
    if shutil.which("go") and shutil.which("make"):
        done = c.run("build", ["make", *BUILT], 300)
        return [Row("build", what) if done.ok else lost("build", what, done)]
    missing = [name for name in BUILT if not os.path.exists(c.path(name))]
    if missing:
        return [fail("build", what, f"no Go here, and not built elsewhere: {' '.join(missing)} (make gpu-kit)")]
    return [Row("build", what, note="no Go here: as they were built elsewhere")]


def suite(c, name, what, env):
    """cgo/cuda/tests: every line of it is a test."""
    if not (shutil.which(os.environ.get("CC", "cc")) and os.path.exists(LIBRARY)):
        return [skip(name, what, "no C compiler, or no library")]
    limits = {} if c.stub else {"TEST_LIMIT": str(COMMAND_LIMIT)}  # of each test; the stub is slow on few processors
    done = c.run(name, ["cgo/cuda/tests/run.sh"], 240, {"LP_CUDA_OUT": f"build/gpu/{name}", **limits, **env})
    lines = done.text().splitlines()
    passed = sum(line.startswith("ok ") for line in lines)
    broken = [line.split()[1] for line in lines if line.startswith("FAIL ")]
    if broken:
        return [fail(name, what, f"failed: {' '.join(broken)}")]
    if not done.ok or not passed:
        return [lost(name, what, done)]
    return [Row(name, what, number=passed, unit="tests")]


def stub_suite(c):
    return suite(c, "stub", "device memory and streams, over the stub", {"LP_CUDA_REAL": ""})


def driver_suite(c):
    what = "device memory and streams, over the driver"
    return [skip("driver", what, c.no_gpu)] if c.stub else suite(c, "driver", what, {})


def kernel_suite(c):
    """The kernels against the CPU's, bit by bit."""
    what = "kernels of all types and operators"
    done = c.run("kernel-tests", [c.path("build", "gpu", "cuda.test"), "-test.v"], 60)
    passed = sum(line.startswith("--- PASS") for line in done.text().splitlines())
    if not done.ok or not passed:
        return [lost("kernel-tests", what, done)]
    return [Row("kernel-tests", what, number=passed, unit="tests", note="over the stub" if c.stub else "")]
