#!/usr/bin/env bash
# Measures the share of the line rate that collectives reach over k TCP planes between the hosts of bench/hosts.sh.
# Needs root, iproute2 and a build (make).
#
#   bench/planes.sh                      AllReduce and AllToAll, 2 ranks, k = 1 2 4, 64 MiB
#   PLANES="2" RANKS=4 SIZE=16M RATE=250mbit COLLECTIVES=allgather bench/planes.sh
#   IMPAIR="loss 1%" bench/planes.sh     the last plane of each run loses single frames (lightpath fabric lose)
#   IMPAIR="rate 250mbit" ...            or has a lower rate
#   ALONE=1 ...                          measure again over a plane as bad as that alone, and print its share
#   MTU=1500 ROUNDS=3 ...                another frame size than 9000; everything three times, by turns
#   LIGHTPATH_TCP_CONGESTION=reno ...    another congestion control than this host's, for every contender
#   CONTENDERS="even measured"           LIGHTPATH_PLANE_SHARES=even and measured by turns; with ROUNDS a table of medians follows
#   PEERS=openmpi,gloo SIZES=64K,1M ...  compare with other libraries over the same interfaces instead (lightpath bench peers)
#   DELAY=100us ...                      every frame arrives so much later (lightpath fabric delay)
#   STRICT=1 ...                         hosts send single frames, no more than two at once after a pause, not 64 KiB
#   WARMUP=10 LIMIT=60 ...               10 untimed calls first instead of 2; stop a run after 60 seconds
#   RTO_MIN=5000 ...                     least time until a retransmission (us); default 200000
#
# Prints, per collective and k: time, bus bandwidth, its part of k times RATE, and its part of that rate without headers
# ((MTU - 52) / (MTU + 14), as HTB counts Ethernet), and the bytes that each plane of rank 0 has sent. Bus bandwidth is by
# nccl-tests' definition what each rank's port carries. With two ranks and iperf3 (its package) beside them what plain
# streams reach at that moment on all k planes together, both ways at once: other work on this machine slows both.
set -euo pipefail
cd "$(dirname "$0")/.."
collectives=${COLLECTIVES:-"allreduce alltoall"} planes=${PLANES:-"1 2 4"} ranks=${RANKS:-2}
size=${SIZE:-64M} rate=${RATE:-1gbit} iters=${ITERS:-10} impair=${IMPAIR:-} alone=${ALONE:-} mtu=${MTU:-9000} rounds=${ROUNDS:-1}
contenders=${CONTENDERS:-"${LIGHTPATH_PLANE_SHARES:-even}"} peers=${PEERS:-} sizes=${SIZES:-$size} delay=${DELAY:-} warmup=${WARMUP:-2} limit=${LIMIT:-600}
tag=lpb$$ loser="" fiber="" most=$(printf '%s\n' $planes | sort -n | tail -1) work=$(mktemp -d)

clean() {
  for p in $loser $fiber; do kill "$p" 2>/dev/null && wait "$p" 2>/dev/null || true; done
  hosts_down "$tag" "$ranks"
  rm -rf "$work"
}
trap clean EXIT
trap 'exit 1' INT TERM

. bench/hosts.sh
hosts_up "$tag" "$ranks" "$most" "$rate" "$mtu"
[[ "$impair" != loss* ]] || hosts_frames "$tag" "$ranks" "$most"
[ -z "${STRICT:-}" ] || hosts_circuits "$tag" "$ranks" "$most" "$rate" "$mtu"
for r in $(seq 0 $((ranks - 1))); do
  [ -z "${RTO_MIN:-}" ] || ip netns exec "$tag-$r" sh -c 'echo "$0" >/proc/sys/net/ipv4/tcp_rto_min_us' "$RTO_MIN"
  for j in $(seq 0 $((most - 1))); do
    [ -z "${LIGHTPATH_TCP_CONGESTION:-}" ] || ip -n "$tag-$r" route replace "10.77.$j.0/24" dev "e$j" src "10.77.$j.$((r + 1))" congctl "$LIGHTPATH_TCP_CONGESTION"
  done
done

# ports PLANE: prints the switch's ports of a plane.
ports() { seq -s, -f "h%gp$1" 0 $((ranks - 1)); }

# in_background COMMAND...: starts a command of "lightpath fabric" in the switch's namespace, and returns when it works.
in_background() {
  : >"$work/begun"
  ip netns exec "$tag" bin/lightpath fabric "$@" >"$work/begun" &
  until [ -s "$work/begun" ]; do
    kill -0 $! || return
    sleep 0.1
  done
}

