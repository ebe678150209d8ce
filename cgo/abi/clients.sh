#!/bin/sh
# Whether the built lib/libnccl.so.2 has every function that released frameworks look for. Their lists are in clients/; a new one:
#   nm -D --undefined-only FILE.so | awk '$2 ~ /^p?nccl/ {print $2}' | sort -u
# What programs miss they say when they are loaded, or not before the function is called; this says it when it is built.
set -eu
export LC_ALL=C
cd "$(dirname "$0")"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

nm -D --defined-only ../../lib/libnccl.so.2 | awk '{print $3}' | sort -u >"$work/exported"

# missing LIST: the names of a list that are not exported.
missing() { sed '/^#/d' "$1" | sort -u | comm -23 - "$work/exported"; }

echo ncclNobodyHasThis >"$work/list"
[ "$(missing "$work/list")" = ncclNobodyHasThis ] || { echo "clients: a missing function is not found" >&2; exit 1; }

failed=0
for list in clients/*.txt; do
  names=$(missing "$list" | tr '\n' ' ')
  if [ -n "$names" ]; then
    echo "FAIL  $(sed -n '1s/^# //p' "$list"): $names"
    failed=1
  else
    echo "ok    $(sed -n '1s/^# //p' "$list"): $(sed '/^#/d' "$list" | wc -l) functions"
  fi
done
exit $failed
