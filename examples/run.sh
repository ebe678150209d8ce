#!/bin/sh
# Builds and runs the clients against lib/, with several ranks and over both packet transports.
set -eu
cd "$(dirname "$0")/.."
mkdir -p build/examples
# Uses only the installed header and library, as a user would.
${CC:-cc} -std=gnu11 -Wall -Wextra -Werror -I include examples/c/allreduce.c -L lib -lnccl \
  "-Wl,-rpath,$PWD/lib" -o build/examples/allreduce

# client LABEL COMMAND...: runs a client with a time limit. If it fails, this script fails.
client() {
  label=$1; shift
  said=$(timeout 120 "$@") || { echo "$label: failed"; exit 1; }
  echo "$label: $said"
}

python=${PYTHON:-python3}
for transport in shm tcp; do
  for ranks in 1 2 3 4; do
    client "c, $transport" env LIGHTPATH_TRANSPORT=$transport build/examples/allreduce $ranks
  done
  for ranks in 2 3; do
    client "python, $transport" env LIGHTPATH_TRANSPORT=$transport \
      "$python" examples/python/pynccl_client.py --ranks $ranks
  done
done

# The library is preloaded, as for programs that find another libnccl.so.2 by their RPATH.
client "python, preloaded" env "LD_PRELOAD=$PWD/lib/libnccl.so.2" \
  "$python" examples/python/pynccl_client.py --ranks 2 --library libnccl.so.2
client "python, lightpath run" bin/lightpath run -n 3 -- "$python" examples/python/allreduce.py
client "python, replay" bin/lightpath run -n 4 -- \
  "$python" examples/python/replay.py examples/traces/moe.json --iterations 2 --warmup 1
client "python, job on circuits" "$python" examples/python/replay_job.py --rate 50 --slow 0.2 --turns 1 --iterations 1 \
  --ways fast:critical -- --model gpt-7b --bandwidth 10 --micro-batches 2
