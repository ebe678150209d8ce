package latency

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"syscall"

	"lightpath/bench"
	"lightpath/bench/sampling"
)

// Load is a program that runs beside the ranks.
type Load string

// The loads. Go and Python are each one process that makes garbage as fast as it can.
const (
	None   Load = "none"
	Go     Load = "go"
	Python Load = "python"
)

// Options say what to measure.
type Options struct {
	Spec  bench.Spec // MinBytes is the size, Iters the number of calls
	Ranks bench.Ranks
	Loads []Load
	// Commands start the loads. Every load except None needs one.
	Commands map[Load][]string
}

// Report is the distribution of calls beside one load, over all ranks.
type Report struct {
	Load       Load                 `json:"load"`
	Collective string               `json:"collective"`
	Bytes      int64                `json:"bytes"`
	Ranks      int                  `json:"ranks"`
	Calls      int                  `json:"calls"` // of each rank
	CPUs       int                  `json:"cpus"`
	Wrong      int64                `json:"wrong"`
	Times      sampling.Percentiles `json:"times_ns"`
	Histogram  []sampling.Bucket    `json:"histogram"`
}

// Run measures beside one load after the other.
func Run(ctx context.Context, o *Options) ([]*Report, error) {
	var all []*Report
	for _, load := range o.Loads {
		r, err := o.beside(ctx, load)
		if err != nil {
			return all, fmt.Errorf("latency: load %s: %w", load, err)
		}
		all = append(all, r)
	}
	return all, nil
}

// beside measures while a load runs.
func (o *Options) beside(ctx context.Context, load Load) (*Report, error) {
	stop := func() error { return nil }
	if load != None {
		var err error
		if stop, err = start(ctx, o.Commands[load]); err != nil {
			return nil, err
		}
	}
	spec := o.Spec
	spec.Sync, spec.Each = false, true
	count := bench.Count(spec.Collective, spec.MinBytes, spec.Type, o.Ranks.N)
	reports, err := o.Ranks.Run(ctx, []string{spec.RunLine(spec.MinBytes, count, false)})
	if err := errors.Join(err, stop()); err != nil {
		return nil, err
	}
	perRank, err := bench.EveryRank(reports, 0)
	if err != nil {
		return nil, err
	}
	out := &Report{
		Load: load, Collective: spec.Collective.String(), Bytes: spec.MinBytes, Ranks: o.Ranks.N, Calls: spec.Iters,
		CPUs: runtime.NumCPU(),
	}
	var ns []float64
	for rank, r := range perRank {
		if len(r.Iters) != spec.Iters {
			return nil, fmt.Errorf("rank %d reported %d calls, not %d", rank, len(r.Iters), spec.Iters)
		}
		out.Wrong += r.Wrong
		for _, call := range r.Iters {
			ns = append(ns, float64(call[1]-call[0]))
		}
	}
	slices.Sort(ns)
	out.Times, out.Histogram = sampling.PercentilesOf(ns), sampling.HistogramOf(ns)
	return out, nil
}

// start starts a load. stop ends it, and fails if the load has ended by itself.
func start(ctx context.Context, argv []string) (stop func() error, err error) {
	if len(argv) == 0 {
		return nil, errors.New("no command for it")
	}
	c := bench.NewChild(ctx, argv...)
	if err := c.Start(); err != nil {
		return nil, err
	}
	return func() error {
		_ = c.Process.Kill() // a process that has ended keeps its own status
		err := c.Wait()
		status, ok := c.ProcessState.Sys().(syscall.WaitStatus)
		if ok && status.Signal() == syscall.SIGKILL || ctx.Err() != nil {
			return nil
		}
		return fmt.Errorf("the load ended by itself: %w", c.Explain(err))
	}, nil
}

// PythonLoad is a Python program that makes garbage with cycles, which the cycle collector must find.
const PythonLoad = `
while True:
    nodes = [{"n": i, "text": str(i)} for i in range(20000)]
    for a, b in zip(nodes, nodes[1:] + nodes[:1]):
        a["next"], b["previous"] = b, a
`

// Burn makes garbage in Go until ctx ends: lists that survive some collections.
func Burn(ctx context.Context) {
	type node struct {
		next *node
		_    [8]int64 // a size common in programs
	}
	var live [16]*node
	for k := 0; ctx.Err() == nil; k++ {
		var list *node
		for range 20000 {
			list = &node{next: list}
		}
		live[k%len(live)] = list
	}
	runtime.KeepAlive(live)
}
