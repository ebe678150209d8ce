package milp_test

import (
	"bytes"
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"lightpath/bench/planning/milp"
	"lightpath/internal/require"
	"lightpath/plans"
	"lightpath/plans/circuit"
	"lightpath/plans/mip/solver"
	"lightpath/plans/planner"
)

// problem is a sequence of xor patterns on 8 ranks: bytes at 8 Gb/s are 1 us each thousand.
func problem(planes int, alpha, reconfig float64, initial []circuit.Permutation, steps ...[2]float64) *plans.Problem {
	p := &plans.Problem{
		Version: plans.Version, Ranks: 8, Planes: planes, BandwidthGbps: 8, Circuits: plans.Simplex,
		AlphaUS: alpha, ReconfigUS: reconfig, Initial: initial,
	}
	for _, s := range steps {
		p.Steps = append(p.Steps, plans.Step{To: circuit.Xor(8, int(s[0])), Bytes: 1000 * s[1]})
	}
	return p
}

// fig5 is the example of SWOT, Fig. 5: work of 400, 200, 100, 100, 200, 400 us.
func fig5() *plans.Problem {
	return problem(2, 0, 200, []circuit.Permutation{circuit.Xor(8, 1), circuit.Xor(8, 1)},
		[2]float64{1, 400}, [2]float64{2, 200}, [2]float64{4, 100}, [2]float64{4, 100}, [2]float64{2, 200},
		[2]float64{1, 400})
}

// TestCBCEqualsPlanner checks that the optimum of the paper's program equals the planner's proven optimum.
func TestCBCEqualsPlanner(t *testing.T) {
	if _, err := solver.Find("cbc"); err != nil {
		t.Skip(err)
	}
	one, two, dark := circuit.Xor(8, 1), circuit.Xor(8, 2), circuit.AllDark(8)
	for name, tc := range map[string]struct {
		p    *plans.Problem
		want float64 // 0: only the planner's optimum
	}{
		"Fig. 5": {fig5(), 1200},
		"free":   {problem(2, 0, 50, nil, [2]float64{1, 100}, [2]float64{2, 100}, [2]float64{1, 100}), 0},
		"dark": {problem(2, 3, 40, []circuit.Permutation{dark, dark}, [2]float64{1, 100}, [2]float64{3, 30},
			[2]float64{1, 100}), 0},
		"mixed": {problem(2, 5, 90, []circuit.Permutation{two, dark}, [2]float64{1, 60}, [2]float64{2, 60},
			[2]float64{1, 10}, [2]float64{2, 90}), 0},
		"three planes": {problem(3, 10, 100, []circuit.Permutation{one, one, two}, [2]float64{1, 80}, [2]float64{2, 80},
			[2]float64{4, 80}), 0},
		"empty step": {problem(2, 1, 10, nil, [2]float64{1, 20}, [2]float64{2, 0}, [2]float64{3, 20}), 0},
		"one step":   {problem(2, 1, 10, nil, [2]float64{1, 20}), 11},
		"nothing":    {problem(1, 1, 10, nil, [2]float64{1, 0}), 0},
	} {
		got, err := milp.SolveCBC(context.Background(), tc.p, time.Minute)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		plan, err := planner.Solve(context.Background(), "swot", tc.p, planner.Options{TimeLimit: 10 * time.Second})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		t.Logf("%s: cbc %+v, swot %v >= %v", name, got, plan.CCTUS, plan.LowerBoundUS)
		if !got.Optimal || math.Abs(got.CCTUS-plan.CCTUS) > 1e-3 {
			t.Errorf("%s: cbc %+v, swot %v", name, got, plan.CCTUS)
		}
		if tc.want > 0 && math.Abs(got.CCTUS-tc.want) > 1e-3 {
			t.Errorf("%s: cbc %+v, want %v", name, got, tc.want)
		}
		if plan.LowerBoundUS > got.CCTUS+1e-3 {
			t.Errorf("%s: stated bound %v above the optimum %v", name, plan.LowerBoundUS, got.CCTUS)
		}
	}
}

