package spectra

import (
	"context"
	"math"
	"math/rand/v2"
	"testing"

	"lightpath/plans"
	"lightpath/plans/circuit"
)

// example is the demand of the paper's Fig. 2.
var example = Matrix{
	{0.6, 0.3, 0, 0.1},
	{0, 0.61, 0.39, 0},
	{0, 0.09, 0.61, 0.3},
	{0.4, 0, 0, 0.6},
}

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-9 }

// TestExample is the paper's worked example (Fig. 2 to 4): taken literally its Algorithms 1
// and 2 give 0.61, 0.31, 0.10; the numbers that it prints come from the linear program (5).
func TestExample(t *testing.T) {
	for _, c := range []struct {
		name      string
		decompose func(Matrix) Decomposition
		weights   []float64
		makespan  float64
	}{
		{"greedy", Decompose, []float64{0.61, 0.31, 0.10}, 0.53},
		{"linear", linear, []float64{0.61, 0.30, 0.10}, 0.525},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := c.decompose(example)
			if len(d.Weights) != 3 {
				t.Fatalf("%d permutations, want 3", len(d.Weights))
			}
			for i, w := range c.weights {
				if !near(d.Weights[i], w) {
					t.Errorf("weights %v, want %v", d.Weights, c.weights)
				}
			}
			got := Equalize(Schedule(d, 2, 0.01), 0.01)
			covers(t, example, got)
			if m := got.Makespan(0.01); !near(m, c.makespan) {
				t.Errorf("makespan %v, want %v", m, c.makespan)
			}
		})
	}
}

// linear is Decompose with the weights of the linear program (5).
func linear(d Matrix) Decomposition {
	w := newNetwork(d, plans.Simplex)
	holds := decompose(context.Background(), w, newMatcher(w), newBare(w, 0), nil, 0)
	var s weigher
	s.setNetwork(w)
	s.solve(holds, make([]int32, len(holds)), []float64{0})
	return w.decomposition(holds)
}

// covers fails where a timetable leaves demand.
func covers(t *testing.T, d Matrix, table Timetable) {
	t.Helper()
	n := len(d)
	held := make([]float64, n*n)
	for _, sw := range table {
		if len(sw.Perms) != len(sw.Weights) {
			t.Fatalf("%d permutations, %d weights", len(sw.Perms), len(sw.Weights))
		}
		for i, p := range sw.Perms {
			if err := p.Validate(n); err != nil {
				t.Fatal(err)
			}
			if !(sw.Weights[i] >= 0) {
				t.Fatalf("weight %v", sw.Weights[i])
			}
			for r, s := range p {
				if s != circuit.Dark {
					held[r*n+s] += sw.Weights[i]
				}
			}
		}
	}
	for r := range d {
		for s, x := range d[r] {
			if held[r*n+s] < x-1e-9*(1+x) {
				t.Fatalf("[%d][%d] is held for %v, needs %v", r, s, held[r*n+s], x)
			}
		}
	}
}

func degree(d Matrix) int {
	most := 0
	for r := range d {
		row, col := 0, 0
		for s := range d {
			if d[r][s] > 0 {
				row++
			}
			if d[s][r] > 0 {
				col++
			}
		}
		most = max(most, row, col)
	}
	return most
}

// benchmark is the paper's third workload: m flows per port, a quarter of them with 70 % of
// the traffic, and noise of 0.3 %.
func benchmark(rng *rand.Rand, n, m int) Matrix {
	d := zero(n)
	for k := range m {
		x := 0.7 / float64(m/4)
		if k >= m/4 {
			x = 0.3 / float64(m-m/4)
		}
		for r, s := range rng.Perm(n) {
			d[r][s] += x
		}
	}
	noise(rng, d, 0.003)
	return d
}

func zero(n int) Matrix {
	d := make(Matrix, n)
	for r := range d {
		d[r] = make([]float64, n)
	}
	return d
}

