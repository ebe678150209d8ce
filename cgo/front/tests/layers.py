#!/usr/bin/env python3
"""Checks that files of the front call only those above them in README.md's table: layers.py FOLDER"""

import pathlib
import re
import sys

front = pathlib.Path(sys.argv[1])
rows = re.findall(r"^\| (`.*?) \|", (front / "README.md").read_text(), re.M)
order = [name for row in rows for name in re.findall(r"`([\w/]+(?:\.c|/))`", row)]
files = [str(f.relative_to(front)) for folder in ("*.c", "combine/*.c") for f in front.glob(folder)]
layer = {}
for f in files:
    name = "combine/" if f.startswith("combine/") else f
    if name not in order:
        sys.exit(f"{f} is not in README.md")
    layer[f] = order.index(name)
code = {f: re.sub(r"/\*.*?\*/|\bstruct \w+", "", (front / f).read_text(), flags=re.S) for f in files}
where = {}  # file of each function
for f, text in code.items():
    for name in re.findall(r"^(?!static)[a-z][\w* ]*?\b(lp_\w+)\([^;{]*\)\s*{", text, re.M):
        where[name] = f
    for name in re.findall(r"LP_API\([^,]+, (\w+),", text):
        where["p" + name] = f
bad = 0
for f, text in code.items():
    for name in sorted(set(re.findall(r"\b(?:lp_|pnccl)\w+", text))):
        if name in where and layer[where[name]] > layer[f]:
            print(f"{f} calls {name} of {where[name]}, which is below it in README.md")
            bad = 1
if len(where) < 100:
    sys.exit(f"only {len(where)} functions found: has the style of definitions changed?")
sys.exit(bad)
