package arbiter

import (
	"strings"
	"testing"

	"lightpath/plans"
	"lightpath/plans/circuit"
	"lightpath/shim/planning"
	"lightpath/shim/ticket"
)

// TestShare checks that planes are shared, with the circuits of the next operation, after some operations that could
// have shared them. An operation that moves circuits, or gets shared planes without its circuits, has them alone.
func TestShare(t *testing.T) {
	swap, dark := circuit.Permutation{1, 0}, circuit.AllDark(2)
	agreed := func(initial circuit.Permutation, entries ...plans.Entry) planning.Row {
		return planning.Row{Best: &planning.Agreed{ID: planning.ID{1}, Plan: &plans.Plan{
			Initial: []circuit.Permutation{initial, initial}, Planes: [][]plans.Entry{nil, entries},
		}}}
	}
	stays, moves := agreed(swap), agreed(swap, plans.Entry{Kind: plans.Reconfigure})
	for name, k := range map[string]struct {
		ports  int
		change func(r *rig) // before the request
		asks   string
		makes  circuit.Permutation // of ports, by the controller; nil: nothing
		alone  bool                // shared planes do not do
	}{
		"stays":     {4, func(*rig) {}, "share 11 with [[1 0] [1 0]]", nil, false},
		"all ports": {2, func(*rig) {}, "acquire 11", nil, false},
		"moves":     {4, func(r *rig) { r.row = moves }, "acquire 11", nil, false},
		"other maps": {4, func(r *rig) { r.row = agreed(dark) }, "share 11 with [[-1 -1] [-1 -1]]", circuit.AllDark(4),
			false},
		"not made":      {4, func(r *rig) { r.row = agreed(dark) }, "share 11 with [[-1 -1] [-1 -1]]", nil, true},
		"moved away":    {4, func(r *rig) { r.maps[1] = circuit.AllDark(4) }, "share 11 with [[1 0] [1 0]]", nil, true},
		"without plans": {4, func(r *rig) { r.row = planning.Row{} }, "acquire 11", nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, 2, k.ports, 2)
			r.m.cfg.ShareAfter = 2
			r.row = stays
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
			r.step(want(0, 3))
			r.step(want(1, 3), "stop 0", k.asks, "set 0")
			if name == "without plans" {
				return
			}
			for j := range r.maps {
				if k.makes != nil {
					r.maps[j] = k.makes
				}
			}
			shared := strings.HasPrefix(k.asks, "share")
			if k.alone {
				r.step(granted, "stop 0", "release 11", "acquire 11", "set 0")
				shared = false
			}
			how := "ticket 3 to -1: planes 11 maps"
			if shared {
				how += " shared"
			}
			r.step(granted, "stop 0", how)
			if r.m.Shares() != shared {
				t.Errorf("shared: %v", r.m.Shares())
			}
		})
	}
}

// TestShareAfterSetups: operations that find other maps count if the planes are fresh from a grant, and only then. So
// groups that take turns share planes.
func TestShareAfterSetups(t *testing.T) {
	swap := circuit.Permutation{1, 0}
	plan := &planning.Agreed{ID: planning.ID{1}, Plan: &plans.Plan{Initial: []circuit.Permutation{swap},
		Planes: make([][]plans.Entry, 1)}}
	r := newRig(t, 2, 4, 1)
	r.m.cfg.ShareAfter, r.row = 2, planning.Row{Best: plan}
	r.held(0b1)
	for range 2 {
		r.maps[0] = circuit.AllDark(4) // others have moved it
		r.m.share.fresh = true
		r.m.standing[0] = ticket.At(0, circuit.AllDark(2))
		if !r.m.permits(plan, 0b1) {
			t.Fatal("a plane that is not shared is refused")
		}
	}
	if l := r.m.lease(); !l.Shared {
		t.Errorf("after setups: %+v", l)
	}
	if r.m.permits(plan, 0b1); r.m.lease().Shared {
		t.Error("a move between two operations counts")
	}
}
