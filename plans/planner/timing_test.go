package planner

import (
	"math"
	"math/rand/v2"
	"testing"

	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/optimize/convex/lp"
)

// perturb is the price of an idle microsecond in the reference; slackUS is what it can
// add to the optimum.
const (
	perturb = 1e-6
	slackUS = 0.3
)

// reference solves the timing program as written, with a general solver.
func reference(t *testing.T, x *timing, steps int) float64 {
	t.Helper()
	type row struct {
		coef map[int]float64
		rhs  float64
	}
	var rows []row
	se := func(r int) int { return steps + 2*r }
	ss := func(r int) int { return steps + 2*r + 1 }
	for i := range steps {
		for _, h := range divided {
			r := row{map[int]float64{}, x.work[i]}
			for _, k := range x.uses {
				if k.step != i || !k.half.carries(h) {
					continue
				}
				r.coef[i] += k.rate
				r.rhs += k.rate * k.o
				if k.after >= 0 {
					r.coef[se(k.after)] -= k.rate
				}
				if k.before >= 0 {
					r.coef[ss(k.before)] -= k.rate
				}
			}
			rows = append(rows, r)
		}
	}
	for _, k := range x.uses {
		share := row{map[int]float64{k.step: 1}, k.o}
		if k.after >= 0 {
			share.coef[se(k.after)]--
		}
		if k.before >= 0 {
			share.coef[ss(k.before)]--
		}
		rows = append(rows, share)
	}
	for k, s := range x.switches {
		r := row{map[int]float64{ss(k): 1}, s.us}
		if s.a >= 0 {
			r.coef[se(k)] = 1
		}
		for i := s.a + 1; i < s.b; i++ {
			r.coef[i]++
		}
		rows = append(rows, r)
	}
	// The dual, which has a feasible basis to begin with.
	n := steps + 2*len(x.switches)
	a := mat.NewDense(n, len(rows)+n, nil)
	b, basis := make([]float64, n), make([]int, n)
	c := make([]float64, len(rows)+n)
	for i, r := range rows {
		for v, coef := range r.coef {
			a.Set(v, i, coef)
		}
		c[i] = -r.rhs
	}
	for v := range n {
		a.Set(v, len(rows)+v, 1)
		basis[v] = len(rows) + v
		b[v] = perturb * (1 + math.Sqrt(float64(v+1))) // or the general solver cycles
		if v < steps {
			b[v]++
		}
	}
	v, _, err := lp.Simplex(c, a, b, 1e-10, basis)
	if err != nil {
		return math.NaN() // the reference is not robust; the test counts how often
	}
	return -v
}

// play runs the shares of the last solution as early as possible.
func play(x *timing, steps int) float64 {
	idle := make([]float64, x.units)
	barrier := 0.0
	for i := range steps {
		end, carried := barrier, 0.0
		for k, u := range x.uses {
			if u.step != i {
				continue
			}
			if u.before >= 0 {
				idle[u.unit] += x.switches[u.before].us
			}
			idle[u.unit] = math.Max(idle[u.unit], barrier) + math.Max(x.length(&x.uses[k])*x.scale, u.o)
			carried += x.data(k)
			end = math.Max(end, idle[u.unit])
		}
		if carried < x.work[i]-1e-5 {
			return math.NaN()
		}
		barrier = end
	}
	return barrier
}

// randomSwot is a pattern over a few pages with the numbers of a real fabric.
func randomSwot(rng *rand.Rand) (*swot, pattern) {
	steps, units, pages := 1+rng.IntN(7), 1+rng.IntN(4), 1+rng.IntN(4)
	w := &swot{m: &model{units: units}, costs: map[int]float64{}}
	w.t.units, w.m.directUS = units, []float64{0, 20}[rng.IntN(2)]
	w.joins = make([][]bool, pages)
	for p := range w.joins {
		w.joins[p] = make([]bool, pages)
		w.joins[p][p] = true
		w.m.pages = append(w.m.pages, page{})
	}
	if rng.IntN(2) == 0 {
		for range units {
			holds := make([]bool, pages)
			holds[rng.IntN(pages)] = rng.IntN(2) == 0
			w.holds = append(w.holds, holds)
		}
	}
	w.m.p = testFabric([]float64{10, 100, 200, 1000}[rng.IntN(4)])
	u := make(pattern, steps)
	for i := range u {
		w.page = append(w.page, rng.IntN(pages))
		w.planes = append(w.planes, 1)
		w.t.work = append(w.t.work, float64(1+rng.IntN(400)))
		u[i] = 1 + rng.Uint64N(1<<units-1)
	}
	w.t.useAt = make([]int32, steps*units)
	return w, u
}

