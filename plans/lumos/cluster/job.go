package cluster

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"

	"lightpath/plans/lumos/place"
)

// ErrInput is wrapped by every error about arguments.
var ErrInput = errors.New("bad input")

// Job is a training job as it is submitted.
type Job struct {
	Name    string
	Arrival float64 // seconds from the beginning of the trace
	// Duration is the running time, in seconds, on a network where no flow waits. Its ports have the rate to
	// which Shares refer.
	Duration float64
	GPUs     int
	Grid     place.Grid // of the servers; 1 x 1 where they are not several
	Shares   place.Volume
	Model    string // name of the workload that gave the shares
}

// Check returns what is wrong with a job on servers of so many GPUs.
func (j *Job) Check(serverGPUs int) error {
	if j.GPUs < 1 {
		return fmt.Errorf("%w: job %s: %d GPUs", ErrInput, j.Name, j.GPUs)
	}
	for _, f := range []struct {
		name  string
		value float64
	}{{"arrival", j.Arrival}, {"duration", j.Duration}} {
		if !(f.value >= 0) || math.IsInf(f.value, 0) {
			return fmt.Errorf("%w: job %s: %s %v", ErrInput, j.Name, f.name, f.value)
		}
	}
	if err := j.Grid.Check(); err != nil {
		return fmt.Errorf("%w: job %s: %w", ErrInput, j.Name, err)
	}
	if n := serversOf(j.GPUs, serverGPUs); j.Grid.Servers() != n {
		return fmt.Errorf("%w: job %s: %d GPUs are %d servers, its grid is PP %d x DP %d", ErrInput, j.Name, j.GPUs, n,
			j.Grid.PP, j.Grid.DP)
	}
	sum := 0.0
	for phase, share := range j.Shares {
		if !(share >= 0) {
			return fmt.Errorf("%w: job %s: %v takes %v of an iteration", ErrInput, j.Name, place.Phase(phase), share)
		}
		sum += share
	}
	if sum > 1 {
		return fmt.Errorf("%w: job %s: communication takes %v of an iteration", ErrInput, j.Name, sum)
	}
	return nil
}

func serversOf(gpus, serverGPUs int) int { return (gpus + serverGPUs - 1) / serverGPUs }

// workload is what communication takes of an iteration of a model, on ports of 1.6 Tb/s.
type workload struct {
	name                       string
	replicas, tokens, pipeline float64
}

// workloads are the shares that the artifact of LumosCore (github.com/LumosCore/LumosCore, llm.py)
// takes from its testbed.
var workloads = []workload{
	{"pangu", 0.0737, 0.258, 0.0058},
	{"llama-7b", 0.069, 0.255, 0.0077},
	{"llama2-7b", 0.011, 0.052, 0.0047},
	{"llama2-13b", 0.0017, 0.058, 0.0034},
	{"gpt2-13b", 0.047, 0.145, 0.0063},
}

// Divide chooses models and grids at random, by seed, for jobs that have only sizes. Stages are 1 to 32 servers, groups
// of experts 1, 2 or 4, as in the artifact.
func Divide(jobs []Job, serverGPUs int, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 0x6a6f6273))
	for i := range jobs {
		j := &jobs[i]
		n := serversOf(j.GPUs, serverGPUs)
		w := workloads[r.IntN(len(workloads))]
		pp := pick(r, n, 32)
		ep := pick(r, n/pp, 4)
		j.Model, j.Grid = w.name, place.Grid{PP: pp, DP: n / pp, EP: ep}
		j.Shares = place.Volume{}
		if pp > 1 {
			j.Shares[place.Forward], j.Shares[place.Backward] = w.pipeline/2, w.pipeline/2
		}
		if ep > 1 {
			j.Shares[place.Tokens] = w.tokens
		}
		if n/pp > 1 {
			j.Shares[place.Replicas] = w.replicas
		}
	}
}

// pick returns one of the powers of two up to most that divide n.
func pick(r *rand.Rand, n, most int) int {
	options := 1
	for p := 2; p <= most && n%p == 0; p *= 2 {
		options++
	}
	return 1 << r.IntN(options)
}
