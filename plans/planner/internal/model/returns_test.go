package model

import (
	"testing"

	"lightpath/internal/require"
	"lightpath/plans"
	"lightpath/plans/circuit"
)

// TestReturns: both planes of an interleaved pair serve a pattern in which no rank sends and receives, unless the
// circuits back cost more than they save. A step takes 8 us on one plane.
func TestReturns(t *testing.T) {
	broadcast := []circuit.Permutation{{2, -1, -1, -1}, {1, -1, 3, -1}}
	chain := []circuit.Permutation{{1, -1, -1, -1}, {-1, 2, -1, -1}} // a plane holds both, but not with circuits back
	ring := []circuit.Permutation{{1, 2, 3, 0}, {3, 0, 1, 2}}
	for name, tc := range map[string]struct {
		steps    []circuit.Permutation
		initial  []circuit.Permutation
		reconfig float64
		perPort  float64
		planes   int // of the pair that serve the first step
	}{
		"broadcast":                           {broadcast, nil, 100, 0, 2},
		"held from the start":                 {broadcast[1:], ring, 5, 0, 1},
		"held, but a switch takes less":       {broadcast[1:], ring, 3, 0, 2},
		"other circuits at the start":         {broadcast[:1], ring, 100, 0, 2},
		"circuits at the start cost nothing":  {broadcast[:1], nil, 0, 5, 2},
		"each circuit costs little":           {broadcast[:1], ring, 0, 3, 2},
		"each circuit costs much":             {broadcast[1:], ring, 0, 3, 1},
		"steps that share circuits":           {chain, nil, 9, 0, 1},
		"they do, but a switch takes less":    {chain, nil, 7, 0, 2},
		"a rank that both sends and receives": {ring, nil, 100, 0, 1},
	} {
		p := twoPlanes(4, plans.Interleaved)
		p.Initial, p.ReconfigUS, p.ReconfigPerPort = tc.initial, tc.reconfig, tc.perPort
		for _, to := range tc.steps {
			p.Steps = append(p.Steps, plans.Step{Bytes: 1000, To: to})
		}
		m, err := Compile(p)
		require.NoError(t, err)
		st := &m.Steps[0]
		if got := Servers(m.Pages[st.Page], st.Pattern); got != tc.planes {
			t.Errorf("%s: %d planes serve step 0, want %d", name, got, tc.planes)
		}
	}
}