func TestTimingEqualsLinearProgram(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 1))
	failed := 0
	for i := range 1000 {
		w, u := randomSwot(rng)
		got, ok := w.evaluate(u, len(u), math.Inf(1))
		if !ok {
			t.Fatalf("pattern %d: gave up", i)
		}
		if played := play(&w.t, len(u)); !(math.Abs(got-played) < 1e-5) {
			t.Fatalf("pattern %d %v: %v us, its shares take %v", i, u, got, played)
		}
		want := reference(t, &w.t, len(u))
		switch {
		case math.IsNaN(want) || want > got+slackUS: // got is attained, so this is no optimum
			failed++
		case want < got-1e-5:
			t.Fatalf("pattern %d %v: %v us, linear program %v", i, u, got, want)
		}
	}
	if failed > 15 {
		t.Errorf("the reference solver failed on %d of 1000", failed)
	}
}

// TestTimingOfForwarding is the same for uses of any rate and overhead that carry all flows or
// half of them, and compares the greedy timing, which is never below.
func TestTimingOfForwarding(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 1))
	failed, checked := 0, 0
	for checked < 600 {
		w, u := randomSwot(rng)
		w.load(u, len(u))
		x := &w.t
		manned := make([][3]bool, len(u))
		for k := range x.uses {
			use := &x.uses[k]
			use.rate, use.o = 1/float64(1+rng.IntN(4)), float64(rng.IntN(30))
			use.half = half(rng.IntN(4) % 3)
			manned[use.step][use.half] = true
		}
		served := true
		for _, m := range manned {
			served = served && (m[both] || m[up] && m[down])
		}
		if !served {
			continue
		}
		checked++
		got, ok := x.solve(len(u), math.Inf(1))
		if !ok {
			t.Fatalf("pattern %d: gave up", checked)
		}
		carried := make([][2]float64, len(u))
		for k, use := range x.uses {
			for g, h := range divided {
				if use.half.carries(h) {
					carried[use.step][g] += x.data(k)
				}
			}
		}
		for i, c := range carried {
			if math.Min(c[0], c[1]) < x.work[i]-1e-4 {
				t.Fatalf("pattern %d: step %d carries %v of %v", checked, i, c, x.work[i])
			}
		}
		want := reference(t, x, len(u))
		switch {
		case math.IsNaN(want) || want > got+slackUS:
			failed++
		case want < got-1e-5:
			t.Fatalf("pattern %d: %v us, linear program %v", checked, got, want)
		}
		if us, _ := x.greedy(len(u), math.Inf(1)); us < got-1e-5 && !idleUse(x) {
			t.Fatalf("pattern %d: greedy %v below exact %v", checked, us, got)
		}
	}
	if failed > 15 {
		t.Errorf("the reference solver failed on %d of %d", failed, checked)
	}
}

// TestTimingOfSmallSteps: bytes that take next to no time beside overheads and switches are timed
// as well as others.
func TestTimingOfSmallSteps(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 1))
	for i := range 1000 {
		w, u := randomSwot(rng)
		small := math.Pow(10, -6*rng.Float64())
		for i := range w.t.work {
			w.t.work[i] *= small
		}
		got, ok := w.evaluate(u, len(u), math.Inf(1))
		if !ok {
			t.Fatalf("pattern %d: gave up", i)
		}
		if played := play(&w.t, len(u)); !(math.Abs(got-played) < 1e-5) {
			t.Fatalf("pattern %d: %v us, its shares take %v", i, got, played)
		}
	}
}

func TestTimingCutoff(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 1))
	for i := range 300 {
		w, u := randomSwot(rng)
		us, _ := w.evaluate(u, len(u), math.Inf(1))
		if _, ok := w.evaluate(u, len(u), us*0.999); ok {
			t.Fatalf("pattern %d: %v us passes a lower cutoff", i, us)
		}
		if again, ok := w.evaluate(u, len(u), us*1.001); !ok || math.Abs(again-us) > 1e-6 {
			t.Fatalf("pattern %d: %v us fails a higher cutoff (%v)", i, us, again)
		}
		// A prefix takes no longer than the whole: branch and bound relies on it.
		if part, ok := w.evaluate(u, (len(u)+1)/2, math.Inf(1)); !ok || part > us+1e-6 {
			t.Fatalf("pattern %d: prefix %v, whole %v", i, part, us)
		}
	}
}

func TestTimingDoesNotAllocate(t *testing.T) {
	w, u := randomSwot(rand.New(rand.NewPCG(5, 1)))
	w.evaluate(u, len(u), math.Inf(1))
	if n := testing.AllocsPerRun(100, func() { w.evaluate(u, len(u), math.Inf(1)) }); n != 0 {
		t.Errorf("%v allocations per evaluation", n)
	}
}
