#!/bin/sh
# Checks that lib/libnccl.so.2 has every function that released frameworks need. Their lists are in clients/; a new
# list:
#   nm -D --undefined-only FILE.so | awk '$2 ~ /^p?nccl/ {print $2}' | sort -u
# A program would report a missing function when it is loaded, or when it calls the function.
set -eu
export LC_ALL=C
cd "$(dirname "$0")"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

nm -D --defined-only ../../lib/libnccl.so.2 | awk '{print $3}' | sort -u >"$work/exported"

# missing LIST: the names of a list that are not exported.
missing() { sed '/^#/d' "$1" | sort -u | comm -23 - "$work/exported"; }

echo ncclMissing >"$work/list"
[ "$(missing "$work/list")" = ncclMissing ] || { echo "clients: a missing function is not found" >&2; exit 1; }

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
