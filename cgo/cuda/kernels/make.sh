#!/bin/sh
# Compiles reduce.cu to PTX, one file for each element type, beside it or in the folder given: make.sh [FOLDER]. TYPE.ptx is for all devices
# from sm_70 on, TYPE.sm_NN.ptx for those from sm_NN on, which have instructions of their own for the type. The compiler is clang 16,
# which needs nothing of CUDA's; another one makes other text. $CLANG names it.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
out=${1:-$here}

# compile TYPE ARCHITECTURE FILE [VERSION]: with the version of PTX that inline instructions need, where that is not the compiler's choice.
compile() {
  # What is not an instruction, and the compiler's version, goes.
  "${CLANG:-clang-16}" -x cuda --cuda-device-only -nocudainc -nocudalib "--cuda-gpu-arch=$2" -std=c++17 -O3 -ffp-contract=off \
    -Wall -Wextra -Werror "-DTYPE=$1" -S -o - "$here/reduce.cu" |
    sed -e 's/^\t*//' -e '/^\/\//d' -e '/^$/d' ${4:+-e "s/^\.version .*/.version $4/"} >"$out/$3.ptx"
}

for type in int8 uint8 int32 uint32 int64 uint64 half float double bfloat16 f8e4m3 f8e5m2; do
  compile $type sm_70 $type
done
compile bfloat16 sm_90 bfloat16.sm_90
for type in f8e4m3 f8e5m2; do
  compile $type sm_89 $type.sm_89 8.1
done
