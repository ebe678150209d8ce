package spectra

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"lightpath/plans"
)

// TestImprove: a short search more than halves what SPECTRA leaves above the bound, on
// average over sparse, structured and dense demands.
func TestImprove(t *testing.T) {
	rng := rand.New(rand.NewPCG(21, 1))
	var before, after float64
	for name, d := range map[string]Matrix{"benchmark": benchmark(rng, 40, 8), "gpt": gpt(rng), "moe": moe(rng)} {
		for _, s := range []int{2, 8} {
			for _, delta := range []float64{0.003, 0.03} {
				bound, _ := Bound(d, s, delta)
				table := improved(context.Background(), d, s, delta, Options{Work: 5e6})
				covers(t, d, table)
				a, b := faithful(d, s, delta).Makespan(delta)/bound-1, table.Makespan(delta)/bound-1
				if b > a+1e-9 {
					t.Errorf("%s, s=%d, delta=%v: gap %.4f, of SPECTRA %.4f", name, s, delta, b, a)
				}
				before, after = before+a, after+b
			}
		}
	}
	t.Logf("mean gap %.4f, of SPECTRA %.4f: ratio %.2f", after/12, before/12, after/before)
	if after > 0.5*before {
		t.Errorf("mean gap %.4f, of SPECTRA %.4f", after/12, before/12)
	}
}

// BenchmarkAnytime searches one second for each point of the grid of families, switches and delays. It reports the mean
// gaps, in percent, above our bound and above the paper's bound, and their ratios to the gaps of a faithful SPECTRA.
// One iteration takes about a minute.
func BenchmarkAnytime(b *testing.B) {
	for _, c := range []struct {
		name string
		d    Matrix
	}{
		{"benchmark", benchmark(rand.New(rand.NewPCG(1, 1)), 100, 16)},
		{"gpt", gpt(rand.New(rand.NewPCG(1, 1)))},
		{"moe", moe(rand.New(rand.NewPCG(1, 1)))},
	} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				var ours, paper, gaps, papers float64 // gaps above our bound, above the paper's
				for _, s := range []int{2, 4, 8} {
					for _, delta := range []float64{0.001, 0.003, 0.01, 0.03, 0.1} {
						bound, _ := Bound(c.d, s, delta)
						first := max(Bound1(c.d, s, delta), Bound2(c.d, s, delta))
						reference := faithful(c.d, s, delta).Makespan(delta)
						found := improved(context.Background(), c.d, s, delta, Options{TimeLimit: time.Second}).Makespan(delta)
						gaps, papers = gaps+found/bound-1, papers+found/first-1
						ours, paper = ours+reference/bound-1, paper+reference/first-1
					}
				}
				b.ReportMetric(100*gaps/15, "%gap")
				b.ReportMetric(100*papers/15, "%gap-LB12")
				b.ReportMetric(gaps/ours, "ratio")
				b.ReportMetric(papers/paper, "ratio-LB12")
			}
		})
	}
}

// TestOrient: on interleaved planes every rank sends in about half of its entries.
func TestOrient(t *testing.T) {
	rng := rand.New(rand.NewPCG(21, 2))
	for range 50 {
		n := 2 + rng.IntN(20)
		d := benchmark(rng, n, 8)
		w := newNetwork(d, "interleaved")
		sent := make([]int, n)
		for e := range w.to {
			if w.from[e] != w.to[e] {
				sent[w.from[e]]++
				sent[w.to[e]]--
			}
			if pair := w.row[w.entry[e]]; pair != [2]int32{w.from[e], w.to[e]} && pair != [2]int32{w.to[e], w.from[e]} {
				t.Fatalf("edge %d -> %d covers %v", w.from[e], w.to[e], pair)
			}
		}
		for r, more := range sent {
			if more < -1 || more > 1 {
				t.Fatalf("rank %d sends in %d entries more than it receives in", r, more)
			}
		}
	}
}

// faithful is the paper's algorithm as a whole: DECOMPOSE with greedy REFINE, SCHEDULE and
// EQUALIZE on s switches.
func faithful(d Matrix, s int, delta float64) Timetable {
	return Equalize(Schedule(Decompose(d), s, delta), delta)
}

// improved schedules d on s switches, at least one, as [Solve] does with the same options, for comparisons
// with the algorithms of the paper. The permutations are Dark where they serve no demand.
func improved(ctx context.Context, d Matrix, s int, delta float64, o Options) Timetable {
	lim, cancel := o.begin(ctx)
	defer cancel()
	w := newNetwork(d, plans.Simplex)
	t := make(Timetable, s)
	if len(w.demand) == 0 {
		return t
	}
	search := newSearcher(w, s, delta, 0, o.Seed)
	lim.floor, _ = w.bound(s, delta, 0, o.rows())
	l := search.layout(o.Mode, lim)
	for i, h := range l.holds {
		u := &t[l.unit[i]]
		u.Perms, u.Weights = append(u.Perms, w.permutation(h.edges)), append(u.Weights, h.weight)
	}
	return t
}
