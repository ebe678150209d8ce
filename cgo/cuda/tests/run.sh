#!/bin/bash
# Builds the stub of the CUDA driver and runs the tests of device memory and streams over it: run.sh [TEST...]. With
# LP_CUDA_REAL=1 they run over the machine's own driver, one at a time, except for the tests that need the stub's
# errors.
cd "$(dirname "$0")/../../.." || exit 1
out=${LP_CUDA_OUT:-build/test-cuda}
real=${LP_CUDA_REAL:-}
[ -z "$real" ] || TEST_JOBS=1
. cgo/testing.sh

tests=cgo/cuda/tests
library stub/libcuda.so.1 libcuda.so.1 cgo/cuda/stub/*.c
# A driver that lacks a function, and a runtime that knows the thread's device.
library old/libcuda.so.1 libcuda.so.1 -DcuMemcpy2DAsync_v2=cuMemcpy2DAsync cgo/cuda/stub/*.c
echo 'int cudaGetDevice(int *device); int cudaGetDevice(int *device) { *device = 3; return 0; }' >"$out/runtime.c"
library runtime/libcudart.so.12 libcudart.so.12 -fvisibility=default "$out/runtime.c"
shared="$tests/gpu.c $tests/tests.c $tests/vector.c cgo/rank/data.c cgo/rank/call.c"
for test in oracle stream memory direct lent recurring processes patterns model costs start; do
  compile $test $tests/$test.c $shared $link
done
compiled

# The text of which the machine code of kernels was made: the stub runs it where it loads the code.
mkdir -p "$out/ptx"
python3 cgo/cuda/kernels/join.py cgo/cuda/kernels/kernels.zip "$out/ptx" 80 90 100 || exit 1
code="STUB_CUDA_PTX=$root/$out/ptx STUB_CUDA_ARCH=90"

if [ -n "$real" ]; then
  check device-oracle LIGHTPATH_DEVICE_PATH=staged "$out/oracle" 1 2 3 4
  check device-oracle-direct "$out/oracle" 1 2 3 4
  check device-oracle-lent "$out/oracle" -r -c 1000000 2 3 4
  check device-stream LIGHTPATH_DEVICE_PATH=staged "$out/stream" ordered issued grouped captured aborted orphaned scaled
  check device-stream-direct "$out/stream" ordered issued grouped captured aborted orphaned scaled
  check device-direct "$out/direct" mixed side_by_side messages from_host mismatched other_operator other_size late
  check device-lent "$out/lent" lent
  check device-recurring LIGHTPATH_DEVICE_EXCHANGE=2M "$out/recurring" processes replaced expandable captured remapped
  check device-direct-processes LIGHTPATH_DEVICE_PATH=direct "$out/processes" 2
  finish
fi

# device NAME DEVICES [VARIABLE=VALUE...] COMMAND...: over a stub with so many devices.
device() {
  local name=device-$1 devices=$2
  shift 2
  check "$name" LD_LIBRARY_PATH="$root/$out/stub" STUB_CUDA_DEVICES="$devices" "$@"
}
small="LIGHTPATH_DEVICE_EXCHANGE=1M" # messages are longer than slots
direct="LIGHTPATH_DEVICE_PATH=direct"
staged="LIGHTPATH_DEVICE_PATH=staged"
large="LIGHTPATH_DEVICE_EXCHANGE=2M" # sums of types of 4 bytes and more take two exchanges

# The longest first. Every Nth call of an oracle is enough where another test makes all.
device oracle-direct-8 8 $small $direct "$out/oracle" -e $sample -s 4 8
device lent 8 $small "$out/lent" lent lender_aborts reader_aborts
device direct 8 $small "$out/direct"
device lent-more 8 $large "$out/lent" lent churn
device oracle-two-shot 8 $direct $large "$out/oracle" -e $sample -s 4 -c 70001 3
device oracle-lent 8 $direct $large "$out/oracle" -e $sample -r -s 4 -c 70000 3
device oracle-lent-all 8 $direct $small "$out/oracle" -e $sample -r 3
for mode in threads processes; do
  device recurring-$mode 8 $large "$out/recurring" $mode
  device recurring-$mode-shared 1 $large "$out/recurring" $mode second replaced expandable captured remapped messages
done
for path in staged direct; do
  device oracle-$path 8 $small LIGHTPATH_DEVICE_PATH=$path "$out/oracle" 1 2 3 4
  device oracle-$path-shared 1 $small LIGHTPATH_DEVICE_PATH=$path "$out/oracle" 3
  device stream-$path 8 $small LIGHTPATH_DEVICE_PATH=$path "$out/stream" ordered issued grouped captured aborted orphaned \
    signalled ended scaled wrong defaults
done
device model-queues 1 STUB_CUDA_QUEUES=8 "$out/model" shared_queue full_queue
device model-driver-queues 1 CUDA_DEVICE_MAX_CONNECTIONS=8 STUB_CUDA_QUEUES=driver "$out/model" shared_queue
# The library asks for 32 queues before the driver starts, so that ranks can share a context.
device oracle-driver-queues 1 STUB_CUDA_QUEUES=driver $small $direct "$out/oracle" -e $sample -s 8 3
device model-events 1 "$out/model" recorded_again
device model-drain 1 STUB_CUDA_DRAIN=all "$out/model" drained
device model-drain-one 1 STUB_CUDA_DRAIN=cuMemAlloc "$out/model" not_drained
rm -rf "$out/share" "$out/share-costs" && mkdir -p "$out/share" "$out/share-costs"
device model-slice 1 STUB_CUDA_SLICE=100 STUB_CUDA_SHARE="$root/$out/share" "$out/model" sliced
device model-clock 1 STUB_CUDA_CLOCK="$root/$out/clock.json" STUB_CUDA_SHARE="$root/$out/share" STUB_CUDA_SKIP=65536 \
  "$out/model" timed
# The hostile modes of the stub (docs/design/gpu-model.md). With LIGHTPATH_TEST_LONG every suite runs in all modes that it
# has, else in those that delay most: one queue, and a driver that waits for its streams.
declare -A mode=(
  [q1]="CUDA_DEVICE_MAX_CONNECTIONS=1 STUB_CUDA_QUEUES=driver"
  [q8]="CUDA_DEVICE_MAX_CONNECTIONS=8 STUB_CUDA_QUEUES=driver"
  [q32]="CUDA_DEVICE_MAX_CONNECTIONS=32 STUB_CUDA_QUEUES=driver"
  [drain]="STUB_CUDA_DRAIN=all"
  [slice]="STUB_CUDA_SLICE=100 STUB_CUDA_SHARE=$root/$out/share"
)
all="q1 q8 q32 drain slice"
# hostile NAME MODES DEVICES [VARIABLE=VALUE...] COMMAND...
hostile() {
  local name=$1 modes=$2 devices=$3 m few=
  shift 3
  for m in $modes; do
    case $m in q1 | drain) few="$few $m" ;; esac
  done
  [ -n "${LIGHTPATH_TEST_LONG:-}" ] || modes=${few:-${modes%% *}}
  for m in $modes; do device "hostile-$m-$name" "$devices" ${mode[$m]} "$@"; done
}
# With one queue, the copies that a test makes itself wait behind a stream that waits.
calls="issued grouped captured aborted ended wrong defaults"
groups="mixed messages from_host mismatched other_operator other_size ahead ahead_messages related one_thread refused"
patterns="megatron ddp several_messages two_captures another_ends"
for path in direct staged; do
  hostile oracle-$path "$all" 8 $small LIGHTPATH_DEVICE_PATH=$path "$out/oracle" -e $sample -s 8 3
  hostile stream-$path "q1 q8 slice" 8 $small LIGHTPATH_DEVICE_PATH=$path "$out/stream" $calls
  hostile stream-$path "q32 drain" 8 $small LIGHTPATH_DEVICE_PATH=$path "$out/stream" ordered $calls orphaned signalled
  hostile patterns-$path "$all" 8 $small LIGHTPATH_STAGING=64K LIGHTPATH_DEVICE_PATH=$path "$out/patterns" $patterns
  hostile early-$path "q8 q32 drain slice" 8 $small LIGHTPATH_STAGING=64K LIGHTPATH_DEVICE_PATH=$path \
    "$out/patterns" early_receive
  hostile early-$path q1 8 $small LIGHTPATH_STAGING=64K LIGHTPATH_DEVICE_PATH=$path "$out/patterns" early_receive_fails
  hostile memory-$path "$all" 8 LIGHTPATH_DEVICE_PATH=$path "$out/memory" allocated
  # Ranks of one context need as many queues as they have streams.
  hostile shared-$path "q32 drain slice" 1 $small LIGHTPATH_DEVICE_PATH=$path "$out/oracle" -e $sample -s 8 3
  hostile threads-$path "q32 slice" 1 $small LIGHTPATH_STAGING=64K LIGHTPATH_DEVICE_PATH=$path "$out/patterns" eight
  hostile shared-$path q8 1 $small LIGHTPATH_DEVICE_PATH=$path "$out/patterns" shared_queue
  hostile shared-$path q1 1 $small LIGHTPATH_DEVICE_PATH=$path "$out/patterns" one_context
done
hostile threads drain 1 $small $direct "$out/patterns" eight
hostile threads-whole drain 1 $staged LIGHTPATH_STAGING=16M "$out/patterns" eight
hostile direct "q1 q8 drain slice" 8 $small "$out/direct" $groups
hostile lent "$all" 8 $large "$out/lent" lent
hostile oracle-lent "$all" 8 $large $direct "$out/oracle" -e $sample -r -s 8 -c 70000 2
hostile processes "$all" 8 $direct "$out/processes" 2
hostile processes-shared "$all" 1 $small $direct "$out/processes" 4
# A group whose receive needs its own later send: its messages fit into the slots if its streams may share a queue.
hostile relay "q1 q8" 8 LIGHTPATH_DEVICE_EXCHANGE=16M "$out/direct" side_by_side
hostile relay "q32 drain slice" 8 $small "$out/direct" side_by_side
hostile late "q32 drain" 8 $small "$out/direct" late
hostile shared-context q32 1 $small "$out/direct" ahead ahead_messages
hostile recurring drain 8 $large "$out/recurring" processes second replaced captured messages posted_early
hostile recurring q8 8 $large "$out/recurring" processes replaced expandable captured posted_early
hostile recurring q1 8 $large "$out/recurring" processes second replaced captured
hostile recurring slice 1 $large "$out/recurring" processes second replaced expandable
device model-costs 1 STUB_CUDA_CLOCK="$root/$out/clock.json" STUB_CUDA_SHARE="$root/$out/share-costs" \
  STUB_CUDA_SKIP=65536 "$out/costs" exact
for how in threads processes; do
  share=$root/$out/share-start-$how
  rm -rf "$share" && mkdir "$share"
  device model-start-$how 1 $code STUB_CUDA_CLOCK="$share/clock.json" STUB_CUDA_SHARE="$share" "$out/start" $how 4 300
done
device oracle-machine-code 8 $code $small $direct "$out/oracle" -e $sample -s 8 2
device oracle-lent-shared 1 $direct $large "$out/oracle" -e $sample -r -s 4 -c 40001 2
device direct-unreachable 2 $small STUB_CUDA_PEERS=0 "$out/direct" unreachable
device direct-full 2 $small "$out/direct" full
device direct-processes 8 $direct "$out/processes" 3
device direct-processes-two-shot 2 $direct LIGHTPATH_DEVICE_EXCHANGE=4M "$out/processes" 4
device direct-processes-shared 1 $small $direct "$out/processes" 4
device memory 8 $staged LIGHTPATH_STAGING=64K "$out/memory" allocated full untouched
device memory-direct 8 $direct "$out/memory" allocated
check device-memory-runtime LD_LIBRARY_PATH="$root/$out/stub:$root/$out/runtime" STUB_CUDA_DEVICES=8 \
  "$out/memory" by_runtime
check device-memory-old LD_LIBRARY_PATH="$root/$out/old" STUB_CUDA_VERSION=11040 "$out/memory" old
device stream-refused 8 $staged "$out/stream" refused
device oracle-pieces 8 $staged LIGHTPATH_STAGING=64K "$out/oracle" 1 3
device oracle-pieces-tcp 8 LIGHTPATH_STAGING=64K LIGHTPATH_TRANSPORT=tcp "$out/oracle" 3
device oracle-tcp 8 LIGHTPATH_TRANSPORT=tcp LIGHTPATH_PLANES=2 "$out/oracle" 3

bench() { # NAME ARGUMENTS...: the harness over device memory, results checked
  local name=bench-$1
  shift
  device "$name" 1 bin/lightpath bench --memory device "$@" -w 1 -i 3 -f 32 -e 1M
}
bench processes allreduce -n 3
bench registered allreduce -n 3 --memory registered
bench registered-graph alltoall -n 2 --graph 3 --memory registered
bench threads reducescatter -n 2 --threads
bench threads-8 alltoall -n 8 --threads
bench graph allgather -n 2 --graph 3
bench graph-threads allreduce -n 2 --graph 3 --threads
bench sync alltoall -n 2 --sync --library "$lib"

# A collective makes at most six calls of the driver besides those that enqueue its work (and one for the timing).
share=$root/$out/share-host-calls
rm -rf "$share" && mkdir "$share"
device bench-host-calls 1 $direct STUB_CUDA_CLOCK="$share/clock.json" STUB_CUDA_SHARE="$share" sh -c "
  bin/lightpath bench allreduce --memory device -n 2 -w 2 -i 4 -b 8 -e 8 -c 0 --out-of-place &&
    python3 cgo/cuda/tests/calls.py '$share/clock.json' 4 6"

# Over planes with circuits. Plans are for whole calls: staging does not cut them.
dir=$(mktemp -d) # sockets have short paths
trap 'rm -rf "$dir"' EXIT
for collective in allreduce alltoall; do
  cat >"$dir/$collective.yaml" <<EOF
version: 1
name: two
ranks: 4
planes:
  - {name: p0, bandwidth: 1Gbps, ocs: ocs0}
  - {name: p1, bandwidth: 1Gbps, ocs: ocs0}
ocs:
  - {name: ocs0, driver: emulator, endpoint: "unix:$dir/$collective.sock", reconfig: 1ms}
forwarding: true
EOF
  device bench-circuits-$collective 1 LIGHTPATH_STAGING=64K sh -c "
    bin/lightpath bench --memory device $collective -n 4 -w 1 -i 3 -f 32 -e 1M --fabric '$dir/$collective.yaml' \
      --planner swot --json '$dir/$collective.json' && grep '\"planner\": *\"swot\"' '$dir/$collective.json'"
done
finish
