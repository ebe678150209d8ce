// Package faults breaks a fabric in every way that its parts can fail, and holds what is seen against
// what must be: rank processes through the NCCL ABI, real controllers, and planes in the kernel,
// whose switches are models that can be made to fail, inside the controller or behind SCPI.
//
// A scenario proves that its fault has happened, that ranks end with an error that names what failed,
// or go on, within a bound, and that no result is wrong: a frame that is lost fails its operation.
// Everything needs root. It must not touch fabrics or processes that it has not started.
//
// Layer: inside bench.
package faults

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"lightpath/ocsctl/kernel"
)

// Scenario is one fault. Scenarios are independent of each other.
type Scenario struct {
	Name   string
	Fault  string        // what happens, when
	GoesOn bool          // whether the ranks' job survives
	Bound  time.Duration // most time to an error on every rank, or to the next results
	setup  setup
	play   func(*rig) error
}

// Result is what a scenario has shown.
type Result struct {
	Name   string `json:"name"`
	Fault  string `json:"fault"`
	GoesOn bool   `json:"goes_on"`
	// Injected is what proves that the fault has happened.
	Injected string `json:"injected"`
	// Ranks is what a rank said: its error, or a warning; Operator what controllers say.
	Ranks    string `json:"ranks"`
	Operator string `json:"operator"`
	// Took is the time from the fault to the error on the last rank, or to the end of the first
	// operation that all ranks completed after it.
	Took  time.Duration `json:"took_ns"`
	Bound time.Duration `json:"bound_ns"`
	// Operations that every rank has completed, and wrong elements in their results.
	Operations int   `json:"operations"`
	Wrong      int64 `json:"wrong"`
	// Lost is frames that the kernel has dropped on dark or wrong circuits; Silent is those of
	// them that failed no operation.
	Lost   uint64 `json:"frames_lost"`
	Silent uint64 `json:"frames_lost_silently"`
	// Problem is what is not as it must be; "" where all is.
	Problem string `json:"problem,omitempty"`
}

// Options of a run.
type Options struct {
	Lightpath string // path of the command: controllers, switches, operators
	Worker    string // path of lightpath-rank
	Only      string // runs the scenarios whose names contain it
	Slack     int    // multiplies what may take how long, on a machine that has other work; 0 is 1
	Progress  func(format string, args ...any)
}

// Errors of this package.
var (
	// ErrProblem: a scenario has not gone as it must.
	ErrProblem = errors.New("a fault was not handled as it must be")
	// ErrNone: there is no such scenario.
	ErrNone = errors.New("no scenario has a name like that")
)

// Scenarios returns all of them, in the order of the table.
func Scenarios() []Scenario {
	return slices.Concat(rankScenarios(), controllerScenarios(), planeScenarios(), switchScenarios(), operatorScenarios())
}

// Run plays the scenarios one after the other. The error wraps ErrProblem where one has not gone as it
// must; the results, which say what, are complete all the same.
func Run(ctx context.Context, o *Options) ([]Result, error) {
	chosen := slices.DeleteFunc(Scenarios(), func(s Scenario) bool { return !strings.Contains(s.Name, o.Only) })
	if len(chosen) == 0 {
		return nil, fmt.Errorf("faults: %q: %w", o.Only, ErrNone)
	}
	if err := kernel.Check(); err != nil {
		return nil, fmt.Errorf("faults: planes in the kernel: %w", err)
	}
	var all []Result
	var failed []string
	for _, s := range chosen {
		o.Progress("%s: %s", s.Name, s.Fault)
		r := s.run(ctx, o)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if all = append(all, r); r.Problem != "" {
			failed = append(failed, s.Name)
		}
	}
	o.Progress("")
	if failed != nil {
		return all, fmt.Errorf("faults: %s: %w", strings.Join(failed, ", "), ErrProblem)
	}
	return all, nil
}

// run plays a scenario and judges it.
func (s *Scenario) run(ctx context.Context, o *Options) Result {
	r := Result{Name: s.Name, Fault: s.Fault, GoesOn: s.GoesOn, Bound: s.Bound * time.Duration(max(1, o.Slack))}
	g, err := newRig(ctx, o, s, &r)
	if err == nil {
		err = s.play(g)
	}
	if err == nil {
		err = g.judge()
	}
	if err = errors.Join(err, g.close()); err != nil {
		r.Problem = strings.ReplaceAll(err.Error(), "\n", "; ")
	}
	// Where the files were says nothing to a reader.
	for _, text := range []*string{&r.Ranks, &r.Operator, &r.Problem} {
		if g.dir != "" {
			*text = strings.ReplaceAll(*text, g.dir+"/", "")
		}
	}
	return r
}

// judge measures what all scenarios have in common, and holds it against what must be.
func (g *rig) judge() (err error) {
	// Frames that are under way when ranks are stopped are lost to nobody.
	stopped := g.open && !g.job.ended()
	if !stopped {
		<-g.job.done // it has a deadline
	}
	o := outcome{failed: len(g.job.failures()) > 0, said: g.job.text()}
	if !stopped && !o.failed {
		o.ended = g.job.err
	}
	g.Operations, g.Wrong = g.job.operations(), g.job.wrongs()
	if g.Lost, err = g.losses(); err != nil {
		return err
	}
	return g.check(o)
}

// outcome is what has become of a job.
type outcome struct {
	failed bool   // a rank has said so
	said   string // what it said
	ended  error  // why the job has ended otherwise; nil where it has done all, or still runs
}

// check holds a result against what must be.
func (r *Result) check(o outcome) error {
	if !o.failed {
		r.Silent = r.Lost
	}
	switch {
	case r.Injected == "":
		return errors.New("faults: nothing shows that the fault has happened")
	case o.ended != nil:
		return fmt.Errorf("faults: the job could not be run: %w", o.ended)
	case r.GoesOn && o.failed:
		return fmt.Errorf("faults: the job should have gone on: %s", o.said)
	case !r.GoesOn && !o.failed:
		return errors.New("faults: the job should have failed")
	case r.Wrong > 0:
		return fmt.Errorf("faults: %d elements of results are wrong", r.Wrong)
	case r.Silent > 0:
		return fmt.Errorf("faults: %d frames were lost, and no operation failed", r.Silent)
	case r.Took <= 0 || r.Took > r.Bound:
		return fmt.Errorf("faults: took %v, should take at most %v", r.Took, r.Bound)
	}
	return nil
}
