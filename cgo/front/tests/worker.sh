#!/bin/sh
# Tests the benchmark worker's check of results: worker.sh WORKER LIAR DIR. It finds no wrong result of any collective,
# type and operator with 3 ranks in one process, and finds results of which liar.c has changed one byte.
set -eu
worker=$1 liar=$2 dir=$3
types="int8 uint8 int32 uint32 int64 uint64 half float double bfloat16 f8e4m3 f8e5m2"
job() {
  printf 'rank=0\nworld=3\nthreads=3\nrendezvous=%s/id\n' "$dir"
  for type in $types; do
    for collective in $1; do
      for op in $2; do
        for inplace in $3; do
          echo "run collective=$collective type=$type op=$op root=2 bytes=0 count=67 warmup=0 iters=1 check=1" \
            "inplace=$inplace mode=loop"
        done
      done
    done
  done
}
# reports JOB WRONG [PRELOAD]: every report of the job must have this number of wrong elements per rank.
reports() {
  LD_PRELOAD=${3:-} "$worker" --job "$1" >"$1.out"
  runs=$(grep -c '^run' "$1")
  right=$(grep -c "\"wrong\":$2}" "$1.out")
  [ "$right" -eq $((3 * runs)) ] || { echo "$1: $right of $((3 * runs)) reports say $2 wrong"; exit 1; }
}
mkdir -p "$dir"
job "allreduce reduce reducescatter" "sum prod max min avg" "0 1" >"$dir/reductions"
job "broadcast allgather gather scatter" sum "0 1" >"$dir/copies"
job "alltoall sendrecv" sum 0 >"$dir/exchanges"
job "allreduce alltoall" sum 0 >"$dir/spoiled"
for set in reductions copies exchanges; do reports "$dir/$set" 0; done
reports "$dir/spoiled" 1 "$liar"
