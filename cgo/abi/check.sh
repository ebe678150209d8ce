#!/bin/sh
# Compares our header and library with NVIDIA's package: check.sh [DIR]
# DIR is the package's nvidia/nccl; without it the package is fetched once into build/. It needs lib/libnccl.so.2. It
# also checks that abi.py finds every kind of damage, and runs our library with NVIDIA's behind it.
set -eu
cd "$(dirname "$0")/../.."
package=nvidia-nccl-cu13
version=2.32.3
python=${PYTHON:-python3}
dir=${1:-${LIGHTPATH_NCCL_PACKAGE:-build/$package-$version/nvidia/nccl}}

if [ ! -f "$dir/include/nccl.h" ]; then
  into=build/$package-$version
  mkdir -p "$into"
  "$python" -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: \
    --platform manylinux_2_27_x86_64 -d "$into" "$package==$version"
  "$python" -m zipfile -e "$into"/*.whl "$into"
  dir=$into/nvidia/nccl
fi
"$python" cgo/abi/abi.py "$dir" --self-test

real=$(cd "$dir" && pwd)/lib/libnccl.so.2
mkdir -p build/test-c
${CC:-cc} -std=gnu11 -O1 -g -Wall -Wextra -Werror -Icgo/front -o build/test-c/real cgo/front/tests/real.c \
  -Llib -lnccl -ldl "-Wl,-rpath,$PWD/lib"
LIGHTPATH_NCCL_FALLBACK_LIB=$real timeout 120 build/test-c/real "$real"
echo "abi: NVIDIA's library works behind ours"
