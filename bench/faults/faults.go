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

// scenario is one fault. Scenarios are independent of each other.
type scenario struct {
	Name   string
	Fault  string        // what fails, and when
	GoesOn bool          // whether the ranks' job survives
	Bound  time.Duration // most time to an error on every rank, or to the next results
	setup  setup
	play   func(*rig) error
}

// Result is the outcome of a scenario.
type Result struct {
	Name   string `json:"name"`
	Fault  string `json:"fault"`
	GoesOn bool   `json:"goes_on"`
	// Injected proves that the fault has happened.
	Injected string `json:"injected"`
	// Ranks is the error or warning of a rank. Operator is the text that controllers show to an operator.
	Ranks    string `json:"ranks"`
	Operator string `json:"operator"`
	// Took is the time from the fault to the error on the last rank, or to the end of the first
	// operation that all ranks completed after it.
	Took  time.Duration `json:"took_ns"`
	Bound time.Duration `json:"bound_ns"`
	// Operations that every rank has completed, and wrong elements in their results.
	Operations int   `json:"operations"`
	Wrong      int64 `json:"wrong"`
	// Lost counts frames that the kernel has dropped on dark or wrong circuits. Silent counts those of them that
	// failed no operation.
	Lost   uint64 `json:"frames_lost"`
	Silent uint64 `json:"frames_lost_silently"`
	// Problem says why the scenario failed; "": it did not.
	Problem string `json:"problem,omitempty"`
}

// Options of a run.
type Options struct {
	Lightpath string // path of the command: controllers, switches, operators
	Worker    string // path of lightpath-rank
	Only      string // run only scenarios whose names contain it
	Slack     int    // factor on all bounds, for a machine that has other work; 0: 1
	Progress  func(format string, args ...any)
}

// Errors of this package.
var (
	// ErrProblem reports that a scenario failed.
	ErrProblem = errors.New("a fault was not handled as it must be")
	// ErrNone reports that no scenario has such a name.
	ErrNone = errors.New("no scenario has a name like that (killed, drift, mirror, disabled and scpi select some)")
)

// scenarios returns all scenarios, in the order of the table.
func scenarios() []scenario {
	return slices.Concat(rankScenarios(), controllerScenarios(), planeScenarios(), gapScenarios(), switchScenarios(),
		operatorScenarios())
}

// Run plays the scenarios one after the other. The error wraps [ErrProblem] if a scenario failed. The results are
// complete nevertheless, and say which scenario failed and why.
func Run(ctx context.Context, o *Options) ([]Result, error) {
	chosen := slices.DeleteFunc(scenarios(), func(s scenario) bool { return !strings.Contains(s.Name, o.Only) })
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

// run plays a scenario and checks its result.
func (s *scenario) run(ctx context.Context, o *Options) Result {
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
	// Paths of temporary files tell a reader nothing.
	for _, text := range []*string{&r.Ranks, &r.Operator, &r.Problem} {
		if g.dir != "" {
			*text = strings.ReplaceAll(*text, g.dir+"/", "")
		}
	}
	return r
}

// judge measures the numbers that all scenarios have, and checks the result.
func (g *rig) judge() (err error) {
	// Frames in flight when ranks are stopped do not count as lost.
	stopped := g.open && !isClosed(g.job.done)
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

// outcome is the end of a job.
type outcome struct {
	failed bool   // a rank reported an error
	said   string // the error
	ended  error  // another reason why the job ended; nil: it completed or still runs
}

// check returns an error if the result is not the expected one.
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
