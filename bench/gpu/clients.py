"""Other projects' programs with Lightpath's library preloaded: nccl-tests, PyTorch's NCCL backend, CuPy's binding."""

import glob
import os
import re
import shutil
import sys

from context import LIBRARY, fail, lost, module_version, old_driver, old_nccl, real_nccl, skip, tool
from report import Row

PERF = [
    "all_reduce",
    "all_gather",
    "broadcast",
    "reduce_scatter",
    "reduce",
    "alltoall",
    "alltoallv",
    "scatter",
    "gather",
    "sendrecv",
    "hypercube",
]
# Losses of training over two backends differ by the order of additions.
LOSS_TOLERANCE = 1e-4
PYTHON_LIMIT = 60  # importing PyTorch and making the contexts of several ranks takes up to half of it
HERE = os.path.dirname(os.path.abspath(__file__))


def ranks(c, n, *program):
    """A command that starts n ranks of a program with Lightpath preloaded."""
    return [c.path("bin", "lightpath"), "run", "-n", n, "--", *program]


def nccl_tests(c):
    what = "all operations and types, results checked"
    source = os.environ.get("NCCL_TESTS_DIR", c.path("build", "gpu", "nccl-tests"))
    if c.stub or old_driver():
        return [skip("nccl-tests", what, c.no_gpu or old_driver())]
    if not os.path.isdir(source):
        return [
            skip("nccl-tests", what, f"no {source}: NCCL_TESTS_DIR names a checkout of NVIDIA/nccl-tests (docs/gpu.md)")
        ]
    programs = {name: os.path.join(source, "build", f"{name}_perf") for name in PERF}
    if not all(map(os.path.exists, programs.values())):
        problem = build_nccl_tests(c, source)
        if problem:
            return [problem]
    rows = []
    for name, program in programs.items():
        for n in (2, 4) if name in ("all_reduce", "alltoall") else (2,):
            rows.append(run_nccl_test(c, name, program, n))
    return rows


def build_nccl_tests(c, source):
    """Builds nccl-tests for several processes, with NVIDIA's headers over Lightpath's library; a row if that fails."""
    nvcc, real = tool("nvcc"), real_nccl()
    if nvcc is None or real is None:
        return skip(
            "nccl-tests",
            "build",
            "not built, and no nvcc here" if nvcc is None else "not built, and no headers of NVIDIA's NCCL here",
        )
    if old_nccl(real):
        return skip("nccl-tests", "build", old_nccl(real))
    mpi, home = c.path("build", "gpu", "mpi"), c.path("build", "gpu", "nccl-home")
    os.makedirs(os.path.join(home, "lib"), exist_ok=True)
    include = os.path.join(home, "include")
    shutil.copytree(os.path.join(os.path.dirname(real), "..", "include"), include, dirs_exist_ok=True)
    for name in ("libnccl.so.2", "libnccl.so"):
        shutil.copy(LIBRARY, os.path.join(home, "lib", name))
    command = [
        "make", "-C", source, f"-j{os.cpu_count()}", "MPI=1", f"MPI_HOME={mpi}", f"NCCL_HOME={home}", f"NVCC={nvcc}",
        f"CUDA_HOME={os.path.dirname(os.path.dirname(nvcc))}", "NVCC_GENCODE=-arch=native",
    ]  # fmt: skip
    for step in (["make", "build/gpu/mpi/lib/libmpi.so"], command):
        done = c.run("nccl-tests-build", step, 240)
        if not done.ok:
            return lost("nccl-tests", "build", done)
    return None


def run_nccl_test(c, name, program, n):
    shared = os.path.join(c.out, f"nccl-tests-{name}-{n}.shm")
    libraries = ":".join([c.path("build", "gpu", "mpi", "lib"), c.path("lib")])
    env = {"NCCL_TESTS_DEVICE": "0", "MPI_SHIM_FILE": shared, "LD_LIBRARY_PATH": libraries}
    sizes = ["-b", "8", "-e", "4M", "-f", "64", "-d", "all", "-o", "all", "-n", "2", "-w", "1", "-c", "1"]
    done = c.run(f"nccl-tests-{name}-{n}", ranks(c, n, program, *sizes), env=env)
    if os.path.exists(shared):
        os.remove(shared)
    what = f"{name}_perf, {n} ranks"
    wrong, lines = verdict(done.text())
    if not done.ok or wrong is None:
        return lost("nccl-tests", what, done)
    if wrong or not lines:
        return fail("nccl-tests", what, f"{wrong} results are out of bounds, of {lines} lines")
    return Row(
        "nccl-tests", what, number=lines, unit="lines", note="all types and operators, out of place and in place"
    )


def verdict(text):
    """How many results nccl-tests found out of bounds (None: it did not end), and its number of result lines."""
    footer = re.search(r"# Out of bounds values\s*:\s*(\d+)", text)
    lines = sum(bool(re.match(r"(\[\d+\])?\s+\d+\s+\d+\s+\w+", line)) for line in text.splitlines())
    return (int(footer[1]) if footer else None), lines


