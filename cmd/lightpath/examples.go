package main

import (
	"strings"

	"github.com/spf13/cobra"
)

// examples holds the lines that a command's help shows under "Examples", by the words that name the command.
// A test parses each line.
var examples = map[string]string{
	"bench": `
lightpath bench allreduce -n 4 -b 8 -e 64M -f 2
lightpath bench alltoall -n 8 --transport tcp --planes 2
LIGHTPATH_FABRIC=fabric.yaml lightpath bench allreduce -n 8 --planner swot
lightpath bench allreduce -n 4 -d all -o all --json results.json
mpirun -np 4 lightpath bench alltoall`,
	"bench alltoallv": `
lightpath bench alltoallv --ranks 4 --planes 2 --bytes 16M --skew 4`,
	"bench barrier": `
lightpath bench barrier --ranks 2,4,8 --svg barrier.svg`,
	"bench kernels": `
lightpath bench kernels --datatype float32 --op sum --threads 1,2`,
	"bench latency": `
lightpath bench latency --ranks 2 --bytes 8 --calls 10000`,
	"bench peers": `
lightpath bench peers --collective allreduce --ranks 2,4 --sizes 8,1M --out build/peers`,
	"demo": `
lightpath demo
lightpath demo --only recursive --iters 10
lightpath demo --json - --report report.html`,
	"doctor": `
lightpath doctor
lightpath doctor --env`,
	"fabric agent": `
lightpath fabric agent --fabric fabric.yaml --host node1 --cert node1.crt --key node1.key --ca ca.crt`,
	"fabric calibrate": `
lightpath fabric calibrate --fabric fabric.yaml --write`,
	"fabric delay": `
lightpath fabric delay --interface h0p0,h1p0 --time 100us`,
	"fabric down": `
lightpath fabric down --fabric fabric.yaml
lightpath fabric down --left`,
	"fabric lose": `
lightpath fabric lose --interface eth2,eth3 --rate 1%`,
	"fabric status": `
lightpath fabric status
lightpath fabric status --fabric fabric.yaml --json`,
	"fabric up": `
lightpath fabric up --fabric fabric.yaml`,
	"faults": `
lightpath faults
lightpath faults --only killed --json`,
	"figure": `
lightpath figure --list
lightpath figure swot 7 --out figures`,
	"iteration check": `
lightpath iteration check iteration.json --fabric fabric.yaml`,
	"iteration explain": `
lightpath iteration explain trace.json --fabric fabric.yaml --planes 2,4,8 --reconfig 1ms,5ms,25ms`,
	"iteration import": `
lightpath iteration import --model mixtral-8x22b --out trace.json
lightpath iteration import --format flight /tmp/flights/*.json --out trace.json
lightpath iteration import --format chakra --gpus-per-pod 64 rank0.et rank1.et --out trace.json`,
	"iteration plan": `
lightpath iteration plan trace.json --fabric fabric.yaml -o iteration.json`,
	"iteration record": `
lightpath iteration record -o trace.json -- torchrun --nproc_per_node 4 train.py
lightpath iteration record -o trace.json --library /usr/lib/x86_64-linux-gnu/libnccl.so.2 -- python3 train.py
lightpath iteration record --merge /shared/recordings -o trace.json`,
	"iteration show": `
lightpath iteration show iteration.json --html iteration.html
lightpath iteration show iteration.json --trace perfetto.json`,
	"ocs certs": `
lightpath ocs certs --dir certs --host ocs1.example.net,192.0.2.7`,
	"ocs baseline": `
lightpath ocs baseline --fabric fabric.yaml --plane p0 --port 3,7`,
	"ocs confirm": `
lightpath ocs confirm --fabric fabric.yaml --plane p0`,
	"ocs disable": `
lightpath ocs disable --fabric fabric.yaml --plane p0 --reason cleaning`,
	"ocs drift": `
lightpath ocs drift --fabric fabric.yaml --plane p0 --map ring:1
lightpath ocs drift --controller ocs1.example.net:7001`,
	"ocs emulate": `
lightpath ocs emulate --ports 16 --scpi 127.0.0.1:5025`,
	"ocs enable": `
lightpath ocs enable --fabric fabric.yaml --plane p0`,
	"ocs history": `
lightpath ocs history --fabric fabric.yaml --plane p0 --since 1h`,
	"ocs ports": `
lightpath ocs ports --fabric fabric.yaml --plane p0`,
	"ocs remap": `
lightpath ocs remap --fabric fabric.yaml --plane p0 --port 3 --to 17/33`,
	"ocs rewire": `
lightpath ocs rewire --controller ocs1.example.net:7001 --steps steps.json`,
	"ocs set": `
lightpath ocs set --fabric fabric.yaml --plane p0 --map ring:1
lightpath ocs set --fabric fabric.yaml --plane p0,p1 --map ring:2 --if-current ring:1 --confirm-within 10m
lightpath ocs set --fabric fabric.yaml --plane p0 --map dark`,
	"ocs status": `
lightpath ocs status --fabric fabric.yaml
lightpath ocs status --controller ocs1.example.net:7001 --plane p0 --json`,
	"ocsd": `
lightpath ocsd --config ocsd.yaml`,
	"plan build": `
lightpath plan build --collective alltoall --ranks 16 --bytes 64M --fabric fabric.yaml --out plan.json
lightpath plan build --collective allreduce --algorithm ring --ranks 8 --bytes 16M --planes 2 --bandwidth 100Gbps \
  --reconfig 200us --planner swot`,
	"plan cache ls": `
lightpath plan cache ls --fabric fabric.yaml`,
	"plan cache rm": `
lightpath plan cache rm --stale --fabric fabric.yaml`,
	"plan cache show": `
lightpath plan cache show NAME --bytes 16M`,
	"plan cache warm": `
lightpath plan cache warm --fabric fabric.yaml --collective allreduce,alltoall --bytes 1M,16M --ranks 8`,
	"plan check": `
lightpath plan check --in problem.json --plan plan.json`,
	"plan problem": `
lightpath plan problem --collective allreduce --algorithm ring --ranks 8 --bytes 16M --fabric fabric.yaml \
  --out problem.json`,
	"plan show": `
lightpath plan show --in problem.json --plan plan.json
lightpath plan show --in problem.json --plan plan.json --svg plan.svg
lightpath plan show --plan plan.json --trace trace.json`,
	"plan solve": `
lightpath plan solve --planner swot --in problem.json --out plan.json`,
	"jobs": `
lightpath jobs --fabric fabric.yaml`,
	"jobs begin": `
lightpath jobs begin 17 --fabric fabric.yaml --ports 0-3 --map ring:1
lightpath jobs begin 18 --controller localhost:7442 --ports 4,6,5,7 --name train`,
	"jobs end": `
lightpath jobs end 17 --fabric fabric.yaml`,
	"ranks": `
lightpath ranks
lightpath ranks --watch`,
	"ranks merge": `
lightpath ranks merge --table rank0.dump rank1.dump
lightpath ranks merge --trace trace.json rank0.dump rank1.dump`,
	"run": `
lightpath run -n 4 -- python3 train.py
lightpath run -n 2 --preload -- ./my_nccl_program
srun -N 4 lightpath run -- python3 train.py`,
	"schedule export": `
lightpath schedule export --collective allreduce --algorithm ring --ranks 8 --xml ring.xml`,
	"schedule show": `
lightpath schedule show --collective allreduce --algorithm recursive-doubling --ranks 8 --bytes 16M`,
	"schema": `
lightpath schema plan`,
	"sim": `
lightpath sim --in problem.json --plan plan.json`,
	"simulate": `
lightpath simulate --runs 1000
lightpath simulate --seed 7 --operations 1000 --svg run.svg
lightpath simulate --runs 1000 --planes 3 --out failed.json
lightpath simulate --in failed.json --svg failed.svg`,
	"topo": `
lightpath topo
lightpath topo --fabric fabric.yaml`,
	"topology delta compare": `
lightpath topology delta compare --models gpt-7b --bandwidths 200,400`,
	"topology delta exact": `
lightpath topology delta exact --in job.json --model joint --solver cbc --time-limit 5m`,
	"topology delta generate": `
lightpath topology delta generate --model gpt-7b --out job.json`,
	"topology delta import": `
lightpath topology delta import --format chakra --gpus-per-pod 64 --out job.json rank0.et rank1.et`,
	"topology delta plan": `
lightpath topology delta plan --in job.json --out topology.json --fabric fabric.yaml --maps maps`,
	"topology delta simulate": `
lightpath topology delta simulate --in job.json --topology topology.json`,
	"topology lumos place": `
lightpath topology lumos place --fabric lumos-1-25.6 --gpus 512 --pp 2 --dp 6`,
	"topology lumos plan": `
lightpath topology lumos plan --in requirement.json --out core.json --fabric fabric.yaml`,
	"topology lumos rewire": `
lightpath topology lumos rewire --core core.json --in requirement.json --steps steps.json`,
	"topology lumos simulate": `
lightpath topology lumos simulate --gpus 4096 --jobs 1000 --level 0.8`,
	"topology lumos sizes": `
lightpath topology lumos sizes --k-ocs 256`,
	"topology lumos wire": `
lightpath topology lumos wire --pods 8 --k-leaf 32 --k-spine 64 --tau 1`,
}

// addExamples gives each command of the tree its examples.
func addExamples(c *cobra.Command, words []string) {
	if text, ok := examples[strings.Join(words, " ")]; ok {
		c.Example = "  " + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n  ")
	}
	for _, sub := range c.Commands() {
		addExamples(sub, append(words[:len(words):len(words)], sub.Name()))
	}
}
