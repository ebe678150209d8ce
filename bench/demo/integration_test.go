package demo

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lightpath/bench"
	"lightpath/bench/benchtest"
	"lightpath/internal/require"
)

// installed returns options that use what make built, or skips.
func installed(t *testing.T) *Options {
	t.Helper()
	bin := benchtest.Bin(t)
	return &Options{
		Lightpath: filepath.Join(bin, "lightpath"), Worker: filepath.Join(bin, "lightpath-rank"), Iters: 1,
		Progress: func(string, ...any) {},
	}
}

// TestTrial runs the first experiment under swot. The audit compares the ranks' transfers with the plan. The test does
// not judge the time, except that no transfer is faster than its plane.
func TestTrial(t *testing.T) {
	o := installed(t)
	trial, err := runTrial(t.Context(), o, &experiments()[0], "swot")
	require.NoError(t, err)
	if trial.Infeasible != nil || trial.Wrong != 0 || trial.Plan == nil || trial.Plan.Planner != "swot" {
		t.Fatalf("infeasible %v, %d wrong, plan %v", trial.Infeasible, trial.Wrong, trial.Plan)
	}
	if trial.Audit.Frames == 0 || trial.Audit.Lost != 0 || trial.Audit.Switches == 0 {
		t.Errorf("the audit counted %+v", trial.Audit)
	}
	// The model may promise a few frames more than what the switch lets through at once.
	if trial.MeasuredCCT < 0.97*trial.Plan.CCTUS || math.IsNaN(trial.Error()) {
		t.Errorf("measured %v us, predicted %v us", trial.MeasuredCCT, trial.Plan.CCTUS)
	}
	if len(trial.Measured) != demoScale().Planes || len(trial.Measured[0]) < 2 {
		t.Errorf("the timeline shows %+v", trial.Measured)
	}
	report := filepath.Join(t.TempDir(), "index.html")
	require.NoError(t, writeReport(report, []*Trial{trial}))
	page, err := os.ReadFile(report)
	require.NoError(t, err)
	for _, want := range []string{"<svg", "swot", "lightpath-zoom", "<script>", trial.Experiment.Title} {
		if !strings.Contains(string(page), want) {
			t.Errorf("the report does not show %q", want)
		}
	}
}

func TestTrialWithoutPlan(t *testing.T) {
	trial, err := runTrial(t.Context(), &Options{}, &experiments()[0], "static")
	if err != nil || trial.Infeasible == nil || !strings.Contains(reason(trial.Infeasible), "step 1") {
		t.Errorf("%+v, %v; want an infeasible trial that started nothing", trial, err)
	}
}

// TestBreak makes a rank skip a drain, so it puts bytes on circuits that move. The audit or a rank must notice.
func TestBreak(t *testing.T) {
	o := installed(t)
	err := Break(t.Context(), o)
	if err == nil || errors.Is(err, ErrNotBroken) {
		t.Fatalf("%v: the run must fail", err)
	}
	if !errors.Is(err, bench.ErrRankFailed) && !errors.Is(err, ErrAudit) {
		t.Errorf("%v: want a failure that ranks or the audit report", err)
	}
}
