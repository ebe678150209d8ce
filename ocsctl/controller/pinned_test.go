package controller

import (
	"testing"
	"time"

	"lightpath/ocsctl"
	"lightpath/plans/circuit"
)

// TestPinned: ranks cannot move a pinned plane, and it stays in service; an operator can move it.
func TestPinned(t *testing.T) {
	r := newTestRig(t, 3, 2, func(_ *testRig, c *Config) { c.Planes[0].PinnedBy = "job" })
	to := circuit.Shift(3, 2)
	r.hold(1 + 2)
	for plane := range 2 {
		r.postAll(plane, r.s[0].epochs[plane], to)
	}
	for p, s := range r.s {
		if len(s.refused) != 1 {
			t.Fatalf("port %d: refused %v", p, s.refused)
		}
		want(t, "post", s.refused[0], ocsctl.ErrPinned, "p0", "job")
	}
	r.release(1)
	r.pass(10 * time.Millisecond)
	if s := r.s[0]; !s.maps[0].Equal(circuit.Shift(3, 1)) || s.faults[0] != nil || !s.maps[1].Equal(to) {
		t.Errorf("maps %v, fault %v", s.maps, s.faults[0])
	}
	var failed error
	_ = r.core.do(func(now int64) {
		r.core.machine.set(0, &order{target: to, who: "ann", done: func(err error) { failed = err }}, now)
	})
	r.pass(10 * time.Millisecond)
	if failed != nil || !r.s[0].maps[0].Equal(to) {
		t.Errorf("set by an operator: %v, %v", failed, r.s[0].maps[0])
	}
}
