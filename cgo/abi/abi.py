#!/usr/bin/env python3
"""Compares Lightpath's ABI with NVIDIA's: abi.py PACKAGE [--self-test]

PACKAGE is the directory nvidia/nccl of NVIDIA's Python package (include/ and lib/). It compares
  nccl.h            prototypes, enumerators, structures with offset, size and type of every field,
                    typedefs, macros, and the bytes of every initializer;
  lp_nccl_device.h  prototypes and complete structures, as far as NVIDIA's device header has them;
  libnccl.so.2      names and binding (weak or strong) of the exported symbols, and the soname;
and every source of cgo/front is compiled against NVIDIA's nccl.h.

The C compiler turns each header into a list of facts, one per line: values and types are compared, never the text of a
header. With --self-test, our side is damaged in each of these respects, and each damage must be found."""

import argparse
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
FRONT = ROOT / "cgo" / "front"
CC = ["cc", "-std=gnu11", "-DNCCL_OS_LINUX", "-D_GNU_SOURCE"]
INITIALIZED = {
    "NCCL_CONFIG_INITIALIZER": "ncclConfig_t",
    "NCCL_COLLCONFIG_INITIALIZER": "ncclCollConfig_t",
    "NCCL_SIM_INFO_INITIALIZER": "ncclSimInfo_t",
    "NCCL_ENCRYPTION_CONFIG_INITIALIZER": "ncclEncryptionConfig_t",
}
# Enough of CUDA's headers for NVIDIA's to compile; the structures are only pointed to.
STUBS = {
    "cuda_runtime.h": "#pragma once\n#include <stddef.h>\n#define CUDART_VERSION 0\n"
    "typedef struct CUstream_st* cudaStream_t;\ntypedef struct CUevent_st* cudaEvent_t;\n",
    "cuda_fp16.h": "",
    "cuda.h": "#pragma once\ntypedef int CUmemLocationType;\n",
}


def run(*command, text=None):
    """Runs a command and returns its output; ends the check when it fails."""
    done = subprocess.run([str(c) for c in command], input=text, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"abi: {' '.join(map(str, command))}\n{done.stderr}")
    return done.stdout