def torch(c):
    if module_version("torch") is None:
        return [skip("torch", "PyTorch's nccl backend", "no PyTorch here")]
    if c.stub:  # tests the program itself before a GPU runs it
        tried = calls(c, "torch", "collectives of all types, host memory", [2], "torch_calls.py", "--device", "cpu")
        return [skip("torch", "PyTorch's nccl backend", c.no_gpu), *tried]
    if old_driver():
        return [skip("torch", "PyTorch's nccl backend", old_driver())]
    rows = calls(c, "torch", "collectives of all types, graphs", [2, 4], "torch_calls.py")
    rows += training(c, "", {}, 2, ["nccl:ddp", "nccl:fsdp"])
    rows += training(c, "", {}, 4, ["nccl:ddp", "nccl:fsdp"])
    rows += training(c, " over tcp", {"LIGHTPATH_TRANSPORT": "tcp", "LIGHTPATH_PLANES": "2"}, 2, ["nccl:ddp"])
    return rows + training(
        c, " over circuits", {"LIGHTPATH_PLAN_WAIT": "1"}, 4, ["nccl:ddp"], ["--optical", "--bandwidth", "10Gbps"]
    )


def calls(c, part, what, sizes, program, *arguments):
    """A program of this directory that prints how many checks it has made on each rank."""
    rows = []
    for n in sizes:
        done = c.run(
            f"{part}-calls-{n}", ranks(c, n, sys.executable, os.path.join(HERE, program), *arguments), PYTHON_LIMIT
        )
        checks = [int(k) for k in re.findall(r"^\[\d+\] (\d+) checks", done.text(), re.M)]
        if done.ok and len(checks) == n:
            rows.append(Row(part, f"{what}, {n} ranks", number=sum(checks), unit="checks"))
        else:
            rows.append(lost(part, f"{what}, {n} ranks", done))
    return rows


def training(c, where, env, n, ways, launch=()):
    """Loss curves of a model that is trained over Gloo and over NCCL's interface from the same seed."""
    name = f"torch-training{where.replace(' ', '-')}-{n}"
    out = os.path.join(c.out, f"{name}.json")
    program = [
        "train.py",
        "--device",
        "cuda",
        "--ways",
        ",".join(["gloo:ddp", *ways]),
        "--steps",
        "60",
        "--hidden",
        "1024",
        "--rate",
        "1e-3",
        "--out",
        out,
    ]
    command = [sys.executable, c.path("examples", "torch", "launch.py"), "-n", n, *launch, *program]
    done = c.run(name, command, PYTHON_LIMIT, {"LD_PRELOAD": LIBRARY, **env})
    if not done.ok:
        return [lost("torch", f"training{where}, {n} ranks", done)]
    results = c.json(f"{name}.json")["ways"]
    reference = results["gloo:ddp"]
    return [trained(f"{way}{where}, {n} ranks: loss as Gloo's", results[way], reference) for way in ways]


def trained(what, result, reference):
    apart = [abs(a - b) / max(abs(a), abs(b)) for a, b in zip(result["loss"], reference["loss"], strict=True)]
    same = all(d <= LOSS_TOLERANCE for d in apart)  # which no NaN is
    first, last = result["loss"][0], result["loss"][-1]
    times = f"loss {first:.3f} to {last:.3f}, curves differ by {max(apart):.1e}; limit: Gloo's step"
    if not same or not last < first:
        return fail("torch", what, times)
    return Row("torch", what, number=result["step_ms"], unit="ms", limit=reference["step_ms"], note=times)


def cupy(c):
    if c.stub or old_driver() or module_version("cupy") is None:
        return [skip("cupy", "CuPy's NCCL binding", c.no_gpu or old_driver() or "no CuPy here")]
    meet = os.path.join(c.out, "cupy-id")
    if os.path.exists(meet):
        os.remove(meet)
    return calls(c, "cupy", "CuPy's NCCL binding", [2], "cupy_calls.py", meet)


def symbols(c):
    """Whether the library has all functions that the installed PyTorch needs. cgo/abi/clients.sh: other versions."""
    what = "functions that the installed PyTorch needs"
    found = [p for d in sys.path for p in glob.glob(os.path.join(d, "torch", "lib", "libtorch_cuda.so"))]
    if not found or not tool("nm"):
        return [skip("symbols", what, "no PyTorch with CUDA here" if tool("nm") else "no nm here")]
    listed = []
    for name, kind, library in (("needed", "--undefined-only", found[0]), ("exported", "--defined-only", LIBRARY)):
        done = c.run(f"symbols-{name}", ["nm", "-D", kind, library])
        if not done.ok:
            return [lost("symbols", what, done)]
        listed.append(set(re.findall(r" (p?nccl\w+)", done.text())))
    needed, exported = listed
    if not needed or needed - exported:
        return [fail("symbols", what, f"missing: {' '.join(sorted(needed - exported))}" if needed else "none found")]
    return [Row("symbols", what, number=len(needed), unit="functions", note=f"torch {module_version('torch')}")]
