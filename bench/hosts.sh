# Network namespaces as hosts that are joined by Ethernet planes. Source it, or call it (root, iproute2):
#
#   bench/hosts.sh up TAG HOSTS PLANES RATE MTU      hosts TAG-0, TAG-1, ...; interfaces e0, e1, ... at 10.77.PLANE.HOST+1
#   bench/hosts.sh frames TAG HOSTS PLANES           hosts send single frames, without offloads that join them
#   bench/hosts.sh circuits TAG HOSTS PLANES RATE MTU   hosts send nearly as on circuits (ocsctl/kernel): single frames,
#                                                    and no more than two at once after a pause
#   bench/hosts.sh down TAG HOSTS
#
#        host 0          host 1    ...     one veth per host and plane, into that plane's bridge in namespace TAG;
#       e0  e1 ..       e0  e1 ..          both directions of every veth shaped to RATE (HTB)
#        |   \           |   \
#       [bridge of plane 0]  [bridge of plane 1] ...

# limit NAMESPACE INTERFACE RATE [BYTES]: BYTES may exceed the rate after a pause.
limit() {
  ip netns exec "$1" tc class replace dev "$2" parent 1: classid 1:1 htb rate "$3" burst "${4:-64k}" cburst "${4:-64k}"
}

# shape NAMESPACE INTERFACE RATE: with a queue that is deep enough for TCP's window.
shape() {
  ip netns exec "$1" tc qdisc add dev "$2" root handle 1: htb default 1 r2q 1000
  limit "$@"
  ip netns exec "$1" tc qdisc replace dev "$2" parent 1:1 handle 2: pfifo limit 1000
}

hosts_up() {
  local tag=$1 hosts=$2 planes=$3 rate=$4 mtu=$5 r j
  ip netns add "$tag"
  for j in $(seq 0 $((planes - 1))); do
    ip -n "$tag" link add "br$j" mtu "$mtu" type bridge
    ip -n "$tag" link set "br$j" up
  done
  for r in $(seq 0 $((hosts - 1))); do
    ip netns add "$tag-$r"
    ip -n "$tag-$r" link set lo up
    for j in $(seq 0 $((planes - 1))); do
      ip -n "$tag" link add "h${r}p$j" mtu "$mtu" type veth peer name "e$j" mtu "$mtu" netns "$tag-$r"
      ip -n "$tag" link set "h${r}p$j" master "br$j" up
      ip -n "$tag-$r" address add "10.77.$j.$((r + 1))/24" dev "e$j"
      ip -n "$tag-$r" link set "e$j" up
      shape "$tag" "h${r}p$j" "$rate"
      shape "$tag-$r" "e$j" "$rate"
    done
  done
}

hosts_frames() {
  local r j
  for r in $(seq 0 $(($2 - 1))); do
    for j in $(seq 0 $(($3 - 1))); do ip -n "$1-$r" link set "e$j" gso_max_segs 1; done
  done
}

hosts_circuits() {
  local r j
  hosts_frames "$1" "$2" "$3"
  for r in $(seq 0 $(($2 - 1))); do
    for j in $(seq 0 $(($3 - 1))); do
      limit "$1-$r" "e$j" "$4" "$5"
      limit "$1" "h${r}p$j" "$4" "$5"
    done
  done
}

hosts_down() {
  local r
  for r in $(seq 0 $(($2 - 1))); do ip netns delete "$1-$r" 2>/dev/null || true; done
  ip netns delete "$1" 2>/dev/null || true
}

[ "${BASH_SOURCE[0]}" != "$0" ] || { set -euo pipefail && "hosts_$1" "${@:2}"; }
