"""Builds the libraries and commands of the wheel, and puts the sources into the source distribution."""

import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

# What the wheel contains, of what make builds.
FILES = ("lib/libnccl.so.2", "lib/liblightpath.so", "lib/liblightpath-record.so", "bin/lightpath", "bin/lightpath-rank")
# The folder of the sources in the source distribution.
SOURCE = "source"


class BuildHook(BuildHookInterface):
    """Called by hatchling before it packs a target."""

    def initialize(self, version, build_data):
        tree = Path(self.root, SOURCE)
        if not tree.is_dir():  # this is the repository
            tree = Path(self.root, "..", "..").resolve()
        if self.target_name == "sdist":
            build_data["force_include"].update({str(tree / f): f"{SOURCE}/{f}" for f in sources(tree)})
        elif version != "editable":
            self.built = tempfile.TemporaryDirectory(prefix="lightpath-wheel-")  # also removed if the build fails
            build(tree, Path(self.built.name))
            build_data["force_include"].update({f"{self.built.name}/{f}": f"lightpath/{f}" for f in FILES})
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-manylinux_2_28_{platform.machine()}"

    def finalize(self, version, build_data, artifact):
        if hasattr(self, "built"):
            self.built.cleanup()


def sources(tree):
    """The files of a source tree, without those for Python."""
    if (tree / ".git").exists():
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=tree, check=True, capture_output=True, text=True)
        files = listed.stdout.rstrip("\0").split("\0")
    else:
        files = [str(f.relative_to(tree)) for f in tree.rglob("*") if f.is_file()]
    return [f for f in files if (tree / f).is_file() and not f.startswith("packaging/python/")]


def build(tree, folder):
    """Builds in a copy of the tree, so that the tree keeps what make has built for this machine."""
    for f in sources(tree):
        (folder / f).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(tree / f, folder / f)
    compiler = f"bash {Path(__file__).with_name('cc')}"
    environment = {**os.environ, "CC": compiler, "ZIG": f"{sys.executable} -m ziglang", "CFLAGS": "-O2"}
    subprocess.run(["make", "-s", f"CC={compiler}", *FILES], cwd=folder, env=environment, check=True, stdout=sys.stderr)
    for f in FILES:
        subprocess.run(["strip", "--strip-unneeded", folder / f], check=True)
