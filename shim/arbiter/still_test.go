package arbiter

import (
	"testing"

	"lightpath/plans"
	"lightpath/plans/circuit"
	"lightpath/shim/planning"
)

// TestShare checks that planes are shared after some operations that move no circuit, and that an operation which moves
// one gets them alone, where it moves circuits itself or others have moved them.
func TestShare(t *testing.T) {
	swap, dark := circuit.Permutation{1, 0}, circuit.AllDark(2)
	agreed := func(initial circuit.Permutation, entries ...plans.Entry) planning.Row {
		return planning.Row{Best: &planning.Agreed{ID: planning.ID{1}, Plan: &plans.Plan{
			Initial: []circuit.Permutation{initial, initial}, Planes: [][]plans.Entry{nil, entries},
		}}}
	}
	rests, moves := agreed(swap), agreed(swap, plans.Entry{Kind: plans.Reconfigure})
	for name, k := range map[string]struct {
		ports  int
		change func(r *rig)
		shares bool // the planes at first
		alone  bool // it needs them alone
	}{
		"rests":             {4, func(*rig) {}, true, false},
		"all ports":         {2, func(*rig) {}, false, false},
		"moves":             {4, func(r *rig) { r.row = moves }, true, true},
		"begins elsewhere":  {4, func(r *rig) { r.row = agreed(dark) }, true, true},
		"others have moved": {4, func(r *rig) { r.maps[1] = circuit.AllDark(4) }, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, 2, k.ports, 2)
			r.m.cfg.StillAfter = 2
			r.row = rests
			for j := range r.maps {
				r.maps[j] = append(swap.Clone(), circuit.AllDark(k.ports-2)...)
			}
			r.held(0b11)
			r.step(want(0, 2))
			r.step(want(1, 2), "stop 0", "ticket 2 to -1: planes 11")
			r.step(r.done(0, 2))
			r.step(r.done(1, 2), "set 0")
			r.step(idles, "release 11")
			k.change(r)
			how := "acquire 11"
			if k.shares {
				how = "share 11"
			}
			r.step(want(0, 3))
			r.step(want(1, 3), "stop 0", how, "set 0")
			if k.alone {
				r.step(granted, "stop 0", "release 11", "acquire 11", "set 0")
			}
			r.step(granted, "stop 0", "ticket 3 to -1: planes 11 maps")
			if r.m.Shares() != (k.shares && !k.alone) {
				t.Errorf("shared: %v", r.m.Shares())
			}
		})
	}
}
