package model

import (
	"math/rand/v2"
	"testing"

	"lightpath/internal/require"
	"lightpath/plans"
	"lightpath/plans/circuit"
	"lightpath/plans/planner/internal/plantest"
)

// twoPlanes is a fabric without steps.
func twoPlanes(ranks int, kind plans.CircuitKind) *plans.Problem {
	return &plans.Problem{Version: plans.Version, Ranks: ranks, Planes: 2, BandwidthGbps: 1, Circuits: kind}
}

// checkSplit verifies that the sub-steps of a one-step problem are matchings that planes can
// hold and that each flow is in one of them, and returns them.
func checkSplit(t *testing.T, p *plans.Problem) []Step {
	t.Helper()
	require.NoError(t, p.Validate())
	m, err := Compile(p)
	require.NoError(t, err)
	for i := range m.Asked {
		seen := make([]int, len(p.Steps[m.Asked[i].Index].Flows))
		for _, sub := range m.Steps {
			if sub.Index != m.Asked[i].Index || sub.Class == nil {
				continue
			}
			want := circuit.AllDark(p.Ranks)
			for _, f := range sub.Class {
				seen[f]++
				flow := p.Steps[sub.Index].Flows[f]
				want[flow[0]] = flow[1]
			}
			if !want.Equal(sub.Pattern) || sub.Pattern.Validate(p.Ranks) != nil {
				t.Fatalf("class %v has the pattern %v", sub.Class, sub.Pattern)
			}
			if sub.Page < 0 || Servers(m.Pages[sub.Page], sub.Pattern) == 0 {
				t.Fatalf("class %v is not on its page", sub.Class)
			}
			require.NoError(t, p.Circuits.Holds(m.Pages[sub.Page], 0))
		}
		if m.Asked[i].Pattern != nil {
			continue
		}
		for f, n := range seen {
			if n != 1 {
				t.Fatalf("flow %d of step %d is in %d classes", f, i, n)
			}
		}
	}
	return m.Steps
}

func degreeOf(n int, flows [][2]int) (degree int) {
	out, in := make([]int, n), make([]int, n)
	for _, f := range flows {
		out[f[0]]++
		in[f[1]]++
		degree = max(degree, out[f[0]], in[f[1]])
	}
	return degree
}

// TestSplitIsKonig: random steps take as many matchings as their degree, on planes of every
// kind but duplex.
func TestSplitIsKonig(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 1))
	for i := range 300 {
		n := 3 + rng.IntN(8)
		p := twoPlanes(n, plans.Simplex)
		p.Circuits = []plans.CircuitKind{plans.Simplex, plans.Interleaved, plans.Duplex}[i%3]
		all := plantest.AllToAll(n)
		rng.Shuffle(len(all), func(a, b int) { all[a], all[b] = all[b], all[a] })
		flows := append(all[:rng.IntN(len(all))], [][2]int{}...)
		flows = append(flows[:len(flows):len(flows)], fan(flows)...)
		p.Steps = []plans.Step{{Bytes: 1, Flows: flows}}
		steps := checkSplit(t, p)
		if degree := degreeOf(n, flows); p.Circuits != plans.Duplex && len(steps) != degree {
			t.Fatalf("%v: %d matchings, degree %d", flows, len(steps), degree)
		}
	}
}

// fan adds flows from rank 0 so that the step is no partial permutation.
func fan(flows [][2]int) (more [][2]int) {
next:
	for d := 1; d <= 2; d++ {
		for _, f := range flows {
			if f == [2]int{0, d} {
				continue next
			}
		}
		more = append(more, [2]int{0, d})
	}
	return more
}

// TestSplitReusesCircuits: a step takes the circuits that other steps use, or shifts, or what
// a plane's kind allows.
func TestSplitReusesCircuits(t *testing.T) {
	xors := func(p *plans.Problem) {
		for m := 1; m < p.Ranks; m++ {
			p.Steps = append(p.Steps, plans.Step{Bytes: 1, To: circuit.Xor(p.Ranks, m)})
		}
	}
	for _, tc := range []struct {
		name  string
		n     int
		kind  plans.CircuitKind
		other func(p *plans.Problem)
		subs  int
		pages int
	}{
		{"shifts", 6, plans.Simplex, nil, 5, 5},
		{"xors of other steps", 8, plans.Simplex, xors, 7, 7},
		{"a shift and its inverse share a pair", 6, plans.Interleaved, nil, 5, 3},
		{"xors", 8, plans.Duplex, nil, 7, 7},
		{"round robin, even", 6, plans.Duplex, nil, 5, 5},
		{"round robin, odd", 7, plans.Duplex, nil, 7, 7},
	} {
		p := twoPlanes(tc.n, tc.kind)
		p.Steps = []plans.Step{{Bytes: 1, Flows: plantest.AllToAll(tc.n)}}
		if tc.other != nil {
			tc.other(p)
		}
		steps := checkSplit(t, p)
		m, _ := Compile(p)
		subs := 0
		for _, st := range steps {
			if st.Class != nil {
				subs++
			}
		}
		if subs != tc.subs || len(m.Pages) != tc.pages {
			t.Errorf("%s: %d sub-steps on %d pages, want %d on %d", tc.name, subs, len(m.Pages), tc.subs, tc.pages)
		}
	}
}

// TestSuffix: a bound on what follows the middle of a step does not count the step.
func TestSuffix(t *testing.T) {
	p := twoPlanes(3, plans.Simplex)
	p.Steps = []plans.Step{{Bytes: 1, To: circuit.Shift(3, 1)}, {Bytes: 1, Flows: plantest.AllToAll(3)},
		{Bytes: 1, To: circuit.Shift(3, 2)}}
	m, err := Compile(p)
	require.NoError(t, err)
	m.Bound.Suffix = []float64{30, 20, 10, 0}
	got := m.Suffix()
	want := []float64{30, 20, 10, 10, 0}
	for i := range want {
		if len(got) != len(want) || got[i] != want[i] {
			t.Fatalf("suffixes %v, want %v", got, want)
		}
	}
}
