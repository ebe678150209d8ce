#!/bin/bash
# Compiles reduce.cu to PTX and machine code, and packs them into kernels.zip, beside this script or in a folder:
# make.sh [FOLDER]. TYPE.ptx runs on all devices from sm_70 on. TYPE.sm_NN.ptx needs sm_NN, whose instructions for the
# type it uses. kernels.sm_NN.cubin has all kernels for devices of sm_NN, and made.txt says of what it was made.
# The compiler is clang 16, which needs no CUDA toolkit; $CLANG names it. Another version makes other text. The assembler
# is ptxas (PyPI: nvidia-cuda-nvcc-cu12==12.8.93); $PTXAS names it. --text leaves out what it makes.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/tools.sh"
text=
if [ "${1:-}" = --text ]; then text=1; shift; fi
out=${1:-$here}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# compile TYPE ARCHITECTURE MODULE [VERSION]: VERSION replaces the compiler's PTX version if inline instructions need
# another.
compile() {
  while [ "$(jobs -rp | wc -l)" -ge "$(nproc)" ]; do wait -n; done
  make_module "$@" &
}

make_module() {
  # sed removes comments, which name the compiler's build, and empty lines.
  "${CLANG:-clang-16}" -x cuda --cuda-device-only -nocudainc -nocudalib "--cuda-gpu-arch=$2" -std=c++17 -O3 \
    -ffp-contract=off -Wall -Wextra -Werror "-DTYPE=$1" -S -o - "$here/reduce.cu" |
    sed -e 's/^\t*//' -e '/^\/\//d' -e '/^$/d' ${4:+-e "s/^\.version .*/.version $4/"} >"$work/$3.ptx" ||
    touch "$work/failed"
}

for type in int8 uint8 int32 uint32 int64 uint64 half float double bfloat16 f8e4m3 f8e5m2; do
  compile $type sm_70 $type
done
compile bfloat16 sm_90 bfloat16.sm_90
for type in f8e4m3 f8e5m2; do
  compile $type sm_89 $type.sm_89 8.1
done
wait
[ ! -e "$work/failed" ] || exit 1

if [ -z "$text" ]; then
  ptxas=$(tool ptxas PTXAS)
  if [ -z "$ptxas" ] || ! "$ptxas" --version | grep -F "$assembler" >/dev/null; then
    echo "ptxas $assembler is needed: pip install nvidia-cuda-nvcc-cu12==12.8.93, or set PTXAS" >&2
    exit 1
  fi
  machine_code "$work" "$ptxas"
fi

# Entries have no time and no owner, so the same modules make the same archive.
python3 - "$work" "$out/kernels.zip" <<'EOF'
import pathlib, sys, zipfile
with zipfile.ZipFile(sys.argv[2], "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
    modules = [m for m in pathlib.Path(sys.argv[1]).iterdir() if m.suffix in (".ptx", ".cubin", ".txt")]
    for module in sorted(modules):
        archive.writestr(zipfile.ZipInfo(module.name), module.read_bytes(), zipfile.ZIP_DEFLATED, 9)
EOF
