// Package latency measures the times of single calls: small AllReduces back to back, on an otherwise
// idle machine and beside programs that allocate and collect garbage in Go and in Python.
//
// Layer: bench.
package latency

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"lightpath/bench"
	"lightpath/bench/barrier"
)

// Load is what runs beside the ranks.
type Load string

// The loads. Each is one process that makes garbage as fast as it can.
const (
	None   Load = "none"
	Go     Load = "go"
	Python Load = "python"
)

// Options say what is measured.
type Options struct {
	Spec      bench.Spec // MinBytes is the size, Iters the number of calls
	Ranks     int
	Transport string
	Worker    string // path of lightpath-rank
	Loads     []Load
	// Commands start the loads; a load that is not None must have one.
	Commands map[Load][]string
	Env      []string // of the ranks
	Deadline time.Duration
}

// Report is the distribution of calls beside one load, over all ranks.
type Report struct {
	Load       Load              `json:"load"`
	Collective string            `json:"collective"`
	Bytes      int64             `json:"bytes"`
	Ranks      int               `json:"ranks"`
	Calls      int               `json:"calls"` // of each rank
	CPUs       int               `json:"cpus"`
	Wrong      int64             `json:"wrong"`
	Times      barrier.Quantiles `json:"times_ns"`
	Histogram  []barrier.Bucket  `json:"histogram"`
}

// Run measures beside one load after the other.
func Run(ctx context.Context, o *Options) ([]*Report, error) {
	var all []*Report
	for _, load := range o.Loads {
		r, err := beside(ctx, o, load)
		if err != nil {
			return all, fmt.Errorf("latency: load %s: %w", load, err)
		}
		all = append(all, r)
	}
	return all, nil
}

func beside(ctx context.Context, o *Options, load Load) (*Report, error) {
	stop, err := start(ctx, o.Commands[load])
	if load == None {
		stop, err = func() error { return nil }, nil
	}
	if err != nil {
		return nil, err
	}
	spec := o.Spec
	spec.Sync, spec.Each = false, true
	count := bench.Count(spec.Collective, spec.MinBytes, spec.Type, o.Ranks)
	ranks := bench.Ranks{N: o.Ranks, Worker: o.Worker, Transport: o.Transport, Env: o.Env, Deadline: o.Deadline}
	reports, err := ranks.Run(ctx, []string{spec.RunLine(spec.MinBytes, count, false)})
	if err := errors.Join(err, stop()); err != nil {
		return nil, err
	}
	out := &Report{
		Load: load, Collective: spec.Collective.String(), Bytes: spec.MinBytes, Ranks: o.Ranks, Calls: spec.Iters, CPUs: runtime.NumCPU(),
	}
	var ns []int64
	for rank, own := range reports {
		if len(own) != 1 || len(own[0].Iters) != spec.Iters {
			return nil, fmt.Errorf("rank %d did not report %d calls", rank, spec.Iters)
		}
		out.Wrong += own[0].Wrong
		for _, call := range own[0].Iters {
			ns = append(ns, call[1]-call[0])
		}
	}
	out.Times = barrier.QuantilesOf(ns)
	out.Histogram = barrier.HistogramOf(ns)
	return out, nil
}

// start starts a load; stop ends it, and fails where it had ended before.
func start(ctx context.Context, argv []string) (stop func() error, err error) {
	if len(argv) == 0 {
		return nil, errors.New("no command for it")
	}
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var said bench.Tail
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return func() error {
		_ = cmd.Process.Kill() // no harm to one that has ended: it keeps its own status
		err := cmd.Wait()
		if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signal() == syscall.SIGKILL || ctx.Err() != nil {
			return nil
		}
		return fmt.Errorf("the load ended by itself: %w %s", cmp.Or(err, bench.ErrEnded), said.String())
	}, nil
}

// PythonLoad is a Python program that makes garbage with cycles, which its collector must find.
const PythonLoad = `
while True:
    nodes = [{"n": i, "text": str(i)} for i in range(20000)]
    for a, b in zip(nodes, nodes[1:] + nodes[:1]):
        a["next"], b["previous"] = b, a
`

// Burn makes garbage in Go until ctx ends: lists that live through some collections.
func Burn(ctx context.Context) {
	type node struct {
		next *node
		_    [8]int64 // as large as what programs make
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
