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

// ErrNotBroken reports that a run whose drain was skipped went through: the barrier or the switch
// does not do its work.
var ErrNotBroken = errors.New("demo: a drain was skipped and nothing failed")

// Run runs every trial, prints the table to w and writes the report. After an error they show the
// trials before it.
func Run(ctx context.Context, o *Options, w io.Writer) ([]*Trial, error) {
	list := slices.DeleteFunc(o.experiments(), func(e Experiment) bool { return !strings.Contains(e.Key, o.Only) })
	if len(list) == 0 {
		return nil, fmt.Errorf("demo: no experiment's name contains %q", o.Only)
	}
	if o.Kernel {
		if err := roomFor(list, w); err != nil {
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
		for _, name := range list[i].Planners {
			o.Progress("(%s) %s, %s", list[i].Key, list[i].Title, name)
			t, err := runTrial(ctx, o, &list[i], name)
			if err != nil {
				return trials, err
			}
			trials = append(trials, t)
		}
	}
	return trials, nil
}

// experiments are those of the planes that the options ask for.
func (o *Options) experiments() []Experiment {
	if o.Kernel {
		return proofs()
	}
	return experiments()
}

// Break runs the first experiment's swot plan with one drain skipped: plane 0 switches with
// bytes on the wire. It returns the failure that the ranks reported, or [ErrNotBroken].
func Break(ctx context.Context, o *Options) error {
	broken := *o
	broken.BreakDrain = true
	_, err := runTrial(ctx, &broken, &o.experiments()[0], "swot")
	if err == nil {
		return ErrNotBroken
	}
	if errors.Is(err, bench.ErrRankFailed) {
		return fmt.Errorf("demo --break drain: plane 0 switched with bytes on the wire, and the run failed as it must: %w", err)
	}
	return err
}

func writeTable(w io.Writer, trials []*Trial) {
	fmt.Fprintf(w, "\n%d ranks; times in ms\n", ranks)
	var last *Experiment
	for _, t := range trials {
		if t.Experiment != last {
			last = t.Experiment
			fmt.Fprintf(w, "\n(%s) %s, %s\n", last.Key, last.Title, last.facts())
			fmt.Fprintf(w, "  %-10s %10s %10s %10s %8s %10s %10s %8s %7s\n",
				"planner", "plan CCT", "expected", "measured", "error", "vs perstep", "reconfigs", "frames", "wrong")
		}
		if t.Infeasible != nil {
			fmt.Fprintf(w, "  %-10s infeasible: %s\n", t.Planner, reason(t.Infeasible))
			continue
		}
		fmt.Fprintf(w, "  %-10s %10.2f %10.2f %10.2f %7.2f%% %10s %10.1f %8d %7d\n", t.Planner, t.Plan.CCTUS/1e3, t.Expected()/1e3,
			t.MeasuredCCT/1e3, 100*t.Error(), against(t, trials), float64(t.Finding.Switches)/float64(len(t.Times)), t.Finding.Frames, t.Wrong)
	}
	fmt.Fprintf(w, "\n%s\n", summarize(trials))
	fmt.Fprintln(w, `
expected: the plan's CCT; for All-to-All, whose steps depend on nothing, what the busiest plane needs, since
          ranks follow data and not the planning model's barrier between steps
measured: median over iterations of the slowest rank's completion; every frame audited against the plan, none lost`)
}

// agreement is how far measured and expected may be apart to count as the same, and plans to count as
// equally good.
const agreement = 0.05

// summarize counts the trials that took what was expected, and the pairs of planners whose order on an
// experiment is as expected, of those that are expected to differ.
func summarize(trials []*Trial) string {
	ran, close, pairs, ordered, lost, wrong := 0, 0, 0, 0, 0, int64(0)
	worst := 0.0
	for i, t := range trials {
		if t.Infeasible != nil {
			continue
		}
		ran++
		lost += t.Finding.Lost
		wrong += t.Wrong
		if worst = max(worst, math.Abs(t.Error())); math.Abs(t.Error()) <= agreement {
			close++
		}
		for _, o := range trials[:i] {
			if o.Experiment != t.Experiment || o.Infeasible != nil || math.Abs(o.Expected()/t.Expected()-1) <= agreement {
				continue
			}
			if pairs++; (o.Expected() < t.Expected()) == (o.MeasuredCCT < t.MeasuredCCT) {
				ordered++
			}
		}
	}
	return fmt.Sprintf("%d of %d trials within %.0f %% of expected, the furthest %.1f %% away; %d of %d pairs of planners that are to differ by more do so in the expected order; %d frames lost, %d elements wrong",
		close, ran, 100*agreement, 100*worst, ordered, pairs, lost, wrong)
}

// against compares a trial with perstep on the same experiment, both measured.
func against(t *Trial, trials []*Trial) string {
	for _, o := range trials {
		if o.Experiment == t.Experiment && o.Planner == "perstep" && o.Infeasible == nil && o != t {
			return fmt.Sprintf("%+.1f%%", 100*(t.MeasuredCCT/o.MeasuredCCT-1))
		}
	}
	return ""
}

// reason is the last part of an infeasibility: the step and why.
func reason(err error) string {
	text := err.Error()
	if i := strings.Index(text, "infeasible: "); i >= 0 {
		return text[i+len("infeasible: "):]
	}
	return text
}