if [ -n "$delay" ]; then
  in_background delay --interface "$(for j in $(seq 0 $((most - 1))); do ports "$j"; done | paste -sd,)" --time "$delay"
  fiber=$!
fi

# worse PLANE [IMPAIRMENT...]: impairs what the hosts send on a plane; without IMPAIRMENT ends that.
worse() {
  local j=$1 r
  shift
  case "$*" in
    "")
      [ -z "$loser" ] || { kill "$loser" && wait "$loser"; loser=""; }
      for r in $(seq 0 $((ranks - 1))); do limit "$tag-$r" "e$j" "$rate"; done ;;
    "rate "*) for r in $(seq 0 $((ranks - 1))); do limit "$tag-$r" "e$j" "$2"; done ;;
    "loss "*)
      in_background lose --interface "$(ports "$j")" --rate "$2"
      loser=$! ;;
    *) echo "IMPAIR: neither \"rate R\" nor \"loss R\": $*" >&2; exit 2 ;;
  esac
}

sent() { ip netns exec "$tag-0" cat "/sys/class/net/e$1/statistics/tx_bytes"; }

# bits RATE: prints a rate in bit/s.
bits() { awk -v r="$1" 'BEGIN { u["kbit"] = 1e3; u["mbit"] = 1e6; u["gbit"] = 1e9; n = r + 0; sub(/^[0-9.]+/, "", r); printf "%.0f", n * u[r] }'; }

# bytes SIZE: prints a size in bytes.
bytes() { awk -v s="$1" 'BEGIN { u["K"] = 1024; u["M"] = 1024 ^ 2; u["G"] = 1024 ^ 3; n = s + 0; sub(/^[0-9]+/, "", s); printf "%d", n * (s == "" ? 1 : u[s]) }'; }

# The interfaces do not say what their shapers let pass.
export LIGHTPATH_FABRIC=$work/fabric.yaml
printf 'version: 1\nranks: %d\nplanes:\n' "$ranks" >"$LIGHTPATH_FABRIC"
for j in $(seq 0 $((most - 1))); do printf '  - {name: e%d, bandwidth: %sbps}\n' "$j" "$(bits "$rate")"; done >>"$LIGHTPATH_FABRIC"

# row NAME K TIME MB/S [COUNTS] [WRONG] [CONTENDER]: prints a line of the table.
row() {
  awk -v c="$1" -v k="$2" -v n="$ranks" -v us="$3" -v rate="$4" -v counts="${5:-}" -v wrong="${6:-}" -v who="${7:--}" -v line="$(bits "$rate")" -v mtu="$mtu" 'BEGIN {
    part = 100 * rate * 8e6 / (k * line)
    printf "%-14s %-9s %2d %6d %12s %14.1f %8.1f%% %11.1f%% %s%s\n", c, who, k, n, us, rate * 8, part, part * (mtu + 14) / (mtu - 52), counts, wrong ? "  WRONG: " wrong : "" }' | tee -a "$work/table"
}

# lightpath_ranks SHARES COLLECTIVE K NAMES BYTES: prints bytes, time and wrong elements.
lightpath_ranks() {
  WORLD_SIZE=$ranks MASTER_PORT=$$ TORCHELASTIC_RUN_ID="$tag-$2-$3" NCCL_SOCKET_IFNAME="=$4" LIGHTPATH_PLANES=$3 LIGHTPATH_PLANE_SHARES=$1 \
    timeout -k 5 "$limit" bash -c 'hosts=$0 work=$1 failed=0
      shift
      for r in $(seq 0 $((WORLD_SIZE - 1))); do RANK=$r ip netns exec "$hosts-$r" bin/lightpath bench "$@" >"$work/$r" 2>&1 & done
      for p in $(jobs -p); do wait "$p" || failed=1; done
      exit $failed' "$tag" "$work" "$2" -b "$5" -e "$5" -w "$warmup" -i "$iters" --out-of-place --transport tcp || return
  awk '$1 ~ /^[0-9]+$/ { print $1, $6, $9 }' "$work/0"
}

