#!/usr/bin/env bash
# test.sh [PATTERN] : tests RDMA planes on soft-RoCE, in the machine of run.sh: package verbs, then ranks as processes
# through libnccl.so.2, with their results checked.
set -euo pipefail
cd "$(dirname "$0")/../../.."
mkdir -p build
go test -c -trimpath -o build/verbs.test ./cgo/verbs
here=$PWD
verbs=$here/build/verbs.test
files=(-f "$verbs")
for f in bin/lightpath bin/lightpath-rank lib/libnccl.so.2 lib/liblightpath.so; do files+=(-f "$here/$f"); done
command="${LIGHTPATH_TEST_LONG:+export LIGHTPATH_TEST_LONG=1;}
  $verbs -test.v -test.timeout 800s ${1:+-test.run '$1'} || exit 1
  export NCCL_IB_HCA='=rxea0:1:0:0,rxeb0:1:1:0,rxea1:1:0:1,rxeb1:1:1:1' NCCL_IB_TIMEOUT=20
  $here/bin/lightpath topo || exit 1
  LIGHTPATH_TRANSPORT=rdma $here/bin/lightpath doctor | grep -E '^(ok|FAIL) +(rdma|environment)' || exit 1
  for collective in allreduce alltoall; do
    $here/bin/lightpath bench \$collective -n 4 --transport rdma --planes 2 -b 8 -e 128K -f 16 -w 1 -i 2 -c 1 || exit 1
  done"
status=0
RUN_LIMIT=${RUN_LIMIT:-1000} cgo/verbs/vm/run.sh "${files[@]}" "$command" || status=$?
[ "$status" != 77 ] || exit 0 # run.sh has said why
exit "$status"
