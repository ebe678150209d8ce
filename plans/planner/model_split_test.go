package planner

import (
	"math/rand/v2"
	"testing"

	"lightpath/internal/require"
	"lightpath/plans"
	"lightpath/plans/circuit"
)

// allToAll lists every flow of n ranks.
func allToAll(n int) (flows [][2]int) {
	for s := range n {
		for d := range n {
			if s != d {
				flows = append(flows, [2]int{s, d})
			}
		}
	}
	return flows
}

// checkSplit verifies that the sub-steps of a one-step problem are matchings that planes can
// hold and that each flow is in one of them, and returns them.
func checkSplit(t *testing.T, p *plans.Problem) []step {
	t.Helper()
	require.NoError(t, p.Validate())
	m, err := compile(p)
	require.NoError(t, err)
	for i := range m.asked {
		seen := make([]int, len(p.Steps[m.asked[i].index].Flows))
		for _, sub := range m.steps {
			if sub.index != m.asked[i].index || sub.class == nil {
				continue
			}
			want := circuit.AllDark(p.Ranks)
			for _, f := range sub.class {
				seen[f]++
				flow := p.Steps[sub.index].Flows[f]
				want[flow[0]] = flow[1]
			}
			if !want.Equal(sub.pattern) || sub.pattern.Validate(p.Ranks) != nil {
				t.Fatalf("class %v has the pattern %v", sub.class, sub.pattern)
			}
			if sub.page < 0 || servers(m.pages[sub.page].maps, sub.pattern) == 0 {
				t.Fatalf("class %v is not on its page", sub.class)
			}
			require.NoError(t, m.legal(m.pages[sub.page].maps))
		}
		if m.asked[i].pattern != nil {
			continue
		}
		for f, n := range seen {
			if n != 1 {
				t.Fatalf("flow %d of step %d is in %d classes", f, i, n)
			}
		}
	}
	return m.steps
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
		p := testFabric(1)
		p.Ranks, p.Planes = n, 2
		p.Circuits = []plans.CircuitKind{plans.Simplex, plans.Interleaved, plans.Duplex}[i%3]
		all := allToAll(n)
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
		p := testFabric(1)
		p.Ranks, p.Planes, p.Circuits = tc.n, 2, tc.kind
		p.Steps = []plans.Step{{Bytes: 1, Flows: allToAll(tc.n)}}
		if tc.other != nil {
			tc.other(p)
		}
		steps := checkSplit(t, p)
		m, _ := compile(p)
		subs := 0
		for _, st := range steps {
			if st.class != nil {
				subs++
			}
		}
		if subs != tc.subs || len(m.pages) != tc.pages {
			t.Errorf("%s: %d sub-steps on %d pages, want %d on %d", tc.name, subs, len(m.pages), tc.subs, tc.pages)
		}
	}
}

// TestSpread: a bound on what follows the middle of a step does not count the step.
func TestSpread(t *testing.T) {
	p := testFabric(1)
	p.Ranks = 3
	p.Steps = []plans.Step{{Bytes: 1, To: circuit.Shift(3, 1)}, {Bytes: 1, Flows: allToAll(3)},
		{Bytes: 1, To: circuit.Shift(3, 2)}}
	m, err := compile(p)
	require.NoError(t, err)
	got := m.spread(bounds{suffix: []float64{30, 20, 10, 0}}).suffix
	want := []float64{30, 20, 10, 10, 0}
	for i := range want {
		if len(got) != len(want) || got[i] != want[i] {
			t.Fatalf("suffixes %v, want %v", got, want)
		}
	}
}
