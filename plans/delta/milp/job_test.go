package milp_test

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"lightpath/internal/require"
	"lightpath/plans/delta"
	"lightpath/plans/delta/check"
	"lightpath/plans/delta/dag"
	"lightpath/plans/delta/milp"
	"lightpath/plans/delta/train"
	"lightpath/plans/mip/solver"
)

// searched is a generated job with the search's plan and schedule for a rule of sharing.
func searched(t *testing.T, batches int, sharing delta.Sharing) (*delta.Planner, *delta.Found, *dag.Schedule) {
	t.Helper()
	c, err := train.Preset("gpt-7b")
	require.NoError(t, err)
	c.MicroBatches = batches
	g, err := train.Generate(c)
	require.NoError(t, err)
	p, err := delta.NewPlanner(g)
	require.NoError(t, err)
	found, err := p.Fast(t.Context(), delta.Options{Sharing: sharing, Seed: 1})
	require.NoError(t, err)
	s, err := p.Schedule(found.Plan)
	require.NoError(t, err)
	return p, found, s
}

// TestStartIsSolution checks that the simulator's schedule satisfies every row of the model, with the anchors
// and without them. A schedule that violates the model is refused, and the error names the place.
func TestStartIsSolution(t *testing.T) {
	for kind, sharing := range map[milp.Kind]delta.Sharing{milp.Topo: delta.Fair, milp.Joint: delta.Critical} {
		p, _, start := searched(t, 3, sharing)
		for _, margin := range []int{milp.Exact, 0, 2} {
			job, err := milp.NewJob(p.Graph(), milp.Options{Kind: kind, Start: start, Margin: margin, Extra: 1})
			require.NoError(t, err)
			x, err := job.StartValues()
			if err != nil {
				t.Errorf("%v, margin %d: %v", kind, margin, err)
				continue
			}
			if s, err := job.Schedule(x); err != nil || math.Abs(s.Makespan-start.Makespan) > 1e-6*start.Makespan {
				t.Errorf("%v: read back: %v, %v", kind, s, err)
			}
		}
		broken := *start
		broken.Spans = slices.Clone(start.Spans)
		for i := range broken.Spans {
			if p.Graph().Tasks[i].Transfer() { // one that ends before it can
				broken.Spans[i].End = (broken.Spans[i].Start + broken.Spans[i].End) / 2
				break
			}
		}
		job, err := milp.NewJob(p.Graph(), milp.Options{Kind: kind, Start: &broken, Margin: milp.Exact})
		if err == nil {
			_, err = job.StartValues()
		}
		if !errors.Is(err, milp.ErrModel) {
			t.Errorf("%v: a broken start: %v", kind, err)
		}
	}
}

// TestPruningShrinks: anchors and dependencies leave fewer integers than dependencies alone.
func TestPruningShrinks(t *testing.T) {
	p, _, start := searched(t, 6, delta.Critical)
	size := func(margin int) int {
		job, err := milp.NewJob(p.Graph(), milp.Options{Kind: milp.Joint, Start: start, Margin: margin, Extra: 2})
		require.NoError(t, err)
		return job.Size().Integers
	}
	if a, b := size(1), size(milp.Exact); 4*a > 3*b {
		t.Errorf("%d integers with anchors, %d without", a, b)
	}
}

// solved is what the solver has proved, with more time where a slow machine needs more.
func solved(t *testing.T, job *milp.Job, o milp.SolveOptions) *milp.Result {
	t.Helper()
	for limit := 5 * time.Second; ; limit *= 4 {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		r, err := job.Solve(ctx, o)
		cancel()
		require.NoError(t, err)
		if r.Status == solver.Optimal || limit > time.Minute {
			return r
		}
	}
}

