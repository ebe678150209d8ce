package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"lightpath/bench"
)

// ErrNotBroken reports that a run whose drain was skipped went through: the barrier or the switch
// does not do its work.
var ErrNotBroken = errors.New("demo: a drain was skipped and nothing failed")

// Run runs every trial, prints the table to w and writes the report.
func Run(ctx context.Context, o *Options, w io.Writer) ([]*Trial, error) {
	var trials []*Trial
	list := experiments()
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
	o.Progress("")
	writeTable(w, trials)
	if o.Report == "" {
		return trials, nil
	}
	return trials, writeReport(o.Report, trials)
}

// Break runs the first experiment's swot plan with one drain skipped: plane 0 switches with
// bytes on the wire. It returns the failure that the ranks reported, or [ErrNotBroken].
func Break(ctx context.Context, o *Options) error {
	broken := *o
	broken.BreakDrain = true
	list := experiments()
	_, err := runTrial(ctx, &broken, &list[0], "swot")
	if err == nil {
		return ErrNotBroken
	}
	if errors.Is(err, bench.ErrRankFailed) {
		return fmt.Errorf("demo --break drain: plane 0 switched with bytes on the wire, and the run failed as it must: %w", err)
	}
	return err
}

func writeTable(w io.Writer, trials []*Trial) {
	fmt.Fprintf(w, "\n%d ranks, %d planes of %g Mb/s per port; times in ms\n", ranks, planes, float64(rateGbps)*1e3)
	var last *Experiment
	for _, t := range trials {
		if t.Experiment != last {
			last = t.Experiment
			fmt.Fprintf(w, "\n(%s) %s, %d bytes, reconfiguration %v\n", last.Key, last.Title, last.Bytes, last.Reconfig)
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
	fmt.Fprintln(w, `
expected: the plan's CCT; for All-to-All, whose steps depend on nothing, what the busiest plane needs, since
          ranks follow data and not the planning model's barrier between steps
measured: median over iterations of the slowest rank's completion; every frame audited against the plan, none lost`)
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
