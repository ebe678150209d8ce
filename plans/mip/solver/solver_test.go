package solver

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"lightpath/internal/require"
	"lightpath/plans/mip"
)

// installed returns the solvers that are there; with none the test is skipped.
func installed(t *testing.T) []*Solver {
	t.Helper()
	var all []*Solver
	for _, name := range Names {
		s, err := Find(name)
		if errors.Is(err, ErrNone) {
			t.Logf("%v", err)
			continue
		}
		require.NoError(t, err)
		all = append(all, s)
	}
	if len(all) == 0 {
		t.Skip("no solver is installed (Debian's coinor-cbc, or PyPI's highspy)")
	}
	return all
}

// knapsack returns a random 0-1 knapsack, as a minimization, and its optimum by enumeration.
func knapsack(rng *rand.Rand, n int) (*mip.Program, float64) {
	p := &mip.Program{}
	worth, weight := make([]float64, n), make([]float64, n)
	var cost, load []mip.Term
	limit := 0.0
	for i := range n {
		worth[i], weight[i] = float64(1+rng.IntN(20)), float64(1+rng.IntN(20))
		limit += weight[i] / 2
		v := p.AddInteger("x_"+string(rune('a'+i)), 0, 1)
		cost, load = append(cost, mip.Term{Coef: -worth[i], Var: v}), append(load, mip.Term{Coef: weight[i], Var: v})
	}
	rest := p.Add("rest", 0, math.Inf(1))
	p.Minimize(append(cost, mip.Term{Coef: 0.25, Var: rest})...)
	p.Row("weight", mip.Equal, limit, append(load, mip.Term{Coef: 1, Var: rest})...)
	best := math.Inf(1)
	for set := range 1 << n {
		c, w := 0.0, 0.0
		for i := range n {
			if set>>i&1 == 1 {
				c, w = c-worth[i], w+weight[i]
			}
		}
		if w <= limit {
			best = min(best, c+0.25*(limit-w))
		}
	}
	return p, best
}

func TestSolversAgainstEnumeration(t *testing.T) {
	for _, s := range installed(t) {
		t.Run(s.Name(), func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(1, 2))
			for range 3 {
				p, want := knapsack(rng, 10)
				r, err := s.Solve(t.Context(), p, Options{Threads: 1, Gap: 1e-9})
				require.NoError(t, err)
				if r.Status != Optimal || math.Abs(r.Objective-want) > 1e-6 || r.Bound > want+1e-6 || r.Gap() > 1e-6 {
					t.Errorf("%+v, want %v", r, want)
				}
				if err := p.Check(r.Values, 1e-9); err != nil {
					t.Error(err)
				}
				// The solution is a start, and what comes back is no worse.
				again, err := s.Solve(t.Context(), p, Options{Start: r.Values})
				if err != nil || again.Status != Optimal || math.Abs(again.Objective-want) > 1e-3 {
					t.Errorf("from a start: %+v, %v", again, err)
				}
			}
		})
	}
}

func TestInfeasible(t *testing.T) {
	for _, s := range installed(t) {
		p := &mip.Program{}
		x, y := p.AddInteger("x", 0, 5), p.AddInteger("y", 0, 5)
		p.Minimize(mip.Term{Coef: 1, Var: x})
		p.Row("odd", mip.Equal, 3, mip.Term{Coef: 2, Var: x}, mip.Term{Coef: -2, Var: y})
		r, err := s.Solve(t.Context(), p, Options{})
		if err != nil || r.Status != Infeasible || r.Values != nil {
			t.Errorf("%s: %+v, %v", s.Name(), r, err)
		}
	}
}

func TestFind(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	for _, name := range append([]string{"auto", "abacus"}, Names...) {
		s, err := Find(name)
		if !errors.Is(err, ErrNone) || s != nil {
			t.Errorf("%s: %v, %v", name, s, err)
		}
	}
}

func TestCancelled(t *testing.T) {
	for _, s := range installed(t) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		p, _ := knapsack(rand.New(rand.NewPCG(1, 1)), 4)
		if _, err := s.Solve(ctx, p, Options{}); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", s.Name(), err)
		}
	}
}

// TestDeadline: a solver that ignores its limit is killed, and has no solution.
func TestDeadline(t *testing.T) {
	pretend(t, "cbc", "exec sleep 600")
	s, err := Find("cbc")
	require.NoError(t, err)
	p, _ := knapsack(rand.New(rand.NewPCG(1, 1)), 4)
	for _, limit := range []time.Duration{0, 100 * time.Millisecond} {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		if r, err := s.Solve(ctx, p, Options{}); err != nil || r.Status != Unknown || r.Values != nil {
			t.Errorf("%v: %+v, %v", limit, r, err)
		}
	}
}

