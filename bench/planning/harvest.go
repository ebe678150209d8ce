package planning

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/bits"
	"strings"
	"time"

	"lightpath/bench/figure"
	"lightpath/collectives/schedule"
	"lightpath/plans"
	"lightpath/plans/circuit"
	"lightpath/plans/planner"
	"lightpath/plans/planner/doubling"
)

// fabricOf returns HARVEST's fabric with other latencies of a transmission and of a switch.
func fabricOf(n, k int, alpha, reconfig float64) plans.Problem {
	p := figure.HarvestFabric(n, k)
	p.AlphaUS, p.ReconfigUS = alpha, reconfig
	return p
}

// doublingSteps returns the steps of the ReduceScatter of cyclic recursive doubling.
func doublingSteps(n int, bytes float64) []doubling.Step {
	steps := make([]doubling.Step, bits.Len(uint(n))-1)
	for i := range steps {
		steps[i] = doubling.Step{Log2: i, Bytes: bytes / math.Pow(2, float64(i+1))}
	}
	return steps
}

// harvest measures the synthesis for recursive doubling and for the general form.
func harvest(ctx context.Context, o figure.Options) (*figure.Figure, error) {
	batch := 50 * time.Millisecond
	if o.Quick {
		batch = time.Millisecond
	}
	f := &figure.Figure{Title: "harvest: synthesis time"}
	f.Table.Columns = []string{"what", "ranks", "us", "allocations", "bytes", "printed_us"}
	printed := map[int]float64{64: 20, 1024: 35}
	var xs, ys []float64
	var marks []figure.Printed
	for n := 8; n <= 1024; n *= 2 {
		p := fabricOf(n, 1, figure.HarvestUS, 5)
		steps := doublingSteps(n, 1e6)
		t := measure(batch, func() { doubling.Synthesize(&p, steps) })
		paper, ok := printed[n]
		if !ok {
			paper = math.NaN()
		} else {
			marks = append(marks, figure.Printed{X: float64(n), Y: paper, Label: fmt.Sprintf("%g us", paper)})
			f.Claims = append(f.Claims, figure.Claim{ID: "H10", What: fmt.Sprintf("recursive doubling, %d ranks, at most", n),
				Printed: paper, Ours: micros(t.ns), Unit: " us"})
		}
		f.Table.Add("recursive doubling, schedule", n, micros(t.ns), t.allocs, t.bytes, paper)
		xs, ys = append(xs, float64(n)), append(ys, micros(t.ns))
	}
	f.Panels = append(f.Panels, &figure.Chart{
		Title: "recursive doubling (HARVEST Fig. 11)", X: figure.Axis{Label: "ranks", Log: true, At: xs},
		Y:     figure.Axis{Label: "synthesis time [us]", Log: true},
		Lines: []figure.Line{{Name: "Lightpath", X: xs, Y: ys}}, Printed: marks,
	})
	if err := addGeneral(ctx, f, o); err != nil {
		return nil, err
	}
	if err := addTable1(f); err != nil {
		return nil, err
	}
	if err := addGains(ctx, f, o); err != nil {
		return nil, err
	}
	if o.Quick { // a quick figure has fewer ranks than the printed numbers
		return f, nil
	}
	speedups, err := figure.Papers.Make(ctx, "harvest", "5", figure.Options{Seed: o.Seed, Progress: o.Progress})
	if err != nil {
		return nil, err
	}
	f.Claims = append(f.Claims, speedups.Claims...)
	return f, nil
}

// addGeneral times the general form: whole plans, also on several ports as one graph.
func addGeneral(ctx context.Context, f *figure.Figure, o figure.Options) error {
	cases := []struct {
		c     schedule.Collective
		name  string
		n, k  int
		bytes float64
	}{
		{schedule.ReduceScatter, "recursive-doubling", 64, 1, 1e6},
		{schedule.ReduceScatter, "recursive-doubling", 1024, 1, 1e6},
		{schedule.AllToAll, "pairwise", 64, 1, 1e6},
		{schedule.ReduceScatter, "swing", 64, 2, 1e6},
		{schedule.AllToAll, "bruck", 64, 4, 1e6},
		{schedule.AllToAll, "direct", 64, 4, 1e6},
	}
	if o.Quick {
		cases = cases[:2]
	}
	for _, c := range cases {
		p, err := figure.Collective(c.c, c.name, c.bytes, fabricOf(c.n, c.k, figure.HarvestUS, 5))
		if err != nil {
			return err
		}
		best := math.Inf(1)
		for range 3 {
			s, err := solve(ctx, "harvest", p, planner.Options{TimeLimit: 10 * time.Second, Seed: o.Seed})
			if err != nil {
				return err
			}
			best = math.Min(best, s.seconds)
		}
		f.Table.Add(fmt.Sprintf("%v %s, %d ports, whole plan", c.c, c.name, c.k), c.n, micros(best*1e9), math.NaN(),
			math.NaN(), math.NaN())
	}
	return nil
}

// addTable1 checks Table 1: the congestion of the third step of recursive doubling on 8 ranks, on the rings of the
// first, the second and the third step.
func addTable1(f *figure.Figure) error {
	const n = 8
	last := plans.Step{To: circuit.Shift(n, 4)}
	for i, shift := range []int{1, 2, 4} {
		hops, load, err := plans.Load(circuit.Shift(n, shift), last.FlowList())
		if err != nil {
			return err
		}
		f.Claims = append(f.Claims, figure.Claim{ID: "H1", What: fmt.Sprintf("congestion of step 3 on G%d (path length %d)",
			i+1, hops),
			Printed: []float64{4, 2, 1}[i], Ours: float64(load), Unit: "x"})
	}
	return nil
}

// addGains states the largest gain over the better of a static ring and BvN, by ranks. The
// paper's ranks are not stated; only 64 gives its 2x.
func addGains(ctx context.Context, f *figure.Figure, o figure.Options) error {
	var gains []string
	for _, n := range []int{8, 16, 32, 64} {
		most := 0.0
		for _, delay := range []float64{1, 2, 5, 10, 20, 50} {
			for _, bytes := range []float64{1e3, 64e3, 1e6, 16e6} {
				fabric := fabricOf(n, 1, figure.HarvestUS, delay)
				p, err := figure.Collective(schedule.ReduceScatter, "recursive-doubling", bytes, fabric)
				if err != nil {
					return err
				}
				ring := *p
				ring.Initial = []circuit.Permutation{circuit.Shift(n, 1)}
				ours, err1 := solve(ctx, "harvest", p, planner.Options{Seed: o.Seed})
				static, err2 := solve(ctx, "static", &ring, planner.Options{})
				bvn, err3 := solve(ctx, "perstep", p, planner.Options{})
				if err := cmp.Or(err1, err2, err3); err != nil {
					return err
				}
				most = math.Max(most, math.Min(static.cct, bvn.cct)/ours.cct)
			}
		}
		gains = append(gains, fmt.Sprintf("%.2f at %d", most, n))
	}
	f.Notes = append(f.Notes, fmt.Sprintf("Recursive doubling over the better of a static ring and BvN, largest on "+
		"a coarse grid: %s ranks (the abstract's 2x needs 64).", strings.Join(gains, ", ")))
	return nil
}

// micros returns ns in us, with four significant digits: more would be noise.
func micros(ns float64) float64 {
	if ns <= 0 {
		return 0
	}
	unit := math.Pow(10, math.Floor(math.Log10(ns/1e3))-3)
	return math.Round(ns/1e3/unit) * unit
}