// TestCBCRandom checks random problems against the optimum of the paper's program. No planner's bound is above it. No
// plan that transmits on direct circuits is below it. A plan that swot calls optimal reaches it.
func TestCBCRandom(t *testing.T) {
	if _, err := solver.Find("cbc"); err != nil {
		t.Skip(err)
	}
	rng := rand.New(rand.NewPCG(5, 1))
	proven := 0
	for i := range 6 {
		p := &plans.Problem{
			Version: plans.Version, Ranks: 6, Planes: 1 + rng.IntN(2), BandwidthGbps: 8, Circuits: plans.Simplex,
			AlphaUS: []float64{0, 8}[rng.IntN(2)], ReconfigUS: []float64{5, 40, 150}[rng.IntN(3)],
		}
		for range 2 + rng.IntN(3) {
			p.Steps = append(p.Steps, plans.Step{To: circuit.Shift(6, 1+rng.IntN(3)), Bytes: 1000 * float64(10+rng.IntN(100))})
		}
		if rng.IntN(2) == 0 {
			for range p.Planes {
				p.Initial = append(p.Initial, circuit.Shift(6, 1+rng.IntN(4)))
			}
		}
		exact, err := milp.SolveCBC(context.Background(), p, 20*time.Second)
		require.NoError(t, err)
		if !exact.Optimal {
			continue
		}
		for _, name := range []string{"perstep", "harvest", "swot", "weave"} {
			plan, err := planner.Solve(context.Background(), name, p,
				planner.Options{TimeLimit: time.Minute, Effort: 200 * time.Millisecond})
			if err != nil {
				t.Fatalf("problem %d: %s: %v", i, name, err)
			}
			if plan.LowerBoundUS > exact.CCTUS+1e-3 || plan.CCTUS < exact.CCTUS-1e-3 {
				t.Errorf("problem %d: %s: %v >= %v (%s), the optimum is %v", i, name, plan.CCTUS, plan.LowerBoundUS,
					plan.BoundProof, exact.CCTUS)
			}
			if name == "swot" && plans.SameUS(plan.CCTUS, plan.LowerBoundUS) {
				proven++
			}
			if name == "swot" && plan.CCTUS > exact.CCTUS+1e-3 {
				t.Errorf("problem %d: swot takes %v, the optimum is %v", i, plan.CCTUS, exact.CCTUS)
			}
		}
	}
	t.Logf("swot proved %d of 6", proven)
	if proven < 3 {
		t.Errorf("swot proved %d of 6", proven)
	}
}

// TestProgram checks that each equation occurs once per step and plane, in lines that every LP reader accepts.
func TestProgram(t *testing.T) {
	p := fig5()
	p.Planes, p.Initial = 64, nil
	var text bytes.Buffer
	program, err := milp.SWOT(p)
	require.NoError(t, err)
	require.NoError(t, program.WriteLP(&text, ""))
	for _, name := range []string{"c1u_", "c2_", "c3_", "c4_", "c5a_", "c5b_", "c8_", "c9_", "c10_"} {
		if n := strings.Count(text.String(), " "+name); n != 6*64 {
			t.Errorf("%s: %d constraints, want %d", name, n, 6*64)
		}
	}
	for line := range strings.Lines(text.String()) {
		if len(line) > 250 {
			t.Fatalf("line of %d characters: %s", len(line), line)
		}
	}
}

// TestTimeLimit checks that a stopped solver returns its best solution and a bound below it.
func TestTimeLimit(t *testing.T) {
	if _, err := solver.Find("cbc"); err != nil {
		t.Skip(err)
	}
	p := &plans.Problem{Version: plans.Version, Ranks: 10, Planes: 4, BandwidthGbps: 200, AlphaUS: 20, ReconfigUS: 200,
		Circuits: plans.Simplex}
	for d := 1; d < 10; d++ {
		p.Steps = append(p.Steps, plans.Step{Bytes: 3.2e6, To: circuit.Shift(10, d)})
	}
	for limit := 250 * time.Millisecond; ; limit *= 2 {
		r, err := milp.SolveCBC(context.Background(), p, limit)
		require.NoError(t, err)
		t.Logf("%v: %+v", limit, r)
		if r.Optimal || r.BoundUS < 0 || r.BoundUS > 1085.4 || r.CCTUS < r.BoundUS {
			t.Fatalf("%+v", r)
		}
		if r.BoundUS > 0 {
			return
		}
		if limit > time.Minute { // a slow host's solver has no bound in a few seconds
			t.Fatalf("no bound after %v", limit)
		}
	}
}

func TestUnsupported(t *testing.T) {
	for name, change := range map[string]func(p *plans.Problem){
		"demand":      func(p *plans.Problem) { p.Steps, p.Demand = nil, [][]float64{} },
		"interleaved": func(p *plans.Problem) { p.Circuits = plans.Interleaved },
		"per port":    func(p *plans.Problem) { p.ReconfigPerPort = 1 },
		"one to many": func(p *plans.Problem) { p.Steps[1] = plans.Step{Bytes: 1, Flows: [][2]int{{0, 1}, {0, 2}}} },
	} {
		p := fig5()
		change(p)
		if _, err := milp.SWOT(p); !errors.Is(err, milp.ErrUnsupported) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
