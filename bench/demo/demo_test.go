package demo

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"lightpath/collectives/schedule"
	"lightpath/internal/require"
	"lightpath/plans"
	"lightpath/plans/circuit"
	"lightpath/plans/fabric"
	"lightpath/plans/planner"
)

func TestMeasured(t *testing.T) {
	a := testAuditor()
	log, iters := testLog(a, 2)
	got := measured(log, iters[1], a.steps)
	for plane, entries := range a.plan.Planes {
		if len(got[plane]) != len(entries) {
			t.Fatalf("plane %d: %+v, want %d intervals", plane, got[plane], len(entries))
		}
		for i, e := range entries {
			in, step := got[plane][i], e.Step
			if e.Kind == plans.Reconfigure {
				step = -1
			}
			if in.Step != step || in.StartUS != e.StartUS || in.EndUS != e.EndUS || !slices.Equal(in.To, e.To) {
				t.Errorf("plane %d interval %d: %+v, want %+v", plane, i, in, e)
			}
		}
	}
}

// TestExperiments checks that every experiment states a valid problem. In the model static has no plan without
// forwarding, and swot or harvest beats perstep.
func TestExperiments(t *testing.T) {
	seen := map[string]bool{}
	for _, e := range experiments() {
		if seen[e.Key] {
			t.Errorf("two experiments (%s)", e.Key)
		}
		seen[e.Key] = true
		trial := Trial{Experiment: &e}
		if _, err := trial.stateProblem(); err != nil {
			t.Fatal(err)
		}
		require.NoError(t, trial.Problem.Validate())
		cct := map[string]float64{}
		for _, name := range planners {
			plan, err := planner.Solve(t.Context(), name, trial.Problem,
				planner.Options{TimeLimit: time.Minute, Effort: 100 * time.Millisecond, SinglePlane: true})
			if errors.Is(err, planner.ErrInfeasible) {
				if name != "static" || e.Forwarding {
					t.Errorf("(%s) %s: %v", e.Key, name, err)
				}
				continue
			}
			require.NoError(t, err)
			cct[name] = plan.CCTUS
		}
		if best := min(cct["swot"], cct["harvest"]); !(best < cct["perstep"]) {
			t.Errorf("(%s) nothing beats perstep: %v", e.Key, cct)
		}
		if best := min(cct["swot"], cct["harvest"], cct["perstep"]); !plans.AtLeastUS(best, cct["weave"]) {
			t.Errorf("(%s) weave is above another planner: %v", e.Key, cct)
		}
	}
	for _, key := range []string{"a", "b", "c"} {
		if !seen[key] {
			t.Errorf("experiment (%s) is missing", key)
		}
	}
}

// TestWriteFabric checks that the files for the switch and the ranks read back and agree with the problem.
func TestWriteFabric(t *testing.T) {
	for _, e := range experiments() {
		trial := Trial{Experiment: &e}
		if _, err := trial.stateProblem(); err != nil {
			t.Fatal(err)
		}
		config, socket, err := trial.writeFabric(&memoryBackend{}, t.TempDir())
		require.NoError(t, err)
		o, f, err := fabric.LoadOCSD(config)
		require.NoError(t, err)
		p := f.Problem()
		q := trial.Problem
		if p.Ranks != q.Ranks || p.Planes != q.Planes || !plans.SameUS(p.BandwidthGbps, q.BandwidthGbps) ||
			!plans.SameUS(p.ReconfigUS, q.ReconfigUS) ||
			!plans.SameUS(p.HopUS, q.HopUS) || p.AlphaUS != q.AlphaUS || p.Forwarding != q.Forwarding ||
			p.Circuits != q.Circuits {
			t.Errorf("(%s) the fabric file states %+v, the problem %+v", e.Key, p, q)
		}
		if o.Socket != socket || filepath.Base(o.FrameLog) != "frames.log" || len(o.Initial) != len(q.Initial) {
			t.Errorf("(%s) %+v", e.Key, o)
		}
	}
}

func TestTable(t *testing.T) {
	e := &Experiment{Key: "a", Title: "a title", Bytes: 1000, Reconfig: 50 * time.Millisecond, Scale: demoScale()}
	plan := func(cct float64) *plans.Plan { return &plans.Plan{CCTUS: cct} }
	trials := []*Trial{
		{Experiment: e, Planner: "static", Infeasible: fmt.Errorf("planner: static: %w: step 1: no circuit",
			planner.ErrInfeasible)},
		{Experiment: e, Planner: "perstep", Plan: plan(1500e3), MeasuredCCT: 1515e3, Times: make([]float64, 2),
			Audit: counts{Frames: 70, Switches: 16}},
		{Experiment: e, Planner: "swot", Plan: plan(1200e3), MeasuredCCT: 1212e3, Times: make([]float64, 2),
			Audit: counts{Frames: 80, Switches: 8}, Wrong: 3},
	}
	var b bytes.Buffer
	writeTable(&b, trials)
	text := b.String()
	for _, want := range []string{"(a) a title, 2 planes of 50 Mb/s per port, 1000 bytes, reconfiguration 50ms",
		"static     infeasible: step 1: no circuit\n",
		"2 of 2 trials within 5 % of expected, the furthest 1.0 % away; 1 of 1 pairs", "0 frames lost, 3 elements wrong"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	for planner, want := range map[string][]string{
		"perstep": {"1500.00", "1500.00", "1515.00", "1.00%", "8.0", "70", "0"},
		"swot":    {"1200.00", "1200.00", "1212.00", "1.00%", "-20.0%", "4.0", "80", "3"},
	} {
		i := strings.Index(text, "  "+planner)
		if i < 0 {
			t.Fatalf("no row of %s in\n%s", planner, text)
		}
		row, _, _ := strings.Cut(text[i:], "\n")
		if got := strings.Fields(row)[1:]; !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", planner, got, want)
		}
	}
}

// If steps are independent, the busiest plane decides. Idle time and trailing resets do not count.
func TestExpected(t *testing.T) {
	transmit := func(start, end float64) plans.Entry {
		return plans.Entry{Kind: plans.Transmit, StartUS: start, EndUS: end}
	}
	reset := plans.Entry{Kind: plans.Reconfigure, StartUS: 100, EndUS: 150}
	p := &plans.Plan{CCTUS: 100, Planes: [][]plans.Entry{{transmit(0, 10), transmit(60, 100), reset},
		{transmit(0, 60), reset}}}
	if got := (&Trial{Plan: p}).expected(); got != 100 {
		t.Errorf("dependent steps: %v, want the CCT", got)
	}
	if got := (&Trial{Plan: p, Independent: true}).expected(); got != 60 {
		t.Errorf("independent steps: %v, want plane 1's 60", got)
	}
	for algorithm, want := range map[string]bool{"pairwise": true, "bruck": false} {
		s, err := schedule.Build(schedule.AllToAll, algorithm, 8, 0)
		require.NoError(t, err)
		if independent(s) != want {
			t.Errorf("%s: independent %v", algorithm, !want)
		}
	}
}

func TestInitialMaps(t *testing.T) {
	if got := (&Trial{Experiment: &Experiment{}}).initial(); got != nil {
		t.Errorf("%v where the planner chooses", got)
	}
	got := (&Trial{Experiment: &Experiment{Start: circuit.Xor(ranks, 1), Scale: demoScale()}}).initial()
	if len(got) != demoScale().Planes || !got[0].Equal(circuit.Xor(ranks, 1)) || !got[1].Equal(got[0]) {
		t.Errorf("%v, want xor 1 on every plane", got)
	}
}
