package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"lightpath/bench"
)

// ErrNotBroken reports that a run without a drain succeeded: the barrier or the switch does not work.
var ErrNotBroken = errors.New("demo: a drain was skipped and nothing failed")

// ErrNone reports that Only selects no experiment.
var ErrNone = errors.New("demo: no experiment's title")

// Run runs every trial, prints the table to w and writes the report. After an error both show the trials before it.
func Run(ctx context.Context, o *Options, w io.Writer) ([]*Trial, error) {
	list := slices.DeleteFunc(o.experiments(), func(e Experiment) bool { return !strings.Contains(e.name(), o.Only) })
	if len(list) == 0 {
		return nil, fmt.Errorf("%w contains %q", ErrNone, o.Only)
	}
	if o.Kernel {
		if err := checkCapacity(list, w); err != nil {
			return nil, err
		}
	}
	trials, err := runAll(ctx, o, list)
	o.Progress("")
	if len(trials) > 0 {
		writeTable(w, trials)
		if o.Report != "" {
			err = errors.Join(err, writeReport(o.Report, trials))
		}
	}
	return trials, err
}

func runAll(ctx context.Context, o *Options, list []Experiment) (trials []*Trial, err error) {
	for i := range list {
		for _, name := range planners {
			o.Progress("%s, %s", list[i].name(), name)
			t, err := runTrial(ctx, o, &list[i], name)
			if err != nil {
				return trials, err
			}
			trials = append(trials, t)
		}
	}
	return trials, nil
}

// experiments returns the experiments for the planes of the options.
func (o *Options) experiments() []Experiment {
	if o.Kernel {
		return kernelExperiments()
	}
	return experiments()
}

// Break runs the first experiment's swot plan without the drain before one switch of plane 0, which then switches with
// bytes on the wire. It returns the failure that the ranks reported, or [ErrNotBroken].
func Break(ctx context.Context, o *Options) error {
	broken := *o
	broken.breakDrain = true
	_, err := runTrial(ctx, &broken, &o.experiments()[0], "swot")
	if err == nil {
		return ErrNotBroken
	}
	if errors.Is(err, bench.ErrRankFailed) {
		return fmt.Errorf("demo --break drain: plane 0 switched with bytes on the wire, and the run failed as it must: %w",
			err)
	}
	return err
}

func writeTable(w io.Writer, trials []*Trial) {
	fmt.Fprintf(w, "\n%d ranks; times in ms\n", ranks)
	var last *Experiment
	for _, t := range trials {
		if t.Experiment != last {
			last = t.Experiment
			fmt.Fprintf(w, "\n%s, %s\n", last.name(), last.facts())
			fmt.Fprintf(w, "  %-10s %10s %10s %10s %8s %10s %10s %8s %7s\n",
				"planner", "plan CCT", "expected", "measured", "error", "vs perstep", "reconfigs", "frames", "wrong")
		}
		if t.Infeasible != nil {
			fmt.Fprintf(w, "  %-10s infeasible: %s\n", t.Planner, reason(t.Infeasible))
			continue
		}
		fmt.Fprintf(w, "  %-10s %10.2f %10.2f %10.2f %7.2f%% %10s %10.1f %8d %7d\n",
			t.Planner, t.Plan.CCTUS/1e3, t.expected()/1e3, t.MeasuredCCT/1e3, 100*t.Error(), overPerstep(t, trials),
			t.reconfigurations(), t.Audit.Frames, t.Wrong)
	}
	fmt.Fprintf(w, "\n%s\n", summarize(trials))
	fmt.Fprintln(w, `
expected: the plan's CCT; for All-to-All, whose steps are independent, the time of the busiest plane, since
          ranks follow data and not the planning model's barrier between steps
measured: median over iterations of the slowest rank's completion; every frame audited against the plan, none lost`)
}

// agreement is how far two times may be apart to count as equal: measured and expected, or two plans.
const agreement = 0.05

// summarize counts the trials that took the expected time, and the pairs of planners in the expected order. A pair
// counts if its expected times differ.
func summarize(trials []*Trial) string {
	ran, close, pairs, ordered, lost, wrong := 0, 0, 0, 0, 0, int64(0)
	worst := 0.0
	for i, t := range trials {
		if t.Infeasible != nil {
			continue
		}
		ran++
		lost += t.Audit.Lost
		wrong += t.Wrong
		if worst = max(worst, math.Abs(t.Error())); math.Abs(t.Error()) <= agreement {
			close++
		}
		for _, o := range trials[:i] {
			if o.Experiment != t.Experiment || o.Infeasible != nil || math.Abs(o.expected()/t.expected()-1) <= agreement {
				continue
			}
			if pairs++; (o.expected() < t.expected()) == (o.MeasuredCCT < t.MeasuredCCT) {
				ordered++
			}
		}
	}
	return fmt.Sprintf("%d of %d trials within %.0f %% of expected, the furthest %.1f %% away; "+
		"%d of %d pairs of planners whose expected times differ by more are in the expected order; "+
		"%d frames lost, %d elements wrong", close, ran, 100*agreement, 100*worst, ordered, pairs, lost, wrong)
}

// overPerstep compares the measured time of a trial with that of perstep on the same experiment.
func overPerstep(t *Trial, trials []*Trial) string {
	for _, o := range trials {
		if o.Experiment == t.Experiment && o.Planner == "perstep" && o.Infeasible == nil && o != t {
			return fmt.Sprintf("%+.1f%%", 100*(t.MeasuredCCT/o.MeasuredCCT-1))
		}
	}
	return ""
}

// reason returns the last part of an infeasibility: the step and why it has no plan.
func reason(err error) string {
	text := err.Error()
	if i := strings.Index(text, "infeasible: "); i >= 0 {
		return text[i+len("infeasible: "):]
	}
	return text
}
