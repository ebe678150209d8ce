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
planes=$(bin/lightpath doctor | grep 'kernel planes' || true)
[[ "$planes" == ok* ]] || skip "$planes"

tag=lps$$ work=$(mktemp -d) pids=()
chmod 755 "$work"
export SLURM_CONF=$work/slurm.conf

# dies NAMESPACE: kills its processes. It fails until there are none: some may begin or end meanwhile.
dies() {
  local left
  left=$(ip netns pids "$1")
  [ -z "$left" ] || { kill -9 $left || true; return 1; }
}

clean() {
  local n
  [ "${#pids[@]}" = 0 ] || kill "${pids[@]}" 2>/dev/null || true
  for n in "" -0 -1 -2 -3; do
    dies "$tag$n" 2>/dev/null || true
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

# ctl COMMAND...: runs a command on the controllers' host. ip netns exec would hide the planes.
ctl() { nsenter --net="/run/netns/$tag" -- "$@"; }

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
  nsenter --net="/run/netns/$tag" -- bin/lightpath ocsd --config "$work/ocsd.yaml" >>"$work/ocsd.log" 2>&1 &
  ocsd=$!
  disown # bash would report its end
  pids+=("$ocsd")
  until_true "a controller" ctl bin/lightpath ocs status --controller 127.0.0.1:7442
}
ocsd

# --- Slurm

dd if=/dev/urandom of="$work/munge.key" bs=128 count=1 status=none
chmod 400 "$work/munge.key"
mkdir -m 711 "$work/munge"
mkdir "$work/state" "$work/slurm"
cp examples/slurm/{prolog,epilog,task-prolog,sweep} "$work/slurm"
cat >"$work/slurm/settings" <<END
lightpath=$root/bin/lightpath
fabric=$work/fabric.yaml
nodes='node[0-3]'
ports_per_node=1
topologies=$work/topologies
export SLURM_CONF=$work/slurm.conf
END
mkdir -p "$work/topologies/pairs"
echo "[1,0]" | tee "$work/topologies/pairs/p0.json" >"$work/topologies/pairs/p1.json"
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
SchedulerParameters=sched_interval=1,batch_sched_delay=1
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
KillWait=1
CompleteWait=0
SlurmdParameters=config_overrides
JobRequeue=1
PrologSlurmctld=$work/slurm/prolog
EpilogSlurmctld=$work/slurm/epilog
TaskProlog=$work/slurm/task-prolog
END
for n in $(seq 0 $((nodes - 1))); do
  echo "NodeName=node$n NodeHostname=node$n NodeAddr=10.79.0.$((n + 1)) CPUs=1" >>"$work/slurm.conf"
done
cat >>"$work/slurm.conf" <<END
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PartitionName=all Nodes=ALL Default=YES State=UP MaxTime=5 PriorityTier=1
PartitionName=urgent Nodes=ALL State=UP MaxTime=5 PriorityTier=2
END

munged --force --foreground --key-file="$work/munge.key" --socket="$work/munge/munge.socket" \
  --pid-file="$work/munge.pid" --log-file="$work/munge.log" --seed-file="$work/munge.seed" >"$work/munged.log" 2>&1 &
pids+=("$!")
until_true munged munge -S "$work/munge/munge.socket" -n