class Header:
    """One header and what the compiler makes of it."""

    def __init__(self, include, dirs, work):
        self.include, self.work = include, work
        self.flags = [f"-I{d}" for d in dirs]
        self.source = f"#include <{include}>\n"
        self.text = run(*CC, *self.flags, "-E", "-P", "-x", "c", "-", text=self.source)

    def prototypes(self):
        out = self.work / "aux"
        run(*CC, *self.flags, "-w", "-S", "-o", "/dev/null", "-aux-info", out, "-x", "c", "-", text=self.source)
        facts = set()
        for line in out.read_text().splitlines():
            m = re.match(r"/\*.*?\*/ (?:extern )?(.*\b(p?nccl\w+) \(.*\));", line)
            if m and "static" not in m[1]:
                # NVIDIA writes f(), which C takes as unstated parameters and C++ as none.
                facts.add("prototype " + squeeze(m[1].replace("/* ??? */", "void")))
        return facts

    def enums(self):
        """Enumerations as (name, enumerators)."""
        for m in re.finditer(r"typedef enum\s*\w*\s*\{(.*?)\}\s*(\w+)\s*;", self.text, re.S):
            yield m[2], [e.split("=")[0].strip() for e in split(m[1], ",")]

    def structs(self):
        """Complete structures as (name usable in C, tag, fields); a field is (path, type)."""
        for m in re.finditer(r"(typedef )?struct\s*(\w*)\s*\{", self.text):
            tag, body, end = m[2], *block(self.text, m.end())
            name = re.match(r"\s*(\w+)\s*;", self.text[end:])
            if m[1] and name and "nccl" in name[1]:
                yield name[1], tag, list(fields(body))
            elif not m[1] and tag.startswith("nccl"):
                yield f"struct {tag}", tag, list(fields(body))

    def typedefs(self):
        for m in re.finditer(r"typedef ([^{};]*?nccl[^{};]*);", self.text):
            yield squeeze(m[1])

    def macros(self):
        dump = run(*CC, *self.flags, "-E", "-dM", "-x", "c", "-", text=self.source)
        for name, args, body in re.findall(r"^#define (NCCL_\w+)(\([^)]*\))? ?(.*)$", dump, re.M):
            if body and name != "NCCL_OS_LINUX":
                yield name, bool(args)

    def facts(self):
        """Everything there is to compare, as a set of lines."""
        facts = self.prototypes() | {f"typedef {t}" for t in self.typedefs()}
        includes = "#include <stdio.h>\n#include <string.h>\n#include <stddef.h>\n"
        probe = [self.source, includes, PROBE, "int main(void) {"]
        for name, enumerators in self.enums():
            probe.append(f'printf("enum {name} size %zu\\n", sizeof({name}));')
            probe += [f'printf("enum {name} {e} %lld\\n", (long long){e});' for e in enumerators if e]
        for name, tag, members in self.structs():
            probe.append(f'printf("struct {name} tag {tag} size %zu align %zu\\n", sizeof({name}), _Alignof({name}));')
            for path, kind in members:
                probe.append(
                    f'printf("field {name}.{path} {kind} offset %zu size %zu\\n", offsetof({name}, {path}), '
                    f"sizeof((({name}*)0)->{path}));"
                )
        for name, function in self.macros():
            if name in INITIALIZED:
                probe.append(f'{{ static {INITIALIZED[name]} v = {name}; dump("{name}", &v, sizeof v); }}')
            elif function:
                for args in ("2,8,9", "2,9,0", "2,32,3", "3,1,4"):
                    probe.append(f'printf("macro {name}({args}) %lld\\n", (long long)({name}({args})));')
            else:
                probe.append(f'SHOW("{name}", ({name}));')
        probe.append("return 0; }")
        program = self.work / "probe"
        run(*CC, *self.flags, "-w", "-o", program, "-x", "c", "-", text="\n".join(probe))
        return facts | set(run(program).splitlines())


PROBE = r"""
static void dump(const char* name, const void* p, size_t n) {
  printf("initializer %s", name);
  for (size_t i = 0; i < n; i++) printf(" %02x", ((const unsigned char*)p)[i]);
  printf("\n");
}
static void show_text(const char* name, const char* v) { printf("macro %s \"%s\"\n", name, v); }
static void show_pointer(const char* name, const void* v) { printf("macro %s pointer %d\n", name, v != 0); }
static void show_float(const char* name, float v) { printf("macro %s float %a\n", name, v); }
static void show_int(const char* name, long long v) { printf("macro %s %lld\n", name, v); }
#define SHOW(name, v) _Generic((v), char*: show_text, void*: show_pointer, float: show_float, default: show_int)(name, v)
"""


def squeeze(text):
    """One spelling of a declaration: single blanks, none around stars and brackets."""
    return re.sub(r"\s*([*(),])\s*", r"\1", " ".join(text.split()))


def block(text, start):
    """The text up to the brace that closes the one before start, and where it ends."""
    depth, at = 1, start
    while depth:
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        at += 1
    return text[start : at - 1], at


def split(text, by):
    """Splits at top level, outside of braces and brackets."""
    parts, depth, last = [], 0, 0
    for i, c in enumerate(text):
        depth += (c in "{([") - (c in "})]")
        if c == by and depth == 0:
            parts.append(text[last:i])
            last = i + 1
    return [p for p in parts + [text[last:]] if p.strip()]


def fields(body, prefix=""):
    """The fields of a structure's body, those of nested ones by their path."""
    for member in split(body, ";"):
        if "{" in member:
            inner, end = block(member, member.index("{") + 1)
            yield from fields(inner, f"{prefix}{member[end:].strip()}.")
            continue
        kind, names = re.match(
            r"\s*(.*?[\s*])((?:\w+(?:\[[^]]*\])?\s*,\s*)*\w+(?:\[[^]]*\])?)\s*$", member, re.S
        ).groups()
        for name in names.split(","):
            yield prefix + name.split("[")[0].strip(), squeeze(kind).strip()


