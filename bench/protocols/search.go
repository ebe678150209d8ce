package protocols

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"lightpath/bench/protocols/trace"
)

// Summary adds up what runs have shown.
type Summary struct {
	Runs       int
	Operations int
	Ahead      int // tickets that ranks used without asking
	Beside     int // moves for communicators while others held the plane, too
	Simulated  time.Duration
	Coverage   Coverage
	Hash       uint64 // of the trace of the last run
}

// Add adds a run.
func (s *Summary) Add(r *Result) {
	s.Runs++
	s.Operations += r.Operations
	s.Ahead += r.Ahead
	s.Beside += r.Beside
	s.Simulated += r.Time
	if s.Coverage == nil {
		s.Coverage = Coverage{}
	}
	s.Coverage.Add(r.Coverage)
	s.Hash = r.Trace.Hash
}

// Runner makes a run, as [Run] does.
type Runner func(Config, Chooser) *Result

// Make makes a run. If the code that runs panics, that is a violation of "panic", and the trace has the stack only.
func (run Runner) Make(cfg Config, c Chooser) (r *Result) {
	defer func() {
		if p := recover(); p != nil {
			r = &Result{Violation: fmt.Errorf("panic: %v", p)}
			r.Trace.Lines = []trace.Line{{Kind: trace.Violation, Text: fmt.Sprintf("panic: %v\n%s", p, debug.Stack())}}
		}
	}()
	return run(cfg, c)
}

// Search makes runs of cfg with the seeds from seed on, workers at a time, until a run violates an invariant. It
// returns that run's simulation, nil if no run does, and the summary up to that run. Both depend on cfg, seed and runs
// only, unless ctx ends the search: then it returns early. Search calls progress, if not nil, with the summary so far.
func Search(ctx context.Context, run Runner, cfg Config, seed uint64, runs, workers int, progress func(*Summary),
) (*Summary, *Simulation) {
	sum := &Summary{}
	for sum.Runs < runs && ctx.Err() == nil {
		batch := make([]*Result, min(workers, runs-sum.Runs))
		first := seed + uint64(sum.Runs)
		var wait sync.WaitGroup
		for i := range batch {
			wait.Go(func() { batch[i] = run.Make(cfg, Random(first+uint64(i))) })
		}
		wait.Wait()
		for i, r := range batch {
			sum.Add(r)
			if r.Violation != nil {
				return sum, &Simulation{Config: cfg, Seed: first + uint64(i), Violation: InvariantOf(r.Violation)}
			}
		}
		if progress != nil {
			progress(sum)
		}
	}
	return sum, nil
}
