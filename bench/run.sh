#!/usr/bin/env bash
# Times allreduce and alltoall over shared memory and TCP at 2, 4 and 8 ranks, 8 B to 64 MiB, with results
# checked. Prints tables, and writes JSON into build/bench/. Arguments replace the lists:
#   bench/run.sh "allreduce" "shm" "2 8"
set -euo pipefail
cd "$(dirname "$0")/.."
collectives=${1:-"allreduce alltoall"}
transports=${2:-"shm tcp"}
ranks=${3:-"2 4 8"}
mkdir -p build/bench
for c in $collectives; do
  for t in $transports; do
    for n in $ranks; do
      bin/lightpath bench "$c" -n "$n" -b 8 -e 64M -f 2 --transport "$t" --json "build/bench/$c-$t-$n.json"
    done
  done
done