def symbols(library):
    """Exported nccl names with their binding, and the soname."""
    facts = set()
    for line in run("nm", "-D", "--defined-only", library).splitlines():
        *_, kind, name = line.split()
        if re.match(r"p?nccl", name):
            facts.add(f"symbol {name} {kind}")
    soname = re.search(r"SONAME.*\[(.*)\]", run("readelf", "-d", library))
    return facts | {f"soname {soname[1] if soname else 'none'}"}


class Comparison:
    """The official side, stated once, against which our side is held."""

    def __init__(self, package, work):
        self.package, self.work = package, work
        self.stubs = work / "stubs"
        self.stubs.mkdir()
        for name, text in STUBS.items():
            (self.stubs / name).write_text(text)
        dirs = [self.stubs, package / "include"]
        self.header = Header("nccl.h", dirs, work).facts()
        device = Header("nccl_device/host.h", dirs, work)
        self.device_prototypes = device.prototypes() - self.header
        self.device_fields = {(name, path): kind for name, _, members in device.structs() for path, kind in members}
        self.symbols = symbols(package / "lib" / "libnccl.so.2")

    def differences(self, front, library):
        """What differs, as lines: - is NVIDIA's, + is ours."""
        theirs = self.header | self.symbols
        ours = Header("nccl.h", [self.stubs, front], self.work).facts() | symbols(library)
        lines = [f"- {f}" for f in sorted(theirs - ours)] + [f"+ {f}" for f in sorted(ours - theirs)]
        return lines + self.device(front) + self.unimplemented(ours)

    def device(self, front):
        """What our device header says otherwise than NVIDIA's; NVIDIA's has much more."""
        ours = Header("lp_nccl_device.h", [self.stubs, front], self.work)
        extra = {"ncclResetDebugInitInternal", "ncclGinOutboxCreateRequirement", "ncclGinInboxA2ACreateRequirement"}
        lines = []
        for fact in sorted(ours.prototypes() - self.header - self.device_prototypes):
            if not any(re.search(rf"\b{name}\(", fact) for name in extra):
                lines.append(f"+ device {fact}")
        for name, _, members in ours.structs():
            short = name.removeprefix("struct ").removesuffix("_t")
            for path, kind in members:
                if (
                    short in ("ncclTeam", "ncclMultimemHandle")
                    and self.device_fields.get((f"struct {short}", path)) != kind
                ):
                    lines.append(f"+ device field {name}.{path} {kind}")
        return lines

    def unimplemented(self, ours):
        """Prototypes of nccl.h without a symbol; the headers could agree on one that nobody defines."""
        names = {re.search(r"\b(p?nccl\w+)\(", f)[1] for f in ours if f.startswith("prototype ")}
        exported = {f.split()[1] for f in ours if f.startswith("symbol ")}
        return [f"+ prototype without symbol {n}" for n in sorted(names - exported)]

    def compile_front(self):
        """Our definitions against NVIDIA's declarations."""
        for source in sorted(FRONT.glob("*.c")):
            run(
                *CC,
                "-fsyntax-only",
                "-Wall",
                "-Wextra",
                "-Werror",
                "-Wno-deprecated-declarations",
                f"-I{self.stubs}",
                '-DLP_VERSION="0"',
                "-include",
                self.package / "include" / "nccl.h",
                source,
            )


