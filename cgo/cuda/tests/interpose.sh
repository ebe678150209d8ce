#!/bin/bash
# Tests of the interposer: plans and algorithms run as sends and receives of a libnccl for tests (peer.c), over the stub
# of the CUDA driver: interpose.sh [TEST...]
cd "$(dirname "$0")/../../.." || exit 1
out=build/test-interpose
. cgo/testing.sh

tests=cgo/cuda/tests
library stub/libcuda.so.1 libcuda.so.1 cgo/cuda/stub/*.c
library peer/libnccl.so.2 libnccl.so.2 -fvisibility=default $tests/peer.c $tests/passed.c -ldl
shared="$tests/gpu.c $tests/tests.c $tests/vector.c cgo/rank/data.c cgo/rank/call.c"
for test in oracle interpose; do compile $test $tests/$test.c $shared $link; done
compiled
CGO_ENABLED=0 ${GO:-go} build -trimpath -o "$out/audit" ./cgo/cuda/tests/audit || exit 1

interpose() { # NAME [VARIABLE=VALUE...] COMMAND...
  local name=interpose-$1
  shift
  check "$name" LD_LIBRARY_PATH="$root/$out/stub" STUB_CUDA_DEVICES=8 LIGHTPATH_FALLBACK=interpose \
    LIGHTPATH_NCCL_FALLBACK_LIB="$root/$out/peer/libnccl.so.2" "$@"
}

direct=allreduce:ring,broadcast:direct,reduce:direct,allgather:ring,reducescatter:pairwise,alltoall:pairwise
direct=$direct,gather:direct,scatter:direct
trees=allreduce:rabenseifner,broadcast:binomial,reduce:binomial,allgather:bruck,reducescatter:rabenseifner,alltoall:bruck
trees=$trees,gather:binomial,scatter:binomial
others=allreduce:double-binary-tree,broadcast:ring,reduce:ring,allgather:recursive-doubling,reducescatter:ring
others=$others,alltoall:pairwise-xor,gather:direct,scatter:direct
interpose oracle-eight LIGHTPATH_ALGORITHM=$trees PEER_ALL=1 "$out/oracle" -e $sample -s 4 8
interpose oracle-direct LIGHTPATH_ALGORITHM=$direct PEER_ALL=1 "$out/oracle" -s 4 2 3 4
interpose oracle-trees LIGHTPATH_ALGORITHM=$trees PEER_ALL=1 "$out/oracle" -e $sample -s 4 2 3 4
interpose oracle-others LIGHTPATH_ALGORITHM=$others PEER_ALL=1 "$out/oracle" -e $sample 4
interpose oracle-shared STUB_CUDA_DEVICES=1 LIGHTPATH_ALGORITHM=$direct PEER_ALL=1 "$out/oracle" -e $sample 3
few=LIGHTPATH_ALGORITHM=allreduce:ring,alltoall:pairwise
for test in ordered mixed simulated captured scaled wrong ended refused unwell aborted broken; do
  interpose $test $few "$out/interpose" $test
done
interpose passed $few PEER_INITS=2 "$out/interpose" passed

few=LIGHTPATH_ALGORITHM=alltoall:pairwise-xor
for planner in perstep swot; do
  interpose circuits-$planner PEER_DELAY_US=1000 LIGHTPATH_PLANNER=$planner $few \
    $tests/circuits.sh "$root/$out" $planner
done
finish