func noise(rng *rand.Rand, d Matrix, sigma float64) {
	for r := range d {
		for s := range d[r] {
			if d[r][s] > 0 {
				d[r][s] = max(0, d[r][s]+sigma*rng.NormFloat64())
			}
		}
	}
}

// gpt is a 32 x 32 hybrid-parallel pattern: tensor groups of 4 in rings, data-parallel rings
// and a pipeline, made about doubly stochastic.
func gpt(rng *rand.Rand) Matrix {
	const n = 32
	d := zero(n)
	for r := range n {
		tp := r/4*4 + (r+1)%4
		back := r/4*4 + (r+3)%4
		d[r][tp] += 0.4
		d[r][back] += 0.25
		d[r][(r+8)%n] += 0.2
		d[r][(r+4)%n] += 0.1
		d[r][(r+n-4)%n] += 0.05
	}
	noise(rng, d, 0.003)
	return d
}

// moe is a dense 64 x 64 matrix with popular experts; the busiest port has 1.
func moe(rng *rand.Rand) Matrix {
	const n = 64
	d := zero(n)
	popular := make([]float64, n)
	for s := range popular {
		popular[s] = math.Exp(0.3 * rng.NormFloat64())
	}
	most := 0.0
	for r := range n {
		for s := range n {
			d[r][s] = popular[s] * math.Exp(0.15*rng.NormFloat64())
		}
	}
	for r := range n {
		row, col := 0.0, 0.0
		for s := range n {
			row += d[r][s]
			col += d[s][r]
		}
		most = max(most, row, col)
	}
	for r := range n {
		for s := range n {
			d[r][s] /= most
		}
	}
	return d
}

func TestDecompose(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for range 60 {
		n := 1 + rng.IntN(12)
		d := zero(n)
		for r := range n {
			for s := range n {
				if rng.IntN(3) == 0 {
					d[r][s] = rng.Float64()
				}
			}
		}
		for _, decompose := range []func(Matrix) Decomposition{Decompose, linear} {
			got := decompose(d)
			if len(got.Perms) != degree(d) {
				t.Fatalf("%d permutations for degree %d", len(got.Perms), degree(d))
			}
			covers(t, d, Timetable{got})
			for _, s := range []int{1, 3} {
				table := Schedule(got, s, 0.05)
				covers(t, d, table)
				even := Equalize(table, 0.05)
				covers(t, d, even)
				if even.Makespan(0.05) > table.Makespan(0.05)+1e-12 {
					t.Fatal("EQUALIZE made it longer")
				}
			}
		}
	}
}

// TestColorLate: a colouring without time left is made once, as it takes seconds for a thousand ranks.
func TestColorLate(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	d := zero(32)
	for r := range d {
		for s := range d {
			d[r][s] = math.Pow(10, float64(rng.IntN(8)))
		}
	}
	late, cancel := context.WithCancel(context.Background())
	cancel()
	w := newNetwork(d, plans.Simplex)
	holds := func(ctx context.Context) int {
		return len(decompose(ctx, w, newMatcher(w), newBare(w, 0), func() bool { return true }, 1))
	}
	if n := holds(late); n != len(d) {
		t.Errorf("late: %d holds, want one class of %d", n, len(d))
	}
	if n := holds(context.Background()); n <= len(d) {
		t.Errorf("in time: %d holds, so one class", n)
	}
}

func BenchmarkDecompose100(b *testing.B) {
	d := benchmark(rand.New(rand.NewPCG(1, 1)), 100, 16)
	for b.Loop() {
		Decompose(d)
	}
}

// BenchmarkFast is the fast mode as a whole, on the paper's benchmark and the dense MoE-like
// demand.
func BenchmarkFast(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 1))
	for _, c := range []struct {
		name string
		d    Matrix
	}{{"n=100", benchmark(rng, 100, 16)}, {"n=512", benchmark(rng, 512, 16)}, {"n=64,dense", moe(rng)}} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				improved(context.Background(), c.d, 4, 0.01, Options{Mode: Fast})
			}
		})
	}
}
