#!/bin/sh
# Builds the stub of the CUDA driver and runs the tests of device memory and streams over it: run.sh. With
# LP_CUDA_REAL=1 they run over the machine's own driver, but for the tests of errors that only the stub makes.
set -u
cd "$(dirname "$0")/../../.." || exit 1
root=$PWD
out=${LP_CUDA_OUT:-build/test-cuda}
mkdir -p "$out/stub"
failed=0

cflags="-std=gnu11 -O1 -g -Wall -Wextra -Werror -Wno-deprecated-declarations -Wno-missing-field-initializers -Icgo/front -pthread"
${CC:-cc} -std=gnu11 -O2 -g -Wall -Wextra -Werror -fPIC -fvisibility=hidden -shared -pthread -Wl,-soname,libcuda.so.1 \
  -o "$out/stub/libcuda.so.1" cgo/cuda/stub/*.c || exit 1
mkdir -p "$out/old" # a driver that lacks something
${CC:-cc} -std=gnu11 -O2 -g -Wall -Wextra -Werror -fPIC -fvisibility=hidden -shared -pthread -Wl,-soname,libcuda.so.1 \
  -DcuMemcpy2DAsync_v2=cuMemcpy2DAsync -o "$out/old/libcuda.so.1" cgo/cuda/stub/*.c || exit 1
mkdir -p "$out/runtime" # a runtime that knows the thread's device
echo 'int cudaGetDevice(int *device) { *device = 3; return 0; }' |
  ${CC:-cc} -fPIC -shared -Wl,-soname,libcudart.so.12 -o "$out/runtime/libcudart.so.12" -x c - || exit 1
for test in oracle stream memory direct lent processes; do
  ${CC:-cc} $cflags -o "$out/$test" "cgo/cuda/tests/$test.c" cgo/cuda/tests/gpu.c cgo/cuda/tests/tests.c cgo/cuda/tests/vector.c cgo/rank/data.c cgo/rank/call.c \
    -Llib -lnccl -lm -ldl "-Wl,-rpath,$root/lib" || exit 1
done

# check NAME [VARIABLE=VALUE...] COMMAND...: one test, with a bound, its output shown only when it fails.
check() {
  name=$1; shift
  if timeout 300 env "$@" >"$out/$name.log" 2>&1; then
    echo "ok    $name"
  else
    echo "FAIL  $name (exit $?)"
    sed 's/^/      /' "$out/$name.log"
    failed=1
  fi
}

small="LIGHTPATH_DEVICE_EXCHANGE=1M" # so that messages are longer than slots
if [ -n "${LP_CUDA_REAL:-}" ]; then
  check device-oracle LIGHTPATH_DEVICE_PATH=staged "$out/oracle" 1 2 3 4
  check device-oracle-direct "$out/oracle" 1 2 3 4
  check device-oracle-lent "$out/oracle" -r -c 1000000 2 3 4
  check device-stream LIGHTPATH_DEVICE_PATH=staged "$out/stream" ordered issued grouped captured aborted orphaned scaled
  check device-stream-direct "$out/stream" ordered issued grouped captured aborted orphaned scaled
  check device-direct "$out/direct" mixed side_by_side messages from_host mismatched other_operator other_size late
  check device-lent "$out/lent" lent
  check device-direct-processes LIGHTPATH_DEVICE_PATH=direct "$out/processes" 2
else
  stub="LD_LIBRARY_PATH=$root/$out/stub"
  for path in staged direct; do
    check device-oracle-$path "$stub" "$small" STUB_CUDA_DEVICES=8 LIGHTPATH_DEVICE_PATH=$path "$out/oracle" 1 2 3 4
    check device-oracle-$path-shared "$stub" "$small" STUB_CUDA_DEVICES=1 LIGHTPATH_DEVICE_PATH=$path "$out/oracle" 3
    check device-stream-$path "$stub" "$small" STUB_CUDA_DEVICES=8 LIGHTPATH_DEVICE_PATH=$path "$out/stream" ordered issued grouped captured aborted orphaned \
      signalled ended scaled wrong defaults
  done
  check device-oracle-two-shot "$stub" STUB_CUDA_DEVICES=8 LIGHTPATH_DEVICE_PATH=direct LIGHTPATH_DEVICE_EXCHANGE=2M "$out/oracle" -c 70001 3
  check device-oracle-lent "$stub" STUB_CUDA_DEVICES=8 LIGHTPATH_DEVICE_PATH=direct LIGHTPATH_DEVICE_EXCHANGE=2M "$out/oracle" -r -c 70000 3
  check device-oracle-lent-shared "$stub" STUB_CUDA_DEVICES=1 LIGHTPATH_DEVICE_PATH=direct LIGHTPATH_DEVICE_EXCHANGE=2M "$out/oracle" -r -c 40001 2
  check device-oracle-direct-8 "$stub" "$small" STUB_CUDA_DEVICES=8 LIGHTPATH_DEVICE_PATH=direct "$out/oracle" 8
  check device-direct "$stub" "$small" STUB_CUDA_DEVICES=8 "$out/direct"
  check device-lent "$stub" "$small" STUB_CUDA_DEVICES=8 "$out/lent"
  check device-lent-more "$stub" STUB_CUDA_DEVICES=8 LIGHTPATH_DEVICE_EXCHANGE=2M "$out/lent" lent churn
  check device-direct-unreachable "$stub" "$small" STUB_CUDA_DEVICES=2 STUB_CUDA_PEERS=0 "$out/direct" unreachable
  check device-direct-full "$stub" "$small" STUB_CUDA_DEVICES=2 "$out/direct" full
  check device-direct-processes "$stub" LIGHTPATH_DEVICE_PATH=direct STUB_CUDA_DEVICES=8 "$out/processes" 3
  check device-direct-processes-two-shot "$stub" LIGHTPATH_DEVICE_PATH=direct STUB_CUDA_DEVICES=2 LIGHTPATH_DEVICE_EXCHANGE=4M "$out/processes" 4
  check device-direct-processes-shared "$stub" "$small" LIGHTPATH_DEVICE_PATH=direct STUB_CUDA_DEVICES=1 "$out/processes" 4
  check device-memory "$stub" STUB_CUDA_DEVICES=8 LIGHTPATH_DEVICE_PATH=staged "$out/memory" allocated full untouched
  check device-memory-direct "$stub" STUB_CUDA_DEVICES=8 LIGHTPATH_DEVICE_PATH=direct "$out/memory" allocated
  check device-memory-runtime LD_LIBRARY_PATH="$root/$out/stub:$root/$out/runtime" STUB_CUDA_DEVICES=8 "$out/memory" by_runtime
  check device-memory-old LD_LIBRARY_PATH="$root/$out/old" STUB_CUDA_VERSION=11040 "$out/memory" old
  check device-stream-refused "$stub" STUB_CUDA_DEVICES=8 LIGHTPATH_DEVICE_PATH=staged "$out/stream" refused
  check device-oracle-pieces "$stub" STUB_CUDA_DEVICES=8 LIGHTPATH_DEVICE_PATH=staged LIGHTPATH_STAGING=64K "$out/oracle" 1 3
  check device-oracle-pieces-tcp "$stub" STUB_CUDA_DEVICES=8 LIGHTPATH_STAGING=64K LIGHTPATH_TRANSPORT=tcp "$out/oracle" 3
  check device-oracle-tcp "$stub" STUB_CUDA_DEVICES=8 LIGHTPATH_TRANSPORT=tcp LIGHTPATH_PLANES=2 "$out/oracle" 3
  bench() { # NAME ARGUMENTS...: the harness over device memory, results checked
    name=device-bench-$1; shift
    check "$name" "$stub" STUB_CUDA_DEVICES=1 bin/lightpath bench --memory device "$@" -w 1 -i 3 -f 32 -e 1M
  }
  bench processes allreduce -n 3
  bench registered allreduce -n 3 --memory registered
  bench registered-graph alltoall -n 2 --graph 3 --memory registered
  bench threads reducescatter -n 2 --threads
  bench graph allgather -n 2 --graph 3
  bench graph-threads allreduce -n 2 --graph 3 --threads
  dir=$(mktemp -d) # sockets have short paths
  trap 'rm -rf "$dir"' EXIT
  cat >"$dir/fabric.yaml" <<EOF
version: 1
name: two
ranks: 4
planes:
  - {name: p0, bandwidth: 1Gbps, ocs: ocs0}
  - {name: p1, bandwidth: 1Gbps, ocs: ocs0}
ocs:
  - {name: ocs0, driver: emulator, endpoint: "unix:$dir/ocs.sock", reconfig: 1ms}
forwarding: true
EOF
  # Plans are for whole calls: what is staged for them is not cut.
  for collective in allreduce alltoall; do
    LIGHTPATH_STAGING=64K bench circuits-$collective $collective -n 4 --fabric "$dir/fabric.yaml" --planner swot --json "$dir/$collective.json"
    grep -q '"planner": *"swot"' "$dir/$collective.json" || { echo "FAIL  device-bench-circuits-$collective: not as planned"; failed=1; }
  done
  bench sync alltoall -n 2 --sync --library "$root/lib/libnccl.so.2"
fi
exit $failed
