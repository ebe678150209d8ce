#!/bin/bash
# Checks kernels.zip: its modules are what make.sh makes of reduce.cu, its machine code was made of these modules, and
# NVIDIA's assembler, for each generation of devices, spills no register and makes loads and stores of 16 bytes. A check
# without its tools is skipped, with the reason:
#   clang-16              (Debian's package; $CLANG)
#   ptxas, nvdisasm       (PyPI: nvidia-cuda-nvcc, nvidia-cuda-nvdisasm; $PTXAS, $NVDISASM)
# With -v it prints a line for each kernel.
set -u
here=$(cd "$(dirname "$0")" && pwd)
. "$here/tools.sh"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0
verbose=${1:-}

unpack() { python3 -m zipfile -e "$1/kernels.zip" "$2"; }

unpack "$here" "$work/ptx" || exit 1
clang=$(tool clang-16 CLANG)
if [ -z "$clang" ]; then
  echo "skip  the PTX is that of the source: there is no clang-16"
elif CLANG=$clang "$here/make.sh" --text "$work" && unpack "$work" "$work/made" &&
  diff -r -x '*.cubin' -x made.txt "$work/ptx" "$work/made"; then
  echo "ok    the PTX is that of the source"
else
  echo "FAIL  the PTX is not that of the source: run make kernels"
  failed=1
fi

# The digests of the text need no assembler.
mkdir "$work/joined"
python3 "$here/join.py" "$here/kernels.zip" "$work/joined" $architectures || exit 1
for arch in $architectures; do
  echo "sm_$arch $assembler $(sha256sum <"$work/joined/kernels.sm_$arch.ptx" | cut -d ' ' -f 1)"
done >"$work/digests"
if diff "$work/ptx/made.txt" "$work/digests" && [ "$(ls "$work/ptx" | grep -c 'cubin$')" -eq "$(wc -l <"$work/digests")" ]; then
  echo "ok    the machine code was made of the PTX"
else
  echo "FAIL  the machine code was not made of the PTX: run make kernels"
  failed=1
fi

ptxas=$(tool ptxas PTXAS)
if [ -z "$ptxas" ]; then
  echo "skip  registers: there is no ptxas"
  exit $failed
fi
if ! "$ptxas" --version | grep -qF "$assembler"; then
  echo "skip  the machine code, byte by byte: it is of ptxas $assembler"
else
  mkdir "$work/code" && cp "$work"/ptx/*.ptx "$work/code" && machine_code "$work/code" "$ptxas"
  if diff -r "$work/ptx" "$work/code"; then
    echo "ok    the machine code is that of the PTX"
  else
    echo "FAIL  the machine code is not that of the PTX: run make kernels"
    failed=1
  fi
fi
nvdisasm=$(tool nvdisasm NVDISASM)
[ -n "$nvdisasm" ] || echo "skip  widths of loads: there is no nvdisasm"

# assemble TYPE ARCHITECTURE prints a line for each kernel: its name, registers, bytes spilled.
assemble() {
  "$ptxas" -v -arch="$2" -o "$work/$1.$2.cubin" "$work/ptx/$1.ptx" 2>&1 | awk '
    /error|fatal/ { print "error:", $0 }
    /Compiling entry function/ { split($0, q, "\x27"); name = q[2] }
    /spill stores/ { spilled = $(NF - 10) + $(NF - 6) + $(NF - 3) }
    /Used [0-9]+ registers/ { for (i = 1; i < NF; i++) if ($i == "Used") print name, $(i + 1), spilled }'
}

for arch in sm_70 sm_80 sm_89 sm_90 sm_100; do
  if ! "$ptxas" --help | grep -q "'$arch'"; then
    echo "skip  $arch: this ptxas does not know it"
    continue
  fi
  : >"$work/kernels"
  wrong=0 modules=0
  for f in "$work"/ptx/*.ptx; do
    type=$(basename "$f" .ptx)
    [ "${type#*.sm_}" = "$type" ] || [ "${type#*.sm_}" -le "${arch#sm_}" ] || continue
    modules=$((modules + 1))
    assemble "$type" $arch >>"$work/kernels"
    [ -n "$nvdisasm" ] || continue
    "$nvdisasm" -c "$work/$type.$arch.cubin" >"$work/sass" 2>/dev/null || continue # newer ones do not know sm_70
    # Each of four kernels has one loop of vectors, with four loads (FP8: two) from the first source and from others.
    loads=$(grep -c 'LDG.*\.128' "$work/sass")
    if [ "$loads" -lt 16 ] || ! grep -q 'STG.*\.128' "$work/sass"; then
      echo "      $type: $loads loads of 16 bytes"
      wrong=1
    fi
  done
  [ -n "$verbose" ] && sed "s/^/      $arch /" "$work/kernels"
  summary=$(awk -v kernels=$((4 * modules)) '/^error/ { bad++ } !/^error/ { n++; if ($2 > most) most = $2; spilled += $3 }
    END { printf "%d kernels, at most %d registers, %d bytes spilled", n, most, spilled; exit bad || n != kernels || spilled }' "$work/kernels") ||
    wrong=1
  if [ $wrong -eq 0 ]; then
    echo "ok    $arch: $summary"
  else
    echo "FAIL  $arch: $summary"
    grep '^error' "$work/kernels" | head -5
    failed=1
  fi
done
exit $failed