// pretend puts a script called name at the head of PATH.
func pretend(t *testing.T, name, script string) {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script), 0o700))
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

// TestGurobi checks the arguments for Gurobi's command line and the reading of its output, with a script that
// imitates it.
func TestGurobi(t *testing.T) {
	for name, tc := range map[string]struct {
		script string
		want   Status
		bound  float64
	}{
		"optimal": {`for a in "$@"; do case "$a" in
ResultFile=*) out=${a#ResultFile=};;
InputFile=*) grep -q "^x_a 1$" "${a#InputFile=}" || exit 3;;
esac; done
case "$*" in *TimeLimit=[78]??.???*MIPGap=0.001*Threads=2*model.lp) ;; *) exit 2;; esac
printf '# Objective value = -3\nx_a 1\nrest 0\n' > "$out"
echo "Optimal solution found (tolerance 1.00e-04)"
echo "Best objective -3.0e+00, best bound -3.0e+00, gap 0.0%"`, Optimal, -3},
		"stopped": {`for a in "$@"; do case "$a" in ResultFile=*) printf 'x_a 1\n' > "${a#ResultFile=}";; esac; done
echo "Time limit reached"; echo "Best objective -3.0e+00, best bound -9.5e+00, gap 216%"`, Feasible, -9.5},
		"nothing":    {`echo "Time limit reached"; echo "Best objective -, best bound -9.5e+00, gap -"`, Unknown, -9.5},
		"infeasible": {`echo "Model is infeasible"`, Infeasible, math.Inf(-1)},
	} {
		t.Run(name, func(t *testing.T) {
			pretend(t, "gurobi_cl", tc.script)
			s, err := Find("gurobi")
			require.NoError(t, err)
			p := &mip.Program{}
			x, rest := p.AddInteger("x_a", 0, 1), p.Add("rest", 0, 1)
			p.Minimize(mip.Term{Coef: -3, Var: x}, mip.Term{Coef: 1, Var: rest})
			ctx, cancel := context.WithTimeout(t.Context(), 990*time.Second)
			defer cancel()
			r, err := s.Solve(ctx, p, Options{Gap: 1e-3, Threads: 2, Start: []float64{0.9999999, 0}})
			if err != nil || r.Status != tc.want || r.Bound != tc.bound {
				t.Fatalf("%+v, %v", r, err)
			}
			if hasValues := r.Values != nil; hasValues != (tc.want == Optimal || tc.want == Feasible) {
				t.Errorf("values %v", r.Values)
			} else if hasValues && r.Objective != -3 {
				t.Errorf("objective %v", r.Objective)
			}
		})
	}
}

// TestWords: what solvers say that is no result is an error that repeats it.
func TestWords(t *testing.T) {
	for name, script := range map[string]string{
		"dies":      `echo "out of memory" >&2; exit 1`,
		"silent":    `exit 0`,
		"gibberish": `while [ "$1" ]; do [ "$1" = -solution ] && echo "Perhaps" > "$2"; shift; done`,
		"no values": `while [ "$1" ]; do [ "$1" = -solution ] && echo "Optimal - objective value 1" > "$2"; shift; done`,
	} {
		t.Run(name, func(t *testing.T) {
			pretend(t, "cbc", script)
			p, _ := knapsack(rand.New(rand.NewPCG(1, 1)), 4)
			s, err := Find("cbc")
			require.NoError(t, err)
			r, err := s.Solve(t.Context(), p, Options{})
			if name == "no values" { // cbc leaves out zeros: this is all of them being 0
				if err != nil || r.Objective != 0 {
					t.Errorf("%+v, %v", r, err)
				}
				return
			}
			if !errors.Is(err, ErrSolver) || name == "dies" && !strings.Contains(err.Error(), "out of memory") {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestCbcValuesOddLine: a line without a name, among the last, is no variable.
func TestCbcValuesOddLine(t *testing.T) {
	p := &mip.Program{}
	p.Add("x", 0, 4)
	j := &job{program: p}
	exact := make([]byte, 24)
	binary.NativeEndian.PutUint32(exact[4:], 1)
	for _, text := range []string{"0 x 3 0\nstopped", "0 x 3 0\n**"} {
		if got := j.cbcValues(text, exact); len(got) != 1 || got["x"] != 3 {
			t.Errorf("%q: %v", text, got)
		}
	}
}
