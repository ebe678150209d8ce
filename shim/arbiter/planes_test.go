package arbiter

import (
	"testing"

	"lightpath/plans"
	"lightpath/plans/circuit"
	"lightpath/shim/planning"
)

// TestCircuitsOfRequest: a request names the circuits with which the next operation's plan begins, if the plan is known
// and the communicator does not have all ports.
func TestCircuitsOfRequest(t *testing.T) {
	swap := circuit.Permutation{1, 0}
	known := planning.Row{Best: &planning.Agreed{ID: planning.ID{1}, Plan: &plans.Plan{
		Initial: []circuit.Permutation{swap, swap}, Planes: [][]plans.Entry{nil, {{Kind: plans.Reconfigure}}},
	}}}
	for name, k := range map[string]struct {
		ports int
		row   planning.Row
		asks  string
	}{
		"known":        {4, known, "acquire 11 with [[1 0] [1 0]]"},
		"all ports":    {2, known, "acquire 11"},
		"without plan": {4, planning.Row{}, "acquire 11"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, 2, k.ports, 2)
			r.row = k.row
			r.step(want(0, 2))
			r.step(want(1, 2), "stop 0", k.asks, "set 0")
		})
	}
}
