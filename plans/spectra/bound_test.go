package spectra

import (
	"math"
	"math/rand/v2"
	"testing"

	"lightpath/plans"
)

// exactPort is the makespan of a port by enumeration of its groups: assign divides the
// entries from i on, sizes holds the sums of x+delta of the groups so far.
func exactPort(x []float64, s int, delta float64) float64 {
	best := math.Inf(1)
	var groups []float64 // W + delta a
	var place func(i int)
	place = func(i int) {
		if i < len(x) {
			for g := range groups {
				groups[g] += x[i] + delta
				place(i + 1)
				groups[g] -= x[i] + delta
			}
			groups = append(groups, x[i]+delta)
			place(i + 1)
			groups = groups[:len(groups)-1]
			return
		}
		if len(groups) > s {
			return
		}
		// Give each group a switch, then the others one by one to the longest group.
		b := make([]float64, len(groups))
		length := func(g int) float64 { return (groups[g] + delta*(b[g]-1)) / b[g] }
		for g := range b {
			b[g] = 1
		}
		longest := func() int {
			at := 0
			for g := range groups {
				if length(g) > length(at) {
					at = g
				}
			}
			return at
		}
		for range s - len(groups) {
			b[longest()]++
		}
		best = min(best, length(longest()))
	}
	place(0)
	return best
}

func TestBounds(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	var p partitioner
	for range 400 {
		x := make([]float64, 1+rng.IntN(6))
		for i := range x {
			x[i] = rng.Float64()
		}
		d := zero(len(x))
		copy(d[0], x)
		s := 1 + rng.IntN(5)
		delta := []float64{0.001, 0.05, 0.3, 2}[rng.IntN(4)]
		exact := exactPort(x, s, delta)
		if !p.feasible(x, s, delta, exact*(1+1e-9)) {
			t.Fatalf("x=%v s=%d delta=%v: %v is feasible", x, s, delta, exact)
		}
		if p.feasible(x, s, delta, exact*(1-1e-6)) {
			t.Fatalf("x=%v s=%d delta=%v: less than %v is not feasible", x, s, delta, exact)
		}
		for name, b := range map[string]float64{"1": Bound1(d, s, delta), "2": Bound2(d, s, delta),
			"whole": wholeBound(newNetwork(d, "simplex").portEntries()[0], s, delta)} {
			if b > exact*(1+1e-9) {
				t.Fatalf("x=%v s=%d delta=%v: bound %s is %v, the optimum %v", x, s, delta, name, b, exact)
			}
		}
		b, proof := Bound(d, s, delta)
		if b > exact*(1+1e-9) || b < exact*(1-1e-7) || b < max(Bound1(d, s, delta), Bound2(d, s, delta))*(1-1e-9) ||
			proof == "" {
			t.Fatalf("x=%v s=%d delta=%v: bound %v, the optimum %v", x, s, delta, b, exact)
		}
	}
}

// TestCountBound: with 6 durations, the longest of both ports add up to 21: (21 + 6) / 3 = 9. With 7 durations, 18 + 7
// are left for 3 switches. More durations than 7 take longer.
func TestCountBound(t *testing.T) {
	ports := [][]float64{{6, 1, 1, 1, 1, 1}, {3, 3, 3, 3, 3, 3}}
	if got := countBound(ports, 3, 1, 0); math.Abs(got-25.0/3) > 1e-9 {
		t.Errorf("%v, want 25/3", got)
	}
	// The third duration shares a switch: 2 reconfigurations, 3 and 1.
	if got := countBound([][]float64{{4, 3, 1}}, 2, 1, 0); got != 6 {
		t.Errorf("%v, want 6", got)
	}
}

func TestCircuits(t *testing.T) {
	for kind, want := range map[plans.CircuitKind]float64{plans.Simplex: 2, plans.Duplex: 3, plans.Interleaved: 4} {
		w := newNetwork(Matrix{{5, 5}, {0, 0}}, kind) // to itself, and to the other rank
		if got := w.circuits(); got != want {
			t.Errorf("%v: %v circuits, want %v", kind, got, want)
		}
	}
	if w := newNetwork(Matrix{{0, 5}, {0, 0}}, plans.Interleaved); len(w.to) != 2 {
		t.Errorf("%d edges for two ranks on interleaved planes, want one for each direction", len(w.to))
	}
}

// TestEclipseTakesTheDensest: a duration of 1 serves 4 in 1.1, one of 10 serves 13 in 10.1.
func TestEclipseTakesTheDensest(t *testing.T) {
	d := Matrix{{10, 0, 0, 0}, {0, 1, 0, 0}, {0, 0, 1, 0}, {0, 0, 0, 1}}
	if got := Eclipse(d, 0.1); got.Weights[0] != 1 {
		t.Errorf("%+v", got)
	}
}
