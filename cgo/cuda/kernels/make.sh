#!/bin/bash
# Compiles reduce.cu to PTX and packs the modules into kernels.zip, beside this script or in a folder: make.sh [FOLDER].
# TYPE.ptx runs on all devices from sm_70 on. TYPE.sm_NN.ptx needs sm_NN, whose instructions for the type it uses.
# The compiler is clang 16, which needs no CUDA toolkit; $CLANG names it. Another version makes other text.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
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

# Entries have no time and no owner, so the same modules make the same archive.
python3 - "$work" "$out/kernels.zip" <<'EOF'
import pathlib, sys, zipfile
with zipfile.ZipFile(sys.argv[2], "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
    for module in sorted(pathlib.Path(sys.argv[1]).glob("*.ptx")):
        archive.writestr(zipfile.ZipInfo(module.name), module.read_bytes(), zipfile.ZIP_DEFLATED, 9)
EOF
