#!/usr/bin/env bash
# Packs what make gpu-check needs on a machine without Go or a network: kit.sh FILE.tar.xz, to be unpacked in the source
# tree there. NCCL_TESTS_DIR names a built checkout of nccl-tests to take along.
set -euo pipefail
cd "$(dirname "$0")/../.."
out=$(realpath "${1:-build/gpu-kit.tar.xz}")
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT

mkdir -p "$stage"/{lib,bin,build/gpu/{libcuda,mpi/lib}}
cp -a lib/libnccl.so.2 lib/libnccl.so lib/liblightpath.so "$stage/lib/"
cp bin/lightpath bin/lightpath-rank bin/lightpath-kernels "$stage/bin/"
cp build/gpu/cuda.test "$stage/build/gpu/"
cp build/gpu/libcuda/libcuda.so.1 "$stage/build/gpu/libcuda/"
cp build/gpu/mpi/lib/libmpi.so "$stage/build/gpu/mpi/lib/"
strip "$stage"/bin/* "$stage"/lib/libnccl.so.2

if compgen -G "${NCCL_TESTS_DIR:-build/gpu/nccl-tests}/build/*_perf" >/dev/null; then
  mkdir -p "$stage/build/gpu/nccl-tests/build"
  cp "${NCCL_TESTS_DIR:-build/gpu/nccl-tests}"/build/*_perf "$stage/build/gpu/nccl-tests/build/"
  strip "$stage"/build/gpu/nccl-tests/build/*
else
  echo "without nccl-tests: NCCL_TESTS_DIR names no built checkout" >&2
fi
mkdir -p "$(dirname "$out")"
tar -C "$stage" -cf - . | xz -T0 -6 >"$out"
ls -l "$out"
