#!/bin/sh
# Tests of the interposer: plans and algorithms run as sends and receives of a libnccl for tests (peer.c), over the stub of
# the CUDA driver: interpose.sh [TEST...]
set -u
cd "$(dirname "$0")/../../.." || exit 1
root=$PWD
out=build/test-interpose
mkdir -p "$out/stub" "$out/peer"
failed=0
wanted=${*:-}

cflags="-std=gnu11 -O1 -g -Wall -Wextra -Werror -Wno-deprecated-declarations -Wno-missing-field-initializers -Icgo/front -pthread"
${CC:-cc} -std=gnu11 -O1 -g -Wall -Wextra -Werror -fPIC -fvisibility=hidden -shared -pthread -Wl,-soname,libcuda.so.1 \
  -o "$out/stub/libcuda.so.1" cgo/cuda/stub/*.c || exit 1
${CC:-cc} $cflags -fPIC -shared -Wl,-soname,libnccl.so.2 -o "$out/peer/libnccl.so.2" cgo/cuda/tests/peer.c cgo/cuda/tests/passed.c -ldl || exit 1
for test in oracle interpose; do
  ${CC:-cc} $cflags -o "$out/$test" "cgo/cuda/tests/$test.c" cgo/cuda/tests/gpu.c cgo/cuda/tests/tests.c cgo/cuda/tests/vector.c cgo/rank/data.c cgo/rank/call.c \
    -Llib -lnccl -lm -ldl "-Wl,-rpath,$root/lib" || exit 1
done

# check NAME [VARIABLE=VALUE...] COMMAND...: one test, with a bound, its output shown only when it fails.
check() {
  name=$1; shift
  case " ${wanted:-$name} " in *" $name "*) ;; *) return ;; esac
  if timeout 300 env "LD_LIBRARY_PATH=$root/$out/stub" STUB_CUDA_DEVICES=8 LIGHTPATH_FALLBACK=interpose \
    LIGHTPATH_NCCL_FALLBACK_LIB="$root/$out/peer/libnccl.so.2" "$@" >"$out/$name.log" 2>&1; then
    echo "ok    interpose-$name"
  else
    echo "FAIL  interpose-$name (exit $?)"
    tail -40 "$out/$name.log" | sed 's/^/      /'
    failed=1
  fi
}

direct=allreduce:ring,broadcast:direct,reduce:direct,allgather:ring,reducescatter:pairwise,alltoall:pairwise,gather:direct,scatter:direct
trees=allreduce:rabenseifner,broadcast:binomial,reduce:binomial,allgather:bruck,reducescatter:rabenseifner,alltoall:bruck,gather:binomial,scatter:binomial
others=allreduce:double-binary-tree,broadcast:ring,reduce:ring,allgather:recursive-doubling,reducescatter:ring,alltoall:pairwise-xor,gather:direct,scatter:direct
check oracle-direct LIGHTPATH_ALGORITHM=$direct PEER_ALL=1 "$out/oracle" 2 3 4
check oracle-trees LIGHTPATH_ALGORITHM=$trees PEER_ALL=1 "$out/oracle" 2 3 4
check oracle-others LIGHTPATH_ALGORITHM=$others PEER_ALL=1 "$out/oracle" 4
check oracle-eight LIGHTPATH_ALGORITHM=$trees PEER_ALL=1 "$out/oracle" 8
check oracle-shared STUB_CUDA_DEVICES=1 LIGHTPATH_ALGORITHM=$direct PEER_ALL=1 "$out/oracle" 3
few=LIGHTPATH_ALGORITHM=allreduce:ring,alltoall:pairwise
for test in ordered mixed captured scaled wrong ended refused unwell aborted broken; do
  check $test $few "$out/interpose" $test
done
check passed $few PEER_INITS=2 "$out/interpose" passed

# On planes with circuits: an emulated switch, whose log says when which circuits were there.
plane() { # NAME COMMAND...: the command with a fabric of 4 ranks and 2 planes, each a network of the library; then the audit
  name=$1; shift
  case " ${wanted:-$name} " in *" $name "*) ;; *) return ;; esac
  dir=$root/$out/$name
  rm -rf "$dir" && mkdir -p "$dir" || exit 1
  sock=$(mktemp -u /tmp/lightpath-interpose.XXXXXX)
  cat >"$dir/fabric.yaml" <<END
version: 1
ranks: 4
planes:
  - {name: p0, bandwidth: 8Gbps, ocs: ocs0}
  - {name: p1, bandwidth: 8Gbps, ocs: ocs0}
ocs:
  - {name: ocs0, driver: emulator, endpoint: "unix:$sock", reconfig: 300us}
costs: {alpha: 5us}
circuits: duplex
END
  printf 'version: 1\nfabric: fabric.yaml\nframe_log: frames.log\n' >"$dir/ocsd.yaml"
  bin/lightpath ocsd --config "$dir/ocsd.yaml" >"$dir/ocsd.log" 2>&1 &
  ocsd=$!
  while [ ! -S "$sock" ] && kill -0 $ocsd 2>/dev/null; do sleep 0.05; done
  check "$name" LIGHTPATH_FABRIC="$dir/fabric.yaml" LIGHTPATH_INTERPOSE_NETS=net0,net1 PEER_LOG="$dir/messages" LIGHTPATH_TIMEOUT=60s "$@"
  kill -INT $ocsd
  wait $ocsd
  rm -f "$sock"
  check "$name" "$out/audit" "$dir/frames.log" "$dir/messages" net0 net1
}
CGO_ENABLED=0 ${GO:-go} build -o "$out/audit" ./cgo/cuda/tests/audit || exit 1
few=LIGHTPATH_ALGORITHM=alltoall:pairwise-xor
plane circuits-lockstep PEER_DELAY_US=1000 LIGHTPATH_PLANNER=perstep $few "$out/interpose" circuits
plane circuits-swot PEER_DELAY_US=1000 LIGHTPATH_PLANNER=swot $few "$out/interpose" circuits
exit $failed
