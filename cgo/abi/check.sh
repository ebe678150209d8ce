#!/bin/sh
# Compares our header and library with NVIDIA's package: check.sh [DIR]
# DIR holds the package's nvidia/nccl; without it the package is fetched once into build/.
# Needs the built lib/libnccl.so.2. Proves itself by finding every kind of damage (abi.py).
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
exec "$python" cgo/abi/abi.py "$dir" --self-test
