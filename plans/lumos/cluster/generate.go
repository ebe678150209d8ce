package cluster

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
)

// Spec is a synthetic trace.
type Spec struct {
	Jobs       int
	GPUs       int     // of the cluster; larger jobs are left out
	Level      float64 // workload level (Eq. 9): GPU seconds asked for over those there are
	Seed       uint64
	ServerGPUs int
}

// sizes is the distribution of job sizes: that of slices of TPUv4 pods (Jouppi et al. 2023), rounded
// down to powers of two, to which the artifact of LumosCore scales the sizes of Helios.
var sizes = []struct {
	gpus int
	upTo float64 // share of jobs of at most this size
}{
	{32, 0.29}, {64, 0.43}, {128, 0.612}, {256, 0.73}, {512, 0.956}, {1024, 0.995}, {2048, 1},
}

// durations are quantiles of running times in seconds, between which the logarithm is interpolated: those
// of the 1000 jobs of Helios in the artifact's logs for an ideal network.
var durations = []struct{ quantile, seconds float64 }{
	{0, 414}, {0.02, 590}, {0.1, 770}, {0.2, 925}, {0.3, 1181}, {0.4, 1787}, {0.5, 2109}, {0.6, 3361}, {0.7, 7592},
	{0.8, 12912},
	{0.85, 16682}, {0.9, 44584}, {0.925, 73906}, {0.95, 122603}, {0.97, 160009}, {0.98, 198602}, {0.99, 442528},
	{1, 679649},
}

// Generate makes a trace: sizes and durations as above, independent of each other, arrivals as a Poisson process whose
// rate gives the workload level.
func Generate(s Spec) ([]Job, error) {
	switch {
	case s.Jobs < 1 || s.Jobs > maxJobs:
		return nil, fmt.Errorf("%w: %d jobs; want 1 to %d", ErrInput, s.Jobs, maxJobs)
	case s.GPUs < sizes[0].gpus:
		return nil, fmt.Errorf("%w: %d GPUs; the smallest job has %d", ErrInput, s.GPUs, sizes[0].gpus)
	}
	r := rand.New(rand.NewPCG(s.Seed, 0x747261636573))
	jobs := make([]Job, s.Jobs)
	for i := range jobs {
		j := &jobs[i]
		j.Name = strconv.Itoa(i)
		for j.GPUs = s.GPUs + 1; j.GPUs > s.GPUs; {
			j.GPUs = drawSize(r.Float64())
		}
		j.Duration = drawDuration(r.Float64())
	}
	if err := Retime(jobs, s.GPUs, s.Level, s.Seed); err != nil {
		return nil, err
	}
	Divide(jobs, s.ServerGPUs, s.Seed)
	return jobs, nil
}

// maxJobs bounds a trace.
const maxJobs = 1 << 20

func drawSize(u float64) int {
	k := 0
	for u >= sizes[k].upTo {
		k++
	}
	return sizes[k].gpus
}

func drawDuration(u float64) float64 {
	k := 1
	for durations[k].quantile < u {
		k++
	}
	a, b := durations[k-1], durations[k]
	at := (u - a.quantile) / (b.quantile - a.quantile)
	return math.Exp(math.Log(a.seconds)*(1-at) + math.Log(b.seconds)*at)
}

// Retime gives jobs, in their order, new arrivals: a Poisson process that offers GPUs the given
// workload level.
func Retime(jobs []Job, gpus int, level float64, seed uint64) error {
	if !(level > 0) || math.IsInf(level, 0) {
		return fmt.Errorf("%w: workload level %v", ErrInput, level)
	}
	work := 0.0
	for _, j := range jobs {
		work += float64(j.GPUs) * j.Duration
	}
	gap := work / float64(len(jobs)) / (level * float64(gpus))
	r := rand.New(rand.NewPCG(seed, 0x6172726976616c73))
	at := 0.0
	for i := range jobs {
		at += gap * r.ExpFloat64()
		jobs[i].Arrival = at
	}
	return nil
}

// Rescale gives jobs sizes of the distribution of [Generate], the k-th smallest job the k-th smallest
// size, ties in the order of a seed: how the paper's evaluation makes large jobs of Helios' small ones.
func Rescale(jobs []Job, gpus int, seed uint64) error {
	if gpus < sizes[0].gpus {
		return fmt.Errorf("%w: %d GPUs; the smallest job has %d", ErrInput, gpus, sizes[0].gpus)
	}
	r := rand.New(rand.NewPCG(seed, 0x73697a6573))
	order := r.Perm(len(jobs))
	slices.SortStableFunc(order, func(a, b int) int { return jobs[a].GPUs - jobs[b].GPUs })
	most := 0.0 // share of jobs that fit
	for _, s := range sizes {
		if s.gpus <= gpus {
			most = s.upTo
		}
	}
	for k, i := range order {
		jobs[i].GPUs = drawSize(most * (float64(k) + 0.5) / float64(len(jobs)))
	}
	return nil
}
