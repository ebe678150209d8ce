package mip

import (
	"math"
	"strings"
	"testing"

	"lightpath/internal/assert"
	"lightpath/internal/require"
)

// knapsack: 5 a + 4 b + 3 c worth, weights 2, 3, 1, at most 3 in all, and a - b <= 0.
func knapsack() (*Program, []Var) {
	p := &Program{}
	a, b, c := p.AddInteger("a", 0, 1), p.AddInteger("b", 0, 1), p.Add("c", 0, math.Inf(1))
	p.Minimize(Term{-5, a}, Term{-4, b}, Term{-3, c})
	p.Row("weight", AtMost, 3, Term{2, a}, Term{3, b}, Term{1, c})
	p.Row("order", AtMost, 0, Term{1, a}, Term{-1, b}, Term{2, c}, Term{-2, c})
	return p, []Var{a, b, c}
}

func TestWrite(t *testing.T) {
	p, _ := knapsack()
	var lp, mps strings.Builder
	require.NoError(t, p.WriteLP(&lp, "a comment"))
	wantLP := `\ a comment
Minimize
 obj: -5 a -4 b -3 c
Subject To
 weight: +2 a +3 b +1 c <= 3
 order: +1 a -1 b <= 0
Bounds
 0 <= a <= 1
 0 <= b <= 1
 c >= 0
Generals
 a
 b
End
`
	if lp.String() != wantLP {
		t.Errorf("LP:\n%s\nwant\n%s", lp.String(), wantLP)
	}
	require.NoError(t, p.WriteMPS(&mps, "knapsack"))
	assert.Contains(t, mps.String(), "NAME knapsack\n", " L weight\n",
		" MARKER0 'MARKER' 'INTORG'\n a obj -5\n a weight 2\n a order 1\n",
		" MARKER2 'MARKER' 'INTEND'\n c obj -3\n c weight 1\nRHS\n RHS weight 3\n", " UP BND a 1\n", " PL BND c\n")
	if s := p.Size(); s != (Size{Vars: 3, Integers: 2, Rows: 2}) {
		t.Errorf("size %+v", s)
	}
	if err := (&Program{}).WriteLP(&lp, ""); err == nil {
		t.Error("an empty program is written")
	}
}

func TestCheckNamesWhatIsMissed(t *testing.T) {
	p, _ := knapsack()
	for _, tc := range []struct {
		x    []float64
		want string
	}{
		{[]float64{0, 0, 3}, ""},
		{[]float64{0, 1, 0}, ""},
		{[]float64{1, 1, 0}, "row weight"},
		{[]float64{1, 0, 0}, "row order"},
		{[]float64{0, 0.5, 0}, "b = 0.5 is no integer"},
		{[]float64{0, 0, -1}, "variable c"},
		{[]float64{0, 0, math.NaN()}, "c = NaN"},
		{[]float64{0, 0}, "2 values"},
	} {
		err := p.Check(tc.x, 1e-9)
		if (tc.want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%v: %v, want %q", tc.x, err, tc.want)
		}
	}
	if got := p.Cost([]float64{1, 1, 2}); got != -15 {
		t.Errorf("cost %v", got)
	}
}

func TestNames(t *testing.T) {
	for name, want := range map[string]bool{"x_1": true, "e1": false, "E": false, "1x": false, "": false, "a b": false,
		"_x": false, "te": true} {
		if validName(name) != want {
			t.Errorf("%q: %v", name, !want)
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("two variables of one name")
		}
	}()
	p, _ := knapsack()
	p.Add("a", 0, 1)
}
