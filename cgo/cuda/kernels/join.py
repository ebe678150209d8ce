#!/usr/bin/env python3
"""Joins the modules of PTX text that a device of an architecture would load into one: join.py FROM TO ARCHITECTURE...

FROM is kernels.zip or a folder with its modules. TO gets kernels.sm_NN.ptx for each architecture, such as 90. Of a
type's modules, TYPE.ptx and TYPE.sm_NN.ptx, the one for the newest architecture is taken that the device has."""

import pathlib
import re
import sys
import zipfile

HEADER = re.compile(r"^\.(version|target|address_size) (\S+)\n", re.MULTILINE)


def texts(source):
    """The modules by type and architecture. Those of TYPE.ptx have architecture 0."""
    path = pathlib.Path(source)
    if path.is_dir():
        files = {f.name: f.read_text() for f in path.glob("*.ptx")}
    else:
        with zipfile.ZipFile(path) as archive:
            files = {name: archive.read(name).decode() for name in archive.namelist() if name.endswith(".ptx")}
    found = {}
    for name, text in files.items():
        kind, _, architecture = name.removesuffix(".ptx").partition(".sm_")
        found.setdefault(kind, {})[int(architecture or 0)] = text
    return found


def join(modules, architecture):
    chosen = [modules[kind][max(a for a in modules[kind] if a <= architecture)] for kind in sorted(modules)]
    heads = [dict(HEADER.findall(text)) for text in chosen]
    version = max((head["version"] for head in heads), key=lambda v: tuple(map(int, v.split("."))))
    target = max((head["target"] for head in heads), key=lambda t: int(t.removeprefix("sm_")))
    return f".version {version}\n.target {target}\n.address_size 64\n" + "".join(
        HEADER.sub("", text) for text in chosen
    )


def main(source, to, *architectures):
    modules = texts(source)
    for architecture in architectures:
        pathlib.Path(to, f"kernels.sm_{architecture}.ptx").write_text(join(modules, int(architecture)))


if __name__ == "__main__":
    main(*sys.argv[1:])
