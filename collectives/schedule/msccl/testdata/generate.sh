#!/bin/sh
# Makes the XML files of this directory again: generate.sh MSCCL_TOOLS PYTHON, where MSCCL_TOOLS is
# a checkout of microsoft/msccl-tools and PYTHON has lxml, humanfriendly, igraph, tabulate, argcomplete, z3-solver.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
tools=$1
python=${2:-python3}
export PYTHONPATH=$tools
example() { # file program arguments...
	out=$1 program=$2
	shift 2
	$python "$tools/examples/mscclang/$program.py" "$@" >"$here/$out.xml"
}
own() {
	out=$1 program=$2
	shift 2
	$python "$here/programs/$program.py" "$@" >"$here/$out.xml"
}
example allgather-allpairs-4 allgather_allpairs 4 1
example allgather-doubling-4-2inst allgather_recursive_doubling 4 2
example allgather-doubling-8 allgather_recursive_doubling 8 1
example allgather-pcie-4 allgather_a100_pcie 4 1
example allgather-ring-5-2inst allgather_ring 5 1 2
example allreduce-1step-4 allreduce_1step 4 1
example allreduce-allpairs-4 allreduce_a100_allpairs_v2 4 1
example allreduce-halving-8 allreduce_recursive_doubling_halving 8 1
example allreduce-halving-4-2inst allreduce_recursive_doubling_halving 4 2
example allreduce-hierarchical-2x2 hierarchical_allreduce 2 2 1
example allreduce-hierarchical-2x3-manual hierarchical_allreduce 2 3 1 --schedule manual
example allreduce-ncv4-4 allreduce_a100_ncv4 4 1
example allreduce-ring-3 allreduce_a100_ring 3 1 1
example allreduce-ring-4-2chan-2inst allreduce_a100_ring 4 2 2
example alltoall-allpairs-3-2inst alltoall_allpairs 3 2
example alltoall-threestep-2x4 alltoall_a100_three_step 2 4 1
example alltoall-twostep-2x3 alltoall_a100_two_step 2 3
example alltoall-twostep-3x2 alltoall_a100_two_step 3 2
solved() { # file collective topology ranks steps
	tmp=$(mktemp -d)
	$python -m msccl solve instance "$3" "$2" --nodes "$4" --steps "$5" -o "$tmp/a.json" >/dev/null
	$python -m msccl ncclize "$tmp/a.json" --no-remap-scratch -o "$here/$1.xml" >/dev/null
	rm -r "$tmp"
}
own allgather-ring-3-apart rings ag 3 1
own allreduce-ring-3-apart rings ar 3 1
own allreduce-tree-4-2inst trees 4 1 2
own allreduce-trees-8 trees 8 2 1
own reducescatter-ring-4-apart rings rs 4 1
own reducescatter-ring-4 rings rs-inplace 4 1
solved allgather-ring-4-solved Allgather Ring 4 3
solved reducescatter-ring-4-solved ReduceScatter Ring 4 3
solved broadcast-ring-4-solved Broadcast Ring 4 3
solved reduce-line-3-solved Reduce Line 3 2
solved gather-line-3-solved Gather Line 3 2
solved scatter-line-3-solved Scatter Line 3 2
