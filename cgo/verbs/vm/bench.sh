#!/usr/bin/env bash
# bench.sh : times the transport and perftest's programs by turns, on soft-RoCE in the machine of run.sh. Compare these
# rates only with each other: the machine is emulated. Each is measured ROUNDS times, and again while the threads that
# process packets (ksoftirqd) may interrupt threads that poll, which shows what polling delays.
set -euo pipefail
cd "$(dirname "$0")/../../.."
rounds=${ROUNDS:-3}
for tool in ib_write_bw:perftest ib_write_lat:perftest chrt:util-linux; do
  command -v "${tool%%:*}" >/dev/null || { echo "skip: no ${tool%%:*} (package ${tool##*:})"; exit 0; }
done
mkdir -p build
go test -c -o build/verbs.test ./cgo/verbs
verbs=$PWD/build/verbs.test
measure='
perftest() {
  $* -d rxeb0 -x 1 -F >/tmp/server 2>&1 & sleep 3
  echo "$1 $2 $3 $4 $5: $($* -d rxea0 -x 1 -F 10.0.0.2 | grep -A1 "#bytes" | tail -1)"; wait
}
each() {
  for c in RC UC; do perftest ib_write_lat -c $c -s 72 -n 200; perftest ib_write_bw -c $c -s 4096 -n 200; done
  VERBS -test.run ^$ -test.benchtime 0.2s \
    -test.bench "Transport/(RC|UC)/(latency-8B|bandwidth-64KiB)|Transport/RC-32slots/bandwidth-64KiB" | grep ^Benchmark
}
# The devices' counters: packets, and packets that were sent again or refused without a posted receive.
count() {
  for c in sent_pkts duplicate_request out_of_seq_request rcvd_rnr_err; do
    printf "%s %s  " $c $(($(cat /sys/class/infiniband/rxe[ab]0/ports/1/hw_counters/$c | paste -sd+)))
  done
  echo
}
echo "packets of 9 messages of 1 MiB"
for k in RC RC-32slots UC; do
  count
  VERBS -test.run ^$ -test.bench "Transport/$k\$/bandwidth-1024KiB" -test.benchtime 8x | grep ^Benchmark
done
count
daemons=$(for p in /proc/[0-9]*; do read -r name <$p/comm; [[ $name != ksoftirqd* ]] || echo ${p#/proc/}; done)
for round in $(seq ROUNDS); do
  echo "round $round, ksoftirqd as it is"
  for p in $daemons; do chrt -o -p 0 $p >/dev/null; done
  each
  echo "round $round, ksoftirqd before all others"
  for p in $daemons; do chrt -f -p 50 $p >/dev/null; done
  each
done'
measure=${measure//VERBS/$verbs}
measure=${measure//ROUNDS/$rounds}
status=0
files=(-f "$verbs")
for tool in ib_write_bw ib_write_lat chrt; do files+=(-f "$(command -v $tool)"); done
cgo/verbs/vm/run.sh "${files[@]}" "$measure" || status=$?
[ "$status" != 77 ] || exit 0 # run.sh has said why
exit "$status"
