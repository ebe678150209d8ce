#!/bin/bash
# Tests of the recorder of calls, over Lightpath and over another libnccl: run.sh [TEST...]
cd "$(dirname "$0")/../../.." || exit 1
out=build/test-record
. cgo/testing.sh

tests=cgo/record/tests
recorder=$root/lib/liblightpath-record.so
compile job $tests/job.c $link
for test in group ends nonblocking membership properties redop; do compile $test cgo/front/tests/$test.c $link; done
library fake/libnccl.so.2 libnccl.so.2 -fvisibility=default cgo/front/tests/fake.c
compiled
fake=$root/$out/fake/libnccl.so.2

# The recorder has each function of libnccl.so.2.
symbols() { nm -D --defined-only "$1" | awk '$3 ~ /^p?nccl/ {print $3}' | sort -u; }
functions() { [ -z "$(comm -23 <(symbols lib/libnccl.so.2) <(symbols "$recorder"))" ]; }
export -f symbols functions
check functions recorder="$recorder" bash -c functions

# The tests of libnccl.so.2 pass through the recorder.
for test in group ends nonblocking membership properties redop; do
  check through-$test LD_PRELOAD="$recorder" LIGHTPATH_ITERATION_RECORD="$root/$out/files-through" "$out/$test"
done

# recorded NAME MODE RANKS PATTERN [VARIABLE=VALUE...]: records a job, merges its files, and finds PATTERN in what is
# said.
cat >"$out/recorded.sh" <<'END'
folder=$OUT/files-$1
rm -rf "$folder"
mkdir -p "$folder"
LD_PRELOAD=$RECORDER LIGHTPATH_ITERATION_RECORD=${LIGHTPATH_ITERATION_RECORD:-$folder} "$OUT/job" $2 $3 \
  2>"$folder/said" || exit 1
bin/lightpath iteration record --merge "$folder" >"$folder/trace.json" 2>>"$folder/said"
cat "$folder/said" "$folder/trace.json" | tee "$folder/all"
tr '\n' ' ' <"$folder/all" | grep -qE -- "$4"
END
recorded() {
  local name=$1 mode=$2 ranks=$3 pattern=$4
  shift 4
  check "$name" OUT="$root/$out" RECORDER="$recorder" LIGHTPATH_ITERATION_LIBRARY="$fake" "$@" \
    bash "$out/recorded.sh" "$name" "$mode" "$ranks" "$pattern"
}
mine=$root/lib/libnccl.so.2
three='8 iterations of 3 calls, after 1 others.*allreduce.*allgather.*'
three+='flows":\[\[0,1\],\[1,2\],\[2,3\],\[3,0\]\], "bytes":400'
halves='"groups":\[\[0,2\],\[1,3\]\]'
recorded train-lightpath train 4 "$three" LIGHTPATH_ITERATION_LIBRARY="$mine"
recorded train-other train 4 "$three"
recorded halves train 4 "$halves"
recorded varies train 4 '8 iterations of 3 calls.*sizes of sends change.*"bytes":414' JOB_VARIES=1
recorded killed killed 4 "$three"
recorded threads threads 2 'made 10000 calls'
recorded full full 2 'made 32768 calls: .* iterations of 5 calls'
recorded many many 2 'repeats in these calls: 1024 calls'
recorded fork forks 1 'no call of two or more ranks'
recorded unwritable train 2 'is not recorded: /dev/null/.*: Not a directory' LIGHTPATH_ITERATION_RECORD=/dev/null/folder

# The library gets the calls as the job makes them, from the recorder as without it.
passed() {
  rm -f "$OUT"/log-*
  FAKE_LOG=$OUT/log-direct LD_PRELOAD=$FAKE "$OUT/job" forms 1 && FAKE_LOG=$OUT/log-passed LD_PRELOAD=$RECORDER \
    LIGHTPATH_ITERATION_RECORD=$OUT/files-passed LIGHTPATH_ITERATION_LIBRARY=$FAKE "$OUT/job" forms 1 2>"$OUT/passed" &&
    [ "$(wc -l <"$OUT/log-direct")" = 17 ] && diff "$OUT/log-direct" "$OUT/log-passed" && cat "$OUT/passed" &&
    grep -q '^lightpath iteration record: ncclScatter: the library that makes the calls lacks it$' "$OUT/passed"
}
# A child of fork has a file of its own, and the parent keeps its own.
forked() {
  rm -rf "$OUT/files-forked"
  LD_PRELOAD=$RECORDER LIGHTPATH_ITERATION_RECORD=$OUT/files-forked LIGHTPATH_ITERATION_LIBRARY=$FAKE "$OUT/job" forks 1
  [ "$(for f in "$OUT"/files-forked/*; do od -A n -t u8 -j 48 -N 8 "$f"; done | sort -n | xargs)" = '3 5001' ]
}
# Without a library that can make the calls they fail, with one line.
refused() { # LIBRARY PATTERN
  local said=$OUT/refused-$$ # several run at a time
  LD_PRELOAD=$RECORDER LIGHTPATH_ITERATION_LIBRARY=$1 "$OUT/job" full 1 >"$said" 2>&1 && return 1
  cat "$said"
  [ "$(grep -c '^lightpath iteration record: ' "$said")" = 1 ] && grep -q "$2" "$said"
}
# The command runs the job, whatever library it names, and passes its failure on.
records() {
  bin/lightpath iteration record --library "$FAKE" -o "$OUT/command.json" -- "$OUT/job" train 4 &&
    bin/lightpath iteration record -- bin/lightpath run -n 2 -- "$OUT/job" train 2 >"$OUT/nested" || return 1
  ! bin/lightpath iteration record --library "$FAKE" -- sh -c "'$OUT/job' train 2; exit 3" >/dev/null 2>"$OUT/said" &&
    cat "$OUT/said" && grep -q 'exit status 3' "$OUT/said" && grep -q allgather "$OUT/command.json"
}
# A signal ends the job, which takes longer than commands that only compute may. Its calls become a trace.
signalled() {
  rm -f "$OUT/signalled.json"
  timeout --preserve-status --foreground 1 bin/lightpath iteration record --library "$FAKE" -o "$OUT/signalled.json" -- \
    sh -c "trap : TERM; sleep 3; '$OUT/job' train 4" 2>"$OUT/signalled"
  local status=$?
  cat "$OUT/signalled"
  [ $status = 143 ] && grep -q 'stopped by SIGTERM: the best trace until then' "$OUT/signalled" &&
    grep -q allgather "$OUT/signalled.json"
}
export -f passed forked refused records signalled
with=(OUT="$root/$out" RECORDER="$recorder" FAKE="$fake" bash -c)
check passed "${with[@]}" passed
check forked "${with[@]}" forked
check no-library "${with[@]}" 'refused /nowhere/libnccl.so.2 "cannot load"'
check itself "${with[@]}" 'refused "$RECORDER" "is the recorder itself"'
check command "${with[@]}" records
check signalled "${with[@]}" signalled
finish
