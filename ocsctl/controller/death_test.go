package controller

import (
	"testing"
	"time"

	"lightpath/internal/require"
	"lightpath/ocsctl"
	"lightpath/plans/circuit"
)

// TestDeadRank: a move that needs the port of a rank that has died is refused to all ports of its holder, whether the
// rank had posted or not. The plane stays in service. A rank that has detached itself is not awaited.
func TestDeadRank(t *testing.T) {
	target := circuit.Shift(3, 2) // all ports change
	for name, die := range map[string]func(r *testRig){
		"before the posts": func(r *testRig) {
			r.s[2].Detach(false)
			r.post(0, 0, 0, target)
			r.post(1, 0, 0, target)
		},
		"after its post": func(r *testRig) {
			r.post(2, 0, 0, target)
			r.post(0, 0, 0, target)
			r.s[2].Detach(false)
		},
		"awaited": func(r *testRig) {
			r.post(0, 0, 0, target)
			r.post(1, 0, 0, target)
			r.s[2].Detach(false)
		},
		"with another one": func(r *testRig) {
			r.post(0, 0, 0, target)
			r.s[2].Detach(false)
			r.s[1].Detach(false)
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newTestRig(t, 3, 1, nil)
			r.hold(1)
			die(r)
			r.pass(time.Second)
			if len(r.dev.moves) > 0 || r.page.faults[0] != nil {
				t.Errorf("moved: %v, %v", r.dev.moves, r.page.faults[0])
			}
			for p, s := range r.s {
				if r.core.machine.ports[p] != nil {
					want(t, "a dead rank", s.refused[0], ocsctl.ErrPortLost, "rank of port", "2")
				}
			}
		})
	}
	r := newTestRig(t, 3, 1, nil)
	r.hold(1)
	r.s[2].Detach(true)
	r.post(0, 0, 0, target)
	r.post(1, 0, 0, target)
	r.pass(time.Second)
	if r.page.faults[0] != nil || !r.page.maps[0].Equal(target) {
		t.Errorf("a rank has detached itself: %v, map %v", r.page.faults[0], r.page.maps[0])
	}
}

// TestDeadRankOfPort0: a rank that is not the holder dies at port 0.
func TestDeadRankOfPort0(t *testing.T) {
	target := circuit.Shift(3, 2)
	r := newTestRig(t, 3, 1, nil)
	if err := r.s[1].Acquire(1, ocsctl.Lease{Mask: 1, Holder: testHolder}); err != nil {
		t.Fatal(err)
	}
	r.post(1, 0, 0, target)
	r.s[0].Detach(false)
	r.pass(time.Second)
	for _, s := range r.s[1:] {
		s.isRefused(t, ocsctl.ErrPortLost, "rank of port 0")
	}
}

// TestPostAfterDetach: a post of a rank that has detached itself does not count.
func TestPostAfterDetach(t *testing.T) {
	target := circuit.Shift(3, 2)
	r := newTestRig(t, 3, 1, nil)
	r.hold(1)
	r.s[2].Detach(true)
	_ = r.s[2].Post(0, 0, testHolder, target) // it may have an error
	if p := r.plane(0); p.State != Resident || len(p.Posted) > 0 {
		t.Errorf("%+v", p)
	}
}

// TestDeadRankBesideOthers: a dead rank stops the moves of its holder alone.
func TestDeadRankBesideOthers(t *testing.T) {
	r := newTestRig(t, 4, 1, nil)
	require.NoError(t, r.s[0].Acquire(1, some(1, 20, 0, 1)))
	require.NoError(t, r.s[2].Acquire(1, some(1, 21, 2, 3)))
	r.s[1].Detach(false)
	swap := circuit.Permutation{1, 0, 3, 2}
	require.NoError(t, r.s[0].Post(0, 0, 20, swap))
	require.NoError(t, r.s[3].Post(0, 0, 21, swap))
	r.pass(time.Second)
	if a, b, c := r.s[0].refused, r.s[2].refused, r.s[3].refused; len(a) != 1 || len(b)+len(c) != 0 {
		t.Errorf("refused %v, %v, %v", a, b, c)
	}
	if m := r.plane(0).Map; m[3] != 2 {
		t.Errorf("map %v", m)
	}
}
