#!/bin/bash
# Runs the interposer's test on a fabric of 4 ranks and 2 planes, each a network of the library, with an emulated
# switch. Then it audits the switch's log of circuits: circuits.sh OUT NAME
set -u
out=$1 dir=$1/circuits-$2
rm -rf "$dir" && mkdir -p "$dir" || exit 1
sock=$(mktemp -u /tmp/lightpath-interpose.XXXXXX) # sockets have short paths
cat >"$dir/fabric.yaml" <<END
version: 1
ranks: 4
planes:
  - {name: p0, bandwidth: 8Gbps, ocs: ocs0}
  - {name: p1, bandwidth: 8Gbps, ocs: ocs0}
ocs:
  - {name: ocs0, driver: emulator, endpoint: "unix:$sock", reconfig: 300us}
costs: {alpha: 5us}
circuits: duplex
END
printf 'version: 1\nfabric: fabric.yaml\nframe_log: frames.log\n' >"$dir/ocsd.yaml"
bin/lightpath ocsd --config "$dir/ocsd.yaml" >"$dir/ocsd.log" 2>&1 &
ocsd=$!
while [ ! -S "$sock" ] && kill -0 $ocsd 2>/dev/null; do sleep 0.05; done
LIGHTPATH_FABRIC="$dir/fabric.yaml" LIGHTPATH_INTERPOSE_NETS=net0,net1 PEER_LOG="$dir/messages" LIGHTPATH_TIMEOUT=60s \
  "$out/interpose" circuits
rc=$?
kill -INT $ocsd
wait $ocsd
rm -f "$sock"
[ $rc -eq 0 ] && "$out/audit" "$dir/frames.log" "$dir/messages" net0 net1