# collective CONTENDER NAME K [FIRST BYTES]: measures over k planes from FIRST on. The last one is impaired.
collective() {
  local who=$1 c=$2 k=$3 first=${4:-0} bytes=${5:-$size} names before=() counts='' j last failed=0
  last=$((first + k - 1))
  names=$(seq -s, -f 'e%g' "$first" "$last")
  [ -z "$impair" ] || worse "$last" $impair
  for j in $(seq "$first" "$last"); do before+=("$(sent "$j")"); done
  lightpath_ranks "$who" "$c" "$k" "$names" "$bytes" >"$work/result" || failed=$?
  for j in $(seq "$first" "$last"); do counts+=" $(($(sent "$j") - before[j - first]))"; done
  [ -z "$impair" ] || worse "$last"
  if [ "$failed" = 124 ]; then
    row "$c" "$k" ">$limit s" 0 "$counts" "" "$who"
    return
  fi
  [ "$failed" = 0 ] || { cat "$work"/[0-9]*; exit 1; }
  local us wrong # the table has too few digits of the bandwidth
  read -r bytes us wrong <"$work/result"
  row "$c" "$k" "$us" "$(awk -v c="$c" -v n="$ranks" -v b="$bytes" -v us="$us" 'BEGIN {
    share = c == "allreduce" ? 2 * (n - 1) / n : c ~ /^(alltoall|allgather|reducescatter)$/ ? (n - 1) / n : 1
    print b * share / us }')" "$counts" "${wrong#0}" "$who"
}

# streams K: measures plain streams over all planes at once, both ways.
streams() {
  local k=$1 j p pids=() cc=()
  [ -z "${LIGHTPATH_TCP_CONGESTION:-}" ] || cc=(-C "$LIGHTPATH_TCP_CONGESTION")
  for j in $(seq 0 $((k - 1))); do
    ip netns exec "$tag-0" iperf3 -s -1 -B "10.77.$j.1" >/dev/null 2>&1 &
    pids+=($!)
  done
  sleep 0.5
  for j in $(seq 0 $((k - 1))); do
    ip netns exec "$tag-1" iperf3 -c "10.77.$j.1" -B "10.77.$j.2" --bidir -O 1 -t 2 -f k "${cc[@]}" >"$work/stream$j" 2>&1 &
    pids+=($!)
  done
  for p in "${pids[@]}"; do wait "$p" || { cat "$work"/stream*; exit 1; }; done
  row iperf3 "$k" - "$(cat "$work"/stream* | awk '/receiver/ { for (i = 1; i < NF; i++) if ($(i + 1) == "Kbits/sec") sum += $i } END { print sum / 2 / 8e3 }')"
  rm -f "$work"/stream*
}

# table: measures one round after the other, and prints its lines.
table() {
  local k c who
  for _ in $(seq "$rounds"); do
    for k in $planes; do
      for c in $collectives; do
        for who in $contenders; do
          collective "$who" "$c" "$k"
          [ -z "$alone" ] || collective "$who" "$c" 1 $((k - 1)) $(($(bytes "$size") / k))
        done
      done
      if [ "$ranks" = 2 ] && [ -z "$impair" ] && command -v iperf3 >/dev/null; then streams "$k"; fi
    done
  done
}

# medians: prints the median, least and greatest time of each contender, in ms. A stopped run counts as infinitely long.
medians() {
  awk '{ print $1, $2, $3, $5 ~ /^>/ ? "inf" : $5 }' "$work/table" | sort -k1,1 -k3,3n -k2,2 -k4,4g | awk '
    function show(n) { if (n) printf "%-14s %2d %-9s %10.1f  [%.1f, %.1f] of %d\n", c, k, who, (t[int((n + 1) / 2)] + t[int(n / 2) + 1]) / 2e3, t[1] / 1e3, t[n] / 1e3, n }
    { if ($1 " " $3 " " $2 != key) { show(n); n = 0; key = $1 " " $3 " " $2; c = $1; who = $2; k = $3 } t[++n] = $4 }
    END { show(n) }'
}

# compare: measures beside other libraries. The last plane is impaired.
compare() {
  local k
  for k in $planes; do
    [ -z "$impair" ] || worse $((k - 1)) $impair
    printf '%d planes of %s%s%s\n' "$k" "$rate" "${delay:+, frames $delay late}" "${impair:+, the last one with $impair}"
    bin/lightpath bench peers --hosts "$tag" --planes "$k" --transport tcp --ranks "$ranks" --peers "$peers" \
      --collective "${collectives// /,}" --sizes "$sizes" --rounds "$rounds"
    [ -z "$impair" ] || worse $((k - 1))
  done
}

if [ -n "$peers" ]; then
  compare
  exit
fi
printf '%-14s %-9s %2s %6s %12s %14s %9s %12s  %s\n' collective contender k ranks 'time (us)' 'busbw (Mb/s)' 'of line' 'of payload' 'bytes sent by rank 0, per plane'
table
if [ "$rounds" -gt 1 ]; then
  echo
  echo 'medians (ms) with least and most'
  medians
fi