# What --self-test does to our header: description, pattern, replacement.
DAMAGE = [
    ("a const dropped from a prototype", r"ncclSend\(const void\*", "ncclSend(void*"),
    ("an argument's type changed", r"ncclRecv\(void\* recvbuff, size_t", "ncclRecv(void* recvbuff, int"),
    ("a result's type changed", r"const char\* ncclGetErrorString", "char* ncclGetErrorString"),
    ("a function removed", r"ncclResult_t ncclMemFree\(void\* ptr\);|LP_NCCL_TWIN\(MemFree\);", ""),
    ("an enumerator's value changed", r"ncclRemoteError = 6", "ncclRemoteError = 16"),
    ("an enumerator removed", r"ncclStatGpuMemTotal = 3", ""),
    ("two fields swapped", r"int minCTAs;\s*int maxCTAs;", "int maxCTAs; int minCTAs;"),
    ("a field's type changed", r"uint64_t userProfilerTag", "int64_t userProfilerTag"),
    ("a field removed", r"int hostCftMode;", ""),
    ("a nested field renamed", r"int vendorId;", "int vendor;"),
    ("a structure's tag changed", r"struct ncclConfig_v23100", "struct ncclConfig_v23200"),
    ("a macro's value changed", r"NCCL_SHRINK_ABORT 0x01", "NCCL_SHRINK_ABORT 0x02"),
    ("a macro removed", r"#define NCCL_WIN_GIN_ONLY 0x04", ""),
    ("an initializer changed", r"NCCL_CONFIG_UNDEF_PTR, 1, NCCL", "NCCL_CONFIG_UNDEF_PTR, 0, NCCL"),
    ("the version changed", r"NCCL_VERSION_CODE 23203", "NCCL_VERSION_CODE 23204"),
    ("a handle's type changed", r"typedef struct ncclComm\* ncclComm_t", "typedef void* ncclComm_t"),
]


def self_test(comparison, library):
    """Damages our side in every respect; returns the damages that were not found."""
    missed = []
    front = comparison.work / "front"
    front.mkdir()
    (front / "lp_nccl_device.h").write_text((FRONT / "lp_nccl_device.h").read_text())
    original = (FRONT / "nccl.h").read_text()
    for what, pattern, replacement in DAMAGE:
        damaged, n = re.subn(pattern, replacement, original)
        if n == 0:
            missed.append(f"{what}: the pattern no longer fits the header")
            continue
        # The twins of a removed function would not compile without it: a failure to compile is a find.
        (front / "nccl.h").write_text(damaged)
        try:
            found = bool(comparison.differences(front, library))
        except SystemExit:
            found = True
        print(f"abi self-test: {what}: {'found' if found else 'MISSED'}")
        if not found:
            missed.append(what)
    hidden = comparison.work / "hidden.so"
    script = comparison.work / "hidden.map"
    script.write_text("{ global: nccl*; pnccl*; local: pncclRecv; *; };")
    run(
        *CC,
        "-fPIC",
        "-shared",
        "-fvisibility=hidden",
        '-DLP_VERSION="0"',
        "-Wl,-soname,libnccl.so.2",
        f"-Wl,--version-script={script}",
        "-o",
        hidden,
        *sorted(FRONT.glob("*.c")),
        "-ldl",
        "-pthread",
    )
    lines = comparison.differences(FRONT, hidden)
    print(f"abi self-test: a symbol hidden: {'found' if lines else 'MISSED'}")
    if "- symbol pncclRecv T" not in lines:
        missed.append("a symbol hidden")
    return missed


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("package", type=pathlib.Path, help="directory nvidia/nccl of NVIDIA's package")
    parser.add_argument("--library", type=pathlib.Path, default=ROOT / "lib" / "libnccl.so.2", help="our library")
    parser.add_argument("--self-test", action="store_true", help="also prove that every kind of difference is found")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        comparison = Comparison(args.package, pathlib.Path(work))
        comparison.compile_front()
        lines = comparison.differences(FRONT, args.library)
        if lines:
            print("\n".join(lines))
            sys.exit(f"abi: {len(lines)} differences (- NVIDIA's, + ours)")
        if args.self_test:
            missed = self_test(comparison, args.library)
            if missed:
                sys.exit("abi: self-test: not found: " + "; ".join(missed))
        count = len(comparison.header) + len(comparison.symbols)
        print(f"abi: {count} facts of nccl.h and libnccl.so.2 agree")


if __name__ == "__main__":
    main()
