package figure

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"lightpath/collectives/schedule"
	"lightpath/plans"
	"lightpath/plans/planner"
)

// ErrUnknown reports that there is no such figure. The error lists all figures.
var ErrUnknown = errors.New("no such figure")

// Options set the amount of computation. The zero value makes the full figure.
type Options struct {
	// Quick makes a coarse figure in seconds: fewer points, less search.
	Quick bool
	// Runs is the number of random matrices per point of a SPECTRA figure; 0: the
	// figure's own default.
	Runs int
	// Seed of matrices and searches.
	Seed int64
	// Demand is a square matrix, which replaces the random matrices in the report on spectra. Figures of papers do not
	// read it.
	Demand [][]float64
	// Progress, if not nil, is called with the number of completed pieces, from one goroutine at a time.
	Progress func(done, total int)
}

// Entry is a figure that can be made.
type Entry struct {
	Paper, Name, About string
	Make               func(ctx context.Context, o Options) (*Figure, error)
}

// Catalogue lists figures.
type Catalogue []Entry

// Papers are the figures of the papers, in their order.
var Papers = Catalogue{
	{"harvest", "5", "speedup over a static ring and over BvN, message size x reconfiguration delay", harvest5},
	{"harvest", "8", "multi-port Swing on 2-D and 3-D tori", harvest8},
	{"harvest", "9", "Bruck's algorithms and broadcast trees", harvest9},
	{"harvest", "10", "All-to-All against a static low-diameter graph with optimal flow", harvest10},
	{"swot", "7", "CCT over message size, 256 nodes, 8 planes", swot7},
	{"swot", "8", "CCT over cluster size, 4 planes, 32 MB", swot8},
	{"swot", "9", "best algorithm per primitive and scheme", swot9},
	{"swot", "10", "gain over Strawman at 2, 4 and 8 planes", swot10},
	{"swot", "11", "reconfiguration overhead at 0.02 to 20 ms", swot11},
	{"spectra", "6", "makespan over the delay, training workloads", spectra6},
	{"spectra", "7", "with and without EQUALIZE", spectra7},
	{"spectra", "8", "sensitivity to noise", spectra8},
	{"spectra", "9", "makespan over the delay, benchmark workload", spectra9},
	{"spectra", "10", "makespan over the flows per port", spectra10},
	{"lumoscore", "6a", "contention with and without interleaved wiring, one job in three pods", lumos6a},
	{"lumoscore", "8", "running and completion times of 1000 jobs on 4096 GPUs, by fabric", lumos8},
	{"lumoscore", "8c", "the same over the size of the cluster, and links rewired (Table 6)", lumos8c},
	{"lumoscore", "load", "the same at loads that fill 16384 GPUs, and how many jobs wait", lumosLoad},
}

// List returns "paper name: what" for each figure.
func (c Catalogue) List() []string {
	lines := c.Names()
	for i, e := range c {
		lines[i] += ": " + e.About
	}
	return lines
}

// Names returns "paper name" for each figure.
func (c Catalogue) Names() []string {
	names := make([]string, len(c))
	for i, e := range c {
		names[i] = e.Paper + " " + e.Name
	}
	return names
}

// Make computes a figure. It fails with [ErrUnknown], with the context's error, or with a planner's error. The last is
// a defect: every problem of a figure has a plan.
func (c Catalogue) Make(ctx context.Context, paper, name string, o Options) (*Figure, error) {
	for _, e := range c {
		if e.Paper == paper && e.Name == name {
			f, err := e.Make(ctx, o)
			if err != nil {
				return nil, fmt.Errorf("figure: %s %s: %w", paper, name, err)
			}
			f.Paper, f.Name = paper, name
			return f, nil
		}
	}
	return nil, fmt.Errorf("figure: %w: %q %q (there are %s)", ErrUnknown, paper, name, strings.Join(c.Names(), ", "))
}

// Each runs work for 0..n-1 on all processors and calls progress, if not nil, after each. It returns the error with the
// lowest index. Calls for different indexes must not write the same variables.
func Each(ctx context.Context, n int, progress func(done, total int), work func(i int) error) error {
	var mu sync.Mutex
	done, errs := 0, make([]error, n)
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i := range n {
		group.Go(func() error {
			if errs[i] = ctx.Err(); errs[i] == nil {
				errs[i] = work(i)
			}
			mu.Lock()
			defer mu.Unlock()
			done++
			if progress != nil {
				progress(done, n)
			}
			return nil
		})
	}
	_ = group.Wait() // errs has the errors
	return cmp.Or(errs...)
}

// runs returns how many random inputs a point has: as the user asks, one in a quick figure, or else usual.
func (o Options) runs(usual int) int {
	switch {
	case o.Runs > 0:
		return o.Runs
	case o.Quick:
		return 1
	}
	return usual
}

// Collective returns the planning problem of a collective on the fabric of a template. It counts bytes as nccl-tests
// does.
func Collective(c schedule.Collective, algorithm string, bytes float64, fabric plans.Problem) (*plans.Problem, error) {
	s, err := schedule.Build(c, algorithm, fabric.Ranks, 0, schedule.Disjoint)
	if err != nil {
		return nil, err
	}
	p, _, err := schedule.Problem(s, bytes, &fabric)
	return p, err
}

// resize returns p for a message factor times as large.
func resize(p *plans.Problem, factor float64) *plans.Problem {
	q := *p
	q.Steps = make([]plans.Step, len(p.Steps))
	for i, s := range p.Steps {
		s.Bytes *= factor
		q.Steps[i] = s
	}
	return &q
}

// cct returns the completion time of a planner's plan, in us; NaN: there is no plan. A limit of operations ends the
// search, so that it repeats. The limit of time is far beyond it.
func cct(ctx context.Context, name string, p *plans.Problem, effort time.Duration, seed int64) (float64, error) {
	plan, err := planner.Solve(ctx, name, p, planner.Options{Effort: effort, TimeLimit: 20*effort + 5*time.Second,
		Seed: seed})
	switch {
	case errors.Is(err, planner.ErrInfeasible):
		return math.NaN(), nil
	case err != nil:
		return 0, err
	case ctx.Err() != nil:
		return 0, ctx.Err()
	}
	return plan.CCTUS, nil
}

// ideal returns SWOT's Ideal: the completion time, in us, without switching costs and with each step split over all
// planes.
func ideal(p *plans.Problem) float64 {
	sum := 0.0
	for i := range p.Steps {
		s := &p.Steps[i]
		degree := stepDegree(p.Ranks, s)
		sum += plans.TransmitUS(p, 1, degree, s.Bytes/float64(p.Planes))
	}
	return sum
}

// stepDegree returns the largest number of flows that one rank sends or receives in a step.
func stepDegree(ranks int, s *plans.Step) int {
	out, in, most := make([]int, ranks), make([]int, ranks), 0
	for _, f := range s.FlowList() {
		out[f[0]]++
		in[f[1]]++
		most = max(most, out[f[0]], in[f[1]])
	}
	return most
}
