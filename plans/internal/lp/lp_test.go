package lp_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"gonum.org/v1/gonum/mat"
	gonum "gonum.org/v1/gonum/optimize/convex/lp"

	"lightpath/plans/internal/lp"
)

// instance is a random covering program; some are infeasible.
type instance struct {
	cost []float64
	rows [][]float64
	rhs  []float64
}

func random(rng *rand.Rand) instance {
	n, m := 1+rng.IntN(6), 1+rng.IntN(8)
	in := instance{cost: make([]float64, n)}
	for v := range in.cost {
		in.cost[v] = float64(rng.IntN(5))
	}
	for range m {
		row := make([]float64, n)
		for v := range row {
			if rng.IntN(2) == 0 {
				row[v] = float64(rng.IntN(7)) - 2
			}
		}
		in.rows = append(in.rows, row)
		in.rhs = append(in.rhs, float64(rng.IntN(9))-2)
	}
	return in
}

func add(p *lp.Program, row []float64, rhs float64) int {
	cols := make([]int32, len(row))
	for v := range cols {
		cols[v] = int32(v)
	}
	return p.Add(cols, row, rhs)
}

func (in *instance) short(p *lp.Program, r int) float64 {
	sum := -in.rhs[r]
	for v, a := range in.rows[r] {
		sum += a * p.Value(v)
	}
	return sum
}

// reference solves in with gonum's simplex in standard form. It takes no program with a
// row or column of zeros: there known is false.
func reference(in *instance) (value float64, feasible, known bool) {
	n, m := len(in.cost), len(in.rows)
	a := mat.NewDense(m, n+m, nil)
	c := make([]float64, n+m)
	copy(c, in.cost)
	for r, row := range in.rows {
		for v, x := range row {
			a.Set(r, v, x)
		}
		a.Set(r, n+r, -1)
	}
	z, _, err := gonum.Simplex(c, a, in.rhs, 1e-10, nil)
	return z, err == nil, err == nil || errors.Is(err, gonum.ErrInfeasible)
}

// optimal fails the test unless p holds a solution of in whose duals prove it optimal.
func (in *instance) optimal(t *testing.T, p *lp.Program, value float64) {
	t.Helper()
	primal := 0.0
	for v, c := range in.cost {
		primal += c * p.Value(v)
	}
	if math.Abs(primal-value) > 1e-6 {
		t.Fatalf("value %v, but its x costs %v", value, primal)
	}
	for r := range in.rows {
		if s := in.short(p, r); s < -1e-6 {
			t.Fatalf("row %d is missed by %v", r, -s)
		}
	}
}

func TestAgainstReference(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var p lp.Program
	feasible := 0
	for range 4000 {
		in := random(rng)
		want, ok, known := reference(&in)
		if !known {
			continue
		}
		p.Reset(in.cost)
		for r := range in.rows {
			add(&p, in.rows[r], in.rhs[r])
		}
		value, status := p.Solve(math.Inf(1), 1000)
		if ok != (status == lp.Optimal) {
			t.Fatalf("%+v: status %v, the reference finds %v %v", in, status, want, ok)
		}
		if !ok {
			continue
		}
		feasible++
		if math.Abs(value-want) > 1e-6 {
			t.Fatalf("%+v: %v, the reference finds %v", in, value, want)
		}
		in.optimal(t, &p, value)
		dual := 0.0
		slackness := make([]float64, len(in.cost))
		for r := range in.rows {
			dual += p.Dual(r) * in.rhs[r]
			for v, a := range in.rows[r] {
				slackness[v] += p.Dual(r) * a
			}
		}
		if math.Abs(dual-value) > 1e-6 {
			t.Fatalf("%+v: value %v, its duals prove %v", in, value, dual)
		}
		for v := range slackness {
			if slackness[v] > in.cost[v]+1e-6 {
				t.Fatalf("%+v: dual infeasible in column %d", in, v)
			}
		}
	}
	if feasible < 500 {
		t.Fatalf("only %d of the instances are feasible", feasible)
	}
}

// TestLazy adds rows only when they are violated and forgets slack ones.
func TestLazy(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	var p lp.Program
	p.Lazy = true
	for range 2000 {
		in := random(rng)
		want, ok, known := reference(&in)
		if !known {
			continue
		}
		p.Reset(in.cost)
		value, status, before := 0.0, lp.Optimal, 0.0
		for status == lp.Optimal {
			if value, status = p.Solve(math.Inf(1), 1000); value < before-1e-9 {
				t.Fatalf("the value falls from %v to %v", before, value)
			}
			before = value
			worst, pick := -1e-7, -1
			for r := range in.rows {
				if s := in.short(&p, r); s < worst {
					worst, pick = s, r
				}
			}
			if pick < 0 {
				break
			}
			add(&p, in.rows[pick], in.rhs[pick])
		}
		if ok != (status == lp.Optimal) || ok && math.Abs(value-want) > 1e-5 {
			t.Fatalf("%+v: %v (status %v), the reference finds %v %v", in, value, status, want, ok)
		}
		if ok {
			in.optimal(t, &p, value)
		}
	}
}

func TestCutoffAndBudget(t *testing.T) {
	var p lp.Program
	p.Reset([]float64{1, 2})
	add(&p, []float64{1, 1}, 10)
	add(&p, []float64{0, 1}, 4)
	if v, s := p.Solve(3, 100); s != lp.Cutoff || v < 3 || v > 14 {
		t.Fatalf("%v %v", v, s)
	}
	if v, s := p.Solve(math.Inf(1), 0); s != lp.GaveUp || v > 14 {
		t.Fatalf("%v %v", v, s)
	}
	if v, s := p.Solve(math.Inf(1), 100); s != lp.Optimal || v != 14 {
		t.Fatalf("%v %v", v, s)
	}
	if p.Work() == 0 {
		t.Fatal("work is not counted")
	}
}

func TestResetReusesBuffers(t *testing.T) {
	var p lp.Program
	cols, coef, cost := []int32{0, 1, 2}, []float64{1, 2, 1}, []float64{3, 1, 2}
	run := func() {
		p.Reset(cost)
		p.Add(cols, coef, 5)
		p.Add(cols[:2], coef[1:], 4)
		p.Solve(math.Inf(1), 100)
	}
	run()
	if n := testing.AllocsPerRun(100, run); n != 0 {
		t.Fatalf("%v allocations per program", n)
	}
}
