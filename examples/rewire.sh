#!/bin/sh
# Rewires the optical core of a small cluster while a collective runs on it: four pods, one rank each, one group of
# four OCSes as planes of an emulated switch. Needs bin/lightpath and bin/lightpath-rank (make), no root.
set -e
bin=$(cd "$(dirname "$0")/../bin" && pwd)
dir=$(mktemp -d)
ocsd=
trap 'test -z "$ocsd" || kill "$ocsd" 2>/dev/null || true; wait; rm -rf "$dir"' EXIT
trap 'exit 1' INT TERM
cd "$dir"

core='{"version":1,"fabric":{"pods":4,"k_leaf":2,"k_spine":4,"tau":2,"k_ocs":4},"links":'
# Links between leaves, as jobs request them: a ring of the pods, then a ring in another order.
echo "$core"'[[0,2,1],[2,4,1],[4,6,1],[6,0,1]]}' > before.json
echo "$core"'[[0,4,1],[4,2,1],[2,6,1],[6,0,1]]}' > after.json

"$bin/lightpath" topology lumos plan --in before.json --out core.json --fabric fabric.yaml --ocsd ocsd.yaml \
    --bandwidth 2Gbps --reconfig 2ms --endpoint "unix:$dir/ocs.sock" --listen "127.0.0.1:${PORT:-7447}"
"$bin/lightpath" ocsd --config ocsd.yaml &
ocsd=$!
until test -S ocs.sock; do kill -0 "$ocsd"; sleep 0.1; done # ends with the controller

"$bin/lightpath" bench allreduce -n 4 -b 1M -e 1M -w 5 -i 1000 -c 1 --fabric fabric.yaml &
job=$!
sleep 1
for target in after before after; do
    "$bin/lightpath" topology lumos rewire --core core.json --in $target.json --out core.json --steps steps.json --iota 0.5
    "$bin/lightpath" ocs rewire --controller "127.0.0.1:${PORT:-7447}" --steps steps.json
done
wait $job
"$bin/lightpath" ocs status --controller "127.0.0.1:${PORT:-7447}"