// TestJob solves both models of a generated job, starting from the search's result. The solution is
// never worse than the search, its schedule passes the validator, and Joint is no longer than Topo. The
// second pass never reports fewer ports than its bound.
func TestJob(t *testing.T) {
	s, err := solver.Find("auto")
	if errors.Is(err, solver.ErrNone) {
		t.Skip(err)
	}
	require.NoError(t, err)
	extra := 0
	if os.Getenv("LIGHTPATH_TEST_LONG") != "" {
		extra = 1 // CBC takes ten times as long
	}
	var makespan [2]float64
	for kind, sharing := range map[milp.Kind]delta.Sharing{milp.Topo: delta.Fair, milp.Joint: delta.Critical} {
		p, found, start := searched(t, 2, sharing)
		job, err := milp.NewJob(p.Graph(), milp.Options{Kind: kind, Start: start, Upper: dag.Circuits(found.Bounds),
			Margin: 1, Extra: extra})
		require.NoError(t, err)
		r := solved(t, job, milp.SolveOptions{Solver: s, Ports: kind == milp.Topo})
		if r.Schedule == nil || !r.Hot {
			t.Fatalf("%v: %+v", kind, r)
		}
		if err := check.Check(p.Graph(), r.Schedule); err != nil {
			t.Errorf("%v: %v", kind, err)
		}
		makespan[kind] = r.Schedule.Makespan
		if r.Schedule.Makespan > found.Makespan*(1+1e-4) || r.Schedule.Makespan < p.LowerBound()*(1-1e-9) {
			t.Errorf("%v: %v, search %v, bound %v", kind, r.Schedule.Makespan, found.Makespan, p.LowerBound())
		}
		if used, _ := p.Graph().TotalPorts(r.Schedule.Circuits); kind == milp.Topo && float64(used) < r.PortsBound {
			t.Errorf("%d ports below the bound %v", used, r.PortsBound)
		}
	}
	if makespan[milp.Joint] > makespan[milp.Topo]*(1+2e-4) {
		t.Errorf("joint %v, topo %v", makespan[milp.Joint], makespan[milp.Topo])
	}
}

// TestStartRemains: if the solver finds nothing, or only nothing better than the start, the result is the start.
func TestStartRemains(t *testing.T) {
	p, _, start := searched(t, 2, delta.Critical)
	job, err := milp.NewJob(p.Graph(), milp.Options{Kind: milp.Joint, Start: start, Margin: 1})
	require.NoError(t, err)
	for name, script := range map[string]string{
		"late":       "exec sleep 600",
		"infeasible": `while [ "$1" ]; do [ "$1" = -solution ] && echo "Infeasible - objective value 1" > "$2"; shift; done`,
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(dir, "cbc"), []byte("#!/bin/sh\n"+script), 0o700))
			t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
			s, err := solver.Find("cbc")
			require.NoError(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			r, err := job.Solve(ctx, milp.SolveOptions{Solver: s})
			require.NoError(t, err)
			if r.Status != solver.Feasible || r.Schedule == nil || math.Abs(r.Schedule.Makespan-start.Makespan) > 1e-3 {
				t.Fatalf("%+v, start %v", r, start.Makespan)
			}
			require.NoError(t, check.Check(p.Graph(), r.Schedule))
			if r, err = job.Solve(ctx, milp.SolveOptions{Solver: s, Cold: true}); err != nil || r.Schedule != nil {
				t.Errorf("without a start: %+v, %v", r, err)
			}
		})
	}
}

func TestRefused(t *testing.T) {
	p, _, start := searched(t, 2, delta.Fair)
	for want, o := range map[string]milp.Options{
		"no span":      {Start: &dag.Schedule{Makespan: 1}},
		"2 bounds for": {Start: start, Upper: dag.Circuits{1, 1}},
		"bad topology": {Start: &dag.Schedule{Spans: start.Spans, Makespan: 1, Circuits: dag.Circuits{1, 1}}},
		"takes 0 us":   {Start: &dag.Schedule{Spans: start.Spans[:0]}},
	} {
		if want == "takes 0 us" || want == "no span" {
			if _, err := milp.New(p.Graph(), o); !errors.Is(err, milp.ErrModel) {
				t.Errorf("%s: %v", want, err)
			}
			continue
		}
		if _, err := milp.NewJob(p.Graph(), o); !errors.Is(err, milp.ErrModel) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
