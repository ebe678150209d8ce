#!/bin/sh
# Compiles reduce.cu to PTX, one file for each element type, beside it or in the folder given: make.sh [FOLDER]. The compiler is clang 16,
# which needs nothing of CUDA's; another one makes other text. $CLANG names it.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
out=${1:-$here}

for type in int8 uint8 int32 uint32 int64 uint64 half float double bfloat16 f8e4m3 f8e5m2; do
  # What is not an instruction, and the compiler's version, goes.
  "${CLANG:-clang-16}" -x cuda --cuda-device-only -nocudainc -nocudalib --cuda-gpu-arch=sm_70 -std=c++17 -O3 -ffp-contract=off \
    -Wall -Wextra -Werror -DTYPE=$type -S -o - "$here/reduce.cu" | sed -e 's/^\t*//' -e '/^\/\//d' -e '/^$/d' >"$out/$type.ptx"
done
