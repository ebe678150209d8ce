#!/bin/bash
# Prints what recording costs a call: a loop of calls of a libnccl that does nothing, without the recorder and with it,
# by turns. cgo/record/tests/run.sh builds the programs.
cd "$(dirname "$0")/../../../build/test-record" || exit 1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for turn in 1 2 3 4 5; do
  echo "$turn without: $(LD_PRELOAD=$PWD/fake/libnccl.so.2 ./job cost 1)"
  echo "$turn with:    $(LD_PRELOAD=$PWD/../../lib/liblightpath-record.so LIGHTPATH_ITERATION_RECORD=$folder/$turn \
    LIGHTPATH_ITERATION_LIBRARY=$PWD/fake/libnccl.so.2 ./job cost 1)"
done
