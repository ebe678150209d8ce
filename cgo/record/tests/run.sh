#!/bin/bash
# Tests of the recorder of calls, over Lightpath and over another libnccl: run.sh [TEST...]
cd "$(dirname "$0")/../../.." || exit 1
out=build/test-record
. cgo/testing.sh

tests=cgo/record/tests
recorder=$root/lib/liblightpath-record.so
compile job $tests/job.c $link
library null/libnccl.so.2 libnccl.so.2 -fvisibility=default $tests/null.c
compiled
null=$root/$out/null/libnccl.so.2

# The recorder has each function of libnccl.so.2.
symbols() { nm -D --defined-only "$1" | awk '$3 ~ /^p?nccl/ {print $3}' | sort -u; }
functions() { [ -z "$(comm -23 <(symbols lib/libnccl.so.2) <(symbols "$recorder"))" ]; }
export -f symbols functions
check functions recorder="$recorder" bash -c functions

# recorded NAME MODE RANKS PATTERN [VARIABLE=VALUE...]: records a job, merges its files, and finds PATTERN in what is said.
cat >"$out/recorded.sh" <<'END'
folder=$OUT/files-$1
rm -rf "$folder"
LD_PRELOAD=$RECORDER LIGHTPATH_ITERATION_RECORD=$folder "$OUT/job" $2 $3 || exit 1
bin/lightpath iteration record --merge "$folder" -o "$folder/trace.json" 2>"$folder/said"
cat "$folder/said" "$folder/trace.json"
tr '\n' ' ' <"$folder/said" | cat - "$folder/trace.json" | tr '\n' ' ' | grep -qE -- "$4"
END
recorded() {
  local name=$1 mode=$2 ranks=$3 pattern=$4
  shift 4
  check "$name" OUT="$root/$out" RECORDER="$recorder" LIGHTPATH_ITERATION_LIBRARY="$null" "$@" \
    bash "$out/recorded.sh" "$name" "$mode" "$ranks" "$pattern"
}
mine=$root/lib/libnccl.so.2
three='8 iterations of 3 calls, after 1 others.*allreduce.*allgather.*flows":\[\[0,1\],\[1,2\],\[2,3\],\[3,0\]\], "bytes":400'
halves='"groups":\[\[0,2\],\[1,3\]\]'
recorded train-lightpath train 4 "$three" LIGHTPATH_ITERATION_LIBRARY="$mine"
recorded train-other train 4 "$three"
recorded halves train 4 "$halves"
recorded varies train 4 '8 iterations of 3 calls.*sizes of sends change.*"bytes":412' JOB_VARIES=1
recorded killed killed 4 "$three"
recorded threads threads 2 'made 20000 calls'
recorded full full 2 'made 32768 calls: .* iterations of 5 calls'
recorded fork forks 1 'no process has recorded' # a job of one rank has no calls that communicate
finish
