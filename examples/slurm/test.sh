#!/usr/bin/env bash
# Runs jobs of Debian's Slurm over planes in the kernel: four nodes, each with a network of its own, on this machine.
# Needs root, slurmctld, slurmd, slurm-client, munge, iproute2 and a build (make); without them it says why it skips.
#
#     slurmctld, ocsd            slurmd node0      node1 ...      one veth per node into the bridge: packet planes;
#       namespace TAG             TAG-0             TAG-1         the nodes of the fabric: circuits, lp-TAG-r0 ...
#         \____________ bridge ____/_________________/
set -euo pipefail
cd "$(dirname "$0")/../.."
root=$PWD nodes=4

skip() { echo "SKIP  examples/slurm: $*"; exit 0; }
[ "$(id -u)" = 0 ] || skip "needs root"
for c in slurmctld slurmd srun munged ip nsenter; do command -v "$c" >/dev/null || skip "there is no $c"; done
bin/lightpath doctor | grep -q '^ok   kernel planes' || skip "$(bin/lightpath doctor | grep 'kernel planes')"

tag=lps$$ work=$(mktemp -d) pids=()
chmod 755 "$work"
export SLURM_CONF=$work/slurm.conf

clean() {
  local n
  [ "${#pids[@]}" = 0 ] || kill "${pids[@]}" 2>/dev/null || true
  for n in "" -0 -1 -2 -3; do
    ip netns pids "$tag$n" 2>/dev/null | xargs -r kill -9 2>/dev/null || true
    ip netns delete "$tag$n" 2>/dev/null || true
  done
  wait 2>/dev/null || true
  bin/lightpath fabric down --name "$tag" >/dev/null 2>&1 || true
  [ -n "${KEEP:-}" ] && echo "logs: $work" || rm -rf "$work"
}
trap clean EXIT
trap 'exit 1' INT TERM