# daemon NODE COMMAND...: starts a daemon on a node, with names and shared memory of its own.
daemon() {
  local host=ctl
  [ -z "$1" ] || host=node${1#-}
  nsenter --net="/run/netns/$tag$1" -- unshare --mount --uts sh -c 'mount --bind "$1/hosts" /etc/hosts && mount -t tmpfs none /dev/shm &&
    hostname "$2" && shift 2 && exec "$@"' sh "$work" "$host" "${@:2}" >>"$work/daemons.log" 2>&1 </dev/null &
  disown
  pids+=("$!")
}
start_slurmctld() {
  daemon "" slurmctld -D
  slurmctld=$!
}
start_slurmctld
for n in $(seq 0 $((nodes - 1))); do
  mkdir "$work/spool.node$n"
  daemon "-$n" slurmd -D -N "node$n"
done
idle() { [ "$(ctl sinfo -h -t idle -o %D)" = "$nodes" ]; }
until_true "$nodes idle nodes" idle

# --- jobs

dead() { ! kill -0 "$1"; }
# end PID SIGNAL: ends a daemon.
end() {
  kill "-$2" "$1"
  until_true "the end of $1" dead "$1"
}

python=${PYTHON:-python3}
# job LOG SECONDS: prints a batch script that runs a client, one rank on each node, sleeps, and runs it again. All calls
# use circuits, and the packet planes beside them.
job() {
  cat <<END
#!/bin/sh
#SBATCH --output=$1
export LIGHTPATH_TRANSPORT=ebpf LIGHTPATH_PLANNER=\${LIGHTPATH_PLANNER:-perstep}
for n in 1 2; do
  srun $root/bin/lightpath run -- $python $root/examples/python/allreduce.py || exit
  [ \$n = 2 ] || srun sleep $2
done
END
}
# submit LOG SECONDS SBATCH-OPTIONS...: submits a job, and prints its number.
submit() { job "$1" "$2" | ctl sbatch --parsable "${@:3}"; }
jobs_seen() { ctl bin/lightpath jobs --fabric "$work/fabric.yaml"; }
# has JOB COLUMNS: the table of jobs has such a line.
has() { jobs_seen | tr -s ' ' | grep "^$1 $2" >/dev/null; }
gone() { # an error is no answer
  local all
  all=$(jobs_seen) && ! grep -q "^$1 " <<<"$all"
}
state() { [ "$(ctl scontrol show job "$1" -o | tr ' ' '\n' | sed -n 's/^JobState=//p')" = "$2" ]; }
# sums LOG RANKS SUM: a job has run both times.
sums() { [ "$(grep -c "of $2: the sum is $3" "$1" 2>/dev/null)" = $((2 * $2)) ]; }
# sent PORT: prints the bytes that a port has sent over circuits.
sent() {
  bin/lightpath fabric status --fabric "$work/fabric.yaml" | awk -v r="$1" '$2 == r { n += $7 } END { print n + 0 }'
}
# refuses JOB PORT TEXT: the job cannot begin with that port, and the error says so.
refuses() {
  ! ctl bin/lightpath jobs begin "$1" --fabric "$work/fabric.yaml" --ports "$2" 2>"$work/out.err" || fail "job $1 begins"
  grep -q "$3" "$work/out.err" || fail "$(cat "$work/out.err")"
}
step() { echo "ok  $SECONDS s: $*"; }

# A step of srun over all nodes: circuits are the job's while it runs.
said=$(ctl timeout 60 srun -N "$nodes" env LIGHTPATH_TRANSPORT=ebpf LIGHTPATH_PLANNER=perstep \
  "$root/bin/lightpath" run -- "$python" "$root/examples/python/allreduce.py" </dev/null 2>"$work/out") || fail "srun"
[ "$(grep -c "of $nodes: the sum is 10.0" <<<"$said")" = "$nodes" ] || fail "srun: $said"
for n in $(seq 0 $((nodes - 1))); do [ "$(sent "$n")" -gt 0 ] || fail "node$n has sent nothing over circuits"; done
until_true "the circuits of job 1 are returned" gone 1
step "srun over $nodes nodes; its circuits are returned"

# A job without a name has no topology.
a=$(submit "$work/out.n" 0 -N 2 -J "")
until_true "job $a without a name is done" state "$a" COMPLETED
until_true "job $a is returned" gone "$a"
step "a job without a name"

# Two jobs at once, one with a topology; neither moves the circuits of the other.
a=$(submit "$work/out.a" 3 -N 2 -J pairs)
b=$(submit "$work/out.b" 3 -N 2 -J moves)
until_true "two jobs" has "$b" "moves p0,p1 2-3 .* its ranks move them"
until_true "job $a with its topology" has "$a" "pairs p0,p1 0-1 .* set"
refuses 99 1 "port 1 of plane p0 is of job $a"
refuses "$a" 2 "job $a has begun at .*, ports 0,1, so it cannot begin with .*, ports 2"
until_true "job $a is done" state "$a" COMPLETED
until_true "job $b is done" state "$b" COMPLETED
until_true "the sums of job $a" sums "$work/out.a" 2 3.0
until_true "the sums of job $b" sums "$work/out.b" 2 3.0
until_true "both are returned" gone "$a"
until_true "both are returned" gone "$b"
step "two jobs at once, one with a topology"

# One is cancelled, one killed: the epilog returns the circuits.
a=$(submit "$work/out.c" 60 -N 2 -J cancelled)
b=$(submit "$work/out.d" 60 -N 2 -J killed --no-requeue)
until_true "job $a" has "$a" cancelled
until_true "job $b runs" state "$b" RUNNING
ctl scancel "$a"
until_true "job $a is returned" gone "$a"
# kill_on NODE JOB: kills the job's processes there. It fails if there are none: slurmd may not have started them.
kill_on() {
  local p killed=1
  for p in $(ip netns pids "$tag-$1"); do
    ! grep -qz "SLURM_JOB_ID=$2" "/proc/$p/environ" || ! kill -9 "$p" || killed=0
  done
  return $killed
}
until_true "a process of job $b" kill_on 2 "$b"
until_true "job $b is returned" gone "$b"
step "scancel, and kill -9 of a job's processes"

# The controller ends and comes back while a job runs, and once more while the epilog wants it. A requeue: begin again.
a=$(submit "$work/out.e" 60 -N 2 -J requeued --requeue)
until_true "job $a runs" state "$a" RUNNING
end "$ocsd" KILL
ocsd
has "$a" requeued || fail "job $a is lost with the controller: $(jobs_seen)"
end "$ocsd" KILL
ctl scontrol requeue "$a"
sleep 1
ocsd
until_true "job $a is returned" gone "$a"
again() { # Slurm lets a requeued job wait for two minutes
  ctl scontrol update JobId="$a" StartTime=now || true
  has "$a" requeued
}
until_true "job $a begins again" again
ctl scancel "$a"
until_true "job $a is returned" gone "$a"
step "the controller restarts, a job is requeued"

# Slurm's controller restarts while a job runs: its epilog still returns the circuits.
a=$(submit "$work/out.h" 60 -N 2 -J slurm)
until_true "job $a runs" state "$a" RUNNING
end "$slurmctld" TERM # KILL would lose the jobs of its last seconds
start_slurmctld
until_true "job $a runs" state "$a" RUNNING
ctl scancel "$a"
until_true "job $a is returned" gone "$a"
step "slurmctld restarts"

# Preemption: the job of the other partition gets the ports after the first has given them back.
a=$(submit "$work/out.i" 60 -N 4 -J low)
until_true "job $a runs" state "$a" RUNNING
b=$(submit "$work/out.j" 0 -N 2 -J high -p urgent)
until_true "job $b is done" state "$b" COMPLETED
until_true "the sums of job $b" sums "$work/out.j" 2 3.0
ctl scancel "$a"
until_true "job $a is returned" gone "$a"
until_true "job $b is returned" gone "$b"
step "preemption"

# A plane goes out of service while a job runs. The job goes on with the other, and another job begins with it.
a=$(submit "$work/out.k" 3 -N 2 -J goes-on)
once() { grep -q "the sum is 3.0" "$work/out.k"; }
until_true "job $a has run once" once
ctl bin/lightpath ocs disable --plane p1 --reason "fibre work" --fabric "$work/fabric.yaml" >/dev/null
has "$a" "goes-on p0,p1 .* out of service: p1" || fail "job $a: $(jobs_seen)"
b=$(submit "$work/out.l" 0 -N 2 -J pairs)
until_true "job $a is done" state "$a" COMPLETED
until_true "job $b is done" state "$b" COMPLETED
until_true "the sums of job $a" sums "$work/out.k" 2 3.0
until_true "the sums of job $b" sums "$work/out.l" 2 3.0
ctl bin/lightpath ocs enable --plane p1 --fabric "$work/fabric.yaml" >/dev/null
step "a plane goes out of service"

# A node dies.
a=$(submit "$work/out.f" 60 -N 2 -w node3 -J dies --no-requeue)
until_true "job $a runs" state "$a" RUNNING
until_true "a dead node" dies "$tag-3"
ctl scontrol update NodeName=node3 State=DOWN Reason=dead
until_true "job $a is returned" gone "$a"
daemon -3 slurmd -D -N node3
until_true "$nodes idle nodes" idle
step "a node dies"

# A begin that cannot be says why, and the job does not start.
ctl bin/lightpath jobs begin other --fabric "$work/fabric.yaml" --ports 0-3 >/dev/null
a=$(submit "$work/out.g" 0 -N 2 -J refused)
refused() { ctl scontrol show job "$a" | grep "AdminComment=.*port 0 of plane p0 is of job other" >/dev/null; }
until_true "job $a is refused" refused
ctl scancel "$a"
ctl bin/lightpath jobs end other --fabric "$work/fabric.yaml"
step "a job whose ports another job has"

# A job that Slurm does not know any more is swept away, a job that runs is not.
a=$(submit "$work/out.s" 3 -N 2 -J kept)
until_true "job $a runs" has "$a" kept
ctl bin/lightpath jobs begin 999999 --fabric "$work/fabric.yaml" --ports 3 >/dev/null
ctl "$work/slurm/sweep"
gone 999999 || fail "sweep: $(jobs_seen)"
has "$a" kept || fail "sweep has ended job $a: $(jobs_seen)"
ctl scancel "$a"
until_true "job $a is returned" gone "$a"
step "a job that Slurm has lost"

if said=$(ctl timeout 60 srun -N 2 env SLURM_NTASKS=3 "$root/bin/lightpath" run -- true </dev/null 2>&1); then
  fail "contradictory variables: $said"
fi
grep -q "SLURM_NTASKS=3 contradicts SLURM_STEP_NUM_TASKS=2" <<<"$said" || fail "contradictory variables: $said"
step "variables that contradict each other"