# fail TEXT: ends the test, with the logs.
fail() {
  echo "FAIL: examples/slurm: $*"
  tail -n 15 "$work"/*.log "$work"/out* 2>/dev/null || true
  exit 1
}

# on NODE COMMAND...: runs a command on a node, or on the controllers' host (""). ip netns exec would hide the planes.
on() { nsenter --net="/run/netns/$tag$1" -- "${@:2}"; }
ctl() { on "" "$@"; }

# until_true TEXT COMMAND...: waits up to 60 s until a command succeeds.
until_true() {
  local what=$1 n
  shift
  for n in $(seq 600); do
    "$@" >/dev/null 2>&1 && return
    sleep 0.1
  done
  fail "not in 60 s: $what"
}

# --- the network, the planes and their controller

ip netns add "$tag"
ip -n "$tag" link set lo up
ip -n "$tag" link add br0 type bridge
ip -n "$tag" address add 10.79.0.254/24 dev br0
ip -n "$tag" link set br0 up
echo "127.0.0.1 localhost" >"$work/hosts"
echo "10.79.0.254 ctl" >>"$work/hosts"
for n in $(seq 0 $((nodes - 1))); do
  ip netns add "$tag-$n"
  ip -n "$tag-$n" link set lo up
  ip -n "$tag" link add "n$n" type veth peer name eth0 netns "$tag-$n"
  ip -n "$tag" link set "n$n" master br0 up
  ip -n "$tag-$n" address add "10.79.0.$((n + 1))/24" dev eth0
  ip -n "$tag-$n" link set eth0 up
  echo "10.79.0.$((n + 1)) node$n" >>"$work/hosts"
done

cat >"$work/fabric.yaml" <<END
version: 1
name: $tag
ranks: $nodes
planes:
  - {name: p0, bandwidth: 200Mbps, ocs: ocs0, interface: p0}
  - {name: p1, bandwidth: 200Mbps, ocs: ocs0, interface: p1}
ocs:
  - {name: ocs0, driver: emulator, endpoint: "unix:$work/ocs.sock", reconfig: 5ms}
costs: {hop: 200us}
controller: {endpoints: ["unix:$work/ocs.sock", "127.0.0.1:7442"]}
END
cat >"$work/ocsd.yaml" <<END
version: 1
fabric: fabric.yaml
listen: "127.0.0.1:7442"
journal: {kind: file, dir: $work/journal}
END
bin/lightpath fabric up --fabric "$work/fabric.yaml" >/dev/null
ocsd() {
  ctl "$root/bin/lightpath" ocsd --config "$work/ocsd.yaml" >>"$work/ocsd.log" 2>&1 &
  ocsd=$!
  pids+=("$ocsd")
  until_true "a controller" ctl bin/lightpath ocs status --controller 127.0.0.1:7442
}
ocsd

# --- Slurm

dd if=/dev/urandom of="$work/munge.key" bs=128 count=1 status=none
chmod 400 "$work/munge.key"
mkdir -m 711 "$work/munge"
mkdir "$work/state"
cat >"$work/slurm.conf" <<END
ClusterName=$tag
SlurmctldHost=ctl(10.79.0.254)
SlurmUser=root
AuthInfo=socket=$work/munge/munge.socket
StateSaveLocation=$work/state
SlurmdSpoolDir=$work/spool.%n
SlurmctldPidFile=$work/slurmctld.pid
SlurmdPidFile=$work/slurmd.%n.pid
SlurmctldLogFile=$work/slurmctld.log
SlurmdLogFile=$work/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
SchedulerType=sched/builtin
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
KillWait=1
CompleteWait=0
SlurmdParameters=config_overrides
END
for n in $(seq 0 $((nodes - 1))); do
  echo "NodeName=node$n NodeHostname=node$n NodeAddr=10.79.0.$((n + 1)) CPUs=1" >>"$work/slurm.conf"
done
echo "PartitionName=all Nodes=ALL Default=YES State=UP MaxTime=5" >>"$work/slurm.conf"

munged --force --foreground --key-file="$work/munge.key" --socket="$work/munge/munge.socket" \
  --pid-file="$work/munge.pid" --log-file="$work/munge.log" --seed-file="$work/munge.seed" >"$work/munged.log" 2>&1 &
pids+=("$!")
until_true munged munge -S "$work/munge/munge.socket" -n

# daemon NODE COMMAND...: starts a daemon on a node, with names and shared memory of its own.
daemon() {
  local host=ctl
  [ -z "$1" ] || host=node${1#-}
  on "$1" unshare --mount --uts sh -c 'mount --bind "$1/hosts" /etc/hosts && mount -t tmpfs none /dev/shm &&
    hostname "$2" && shift 2 && exec "$@"' sh "$work" "$host" "${@:2}" >>"$work/daemons.log" 2>&1 </dev/null &
  pids+=("$!")
}
daemon "" slurmctld -D
for n in $(seq 0 $((nodes - 1))); do
  mkdir "$work/spool.node$n"
  daemon "-$n" slurmd -D -N "node$n"
done
idle() { [ "$(ctl sinfo -h -t idle -o %D)" = "$nodes" ]; }
until_true "$nodes idle nodes" idle

# --- jobs

python=${PYTHON:-python3}
# ranks SRUN-OPTIONS...: runs a client, one rank on each node, and prints what the ranks say. All calls use circuits.
ranks() {
  ctl timeout 60 srun "$@" --export=ALL,LIGHTPATH_FABRIC="$work/fabric.yaml",LIGHTPATH_TRANSPORT=ebpf,LIGHTPATH_PLANNER=perstep \
    "$root/bin/lightpath" run -- "$python" "$root/examples/python/allreduce.py" </dev/null 2>"$work/out"
}
# sent PORT: prints the bytes that a port has sent over circuits.
sent() { bin/lightpath fabric status --fabric "$work/fabric.yaml" | awk -v r="$1" '$2 == r { n += $7 } END { print n + 0 }'; }

said=$(ranks -N "$nodes") || fail "srun"
[ "$(grep -c "of $nodes: the sum is 10.0" <<<"$said")" = "$nodes" ] || fail "srun: $said"
for n in $(seq 0 $((nodes - 1))); do [ "$(sent "$n")" -gt 0 ] || fail "node$n has sent nothing over circuits"; done

if said=$(ctl timeout 60 srun -N 2 env SLURM_NTASKS=3 "$root/bin/lightpath" run -- true </dev/null 2>&1); then
  fail "contradictory variables: $said"
fi
grep -q "SLURM_NTASKS=3 contradicts SLURM_STEP_NUM_TASKS=2" <<<"$said" || fail "contradictory variables: $said"
