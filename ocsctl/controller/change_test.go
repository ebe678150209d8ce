package controller

import (
	"errors"
	"testing"
	"time"

	"lightpath/internal/require"
	"lightpath/ocsctl"
	"lightpath/plans/circuit"
)

// change has an operator change planes together.
func (r *testRig) change(c Change) *error {
	r.t.Helper()
	require.NoError(r.t, r.core.checkChange(&c))
	return r.ask(func(m *machine, done func(error), now int64) { m.change(&c, "ann", done, now) })
}

func (r *testRig) confirm(plane int) *error {
	return r.ask(func(m *machine, done func(error), now int64) { m.confirmTrial(plane, "ann", done, now) })
}

// wantMaps compares the maps of planes that are in service.
func (r *testRig) wantMaps(all ...circuit.Permutation) {
	r.t.Helper()
	for plane, m := range all {
		if p := r.plane(plane); !p.Map.Equal(m) || p.State != Resident {
			r.t.Errorf("plane %d: %v %v %s, want %v", plane, p.State, p.Map, p.Reason, m)
		}
	}
}

var one, two, three = circuit.Shift(4, 1), circuit.Shift(4, 2), circuit.Shift(4, 3)

func both(target circuit.Permutation) []PlaneChange {
	return []PlaneChange{{Plane: 0, Target: target}, {Plane: 1, Target: target}}
}

func TestChangeIsOne(t *testing.T) {
	r := newTestRig(t, 4, 2, nil)
	answer := r.change(Change{Planes: both(two)})
	r.pass(time.Second)
	require.NoError(t, *answer)
	r.wantMaps(two, two)

	// One of the planes is in use: none moves, also not in a dry run.
	r.hold(2)
	moves := len(r.dev.moves)
	for _, dry := range []bool{true, false} {
		want(t, "in use", *r.change(Change{Planes: both(three), DryRun: dry}), ErrHeld, "plane p1")
	}
	r.release(2)
	// A dry run that nothing refuses.
	require.NoError(t, *r.change(Change{Planes: both(three), DryRun: true}))
	// Compare and set.
	c := Change{Planes: both(three)}
	c.Planes[1].IfCurrent = one
	want(t, "another map", *r.change(c), ErrNotCurrent, "plane p1", "port 0 leads to 2, want 1")
	if len(r.dev.moves) != moves {
		t.Fatalf("moves: %v", r.dev.moves[moves:])
	}
	c.Planes[1].IfCurrent = two
	answer = r.change(c)
	r.pass(time.Second)
	require.NoError(t, *answer)

	// One plane fails: the other one is as before.
	r.dev.wrong[1] = two
	answer = r.change(Change{Planes: both(one), ConfirmWithin: time.Minute})
	r.pass(time.Second)
	want(t, "failed", *answer, ErrUndone, "plane p1")
	r.wantMaps(three)
	if p := r.plane(1); p.State != Down || r.plane(0).Trial != nil {
		t.Errorf("%+v %+v", p, r.plane(0).Trial)
	}

	// All fail: there is nothing to undo, and one line says so.
	r.dev.wrong[0], r.dev.wrong[1] = two, two
	answer = r.change(Change{Planes: both(one)})
	r.pass(time.Second)
	want(t, "all failed", *answer, ocsctl.ErrReconfFailed, "plane p0", "; controller: plane p1")
	if errors.Is(*answer, ErrUndone) {
		t.Error(*answer)
	}
}

func TestChangeIsUndoneUnlessConfirmed(t *testing.T) {
	r := newTestRig(t, 4, 2, nil)
	try := func() {
		t.Helper()
		answer := r.change(Change{Planes: both(two), ConfirmWithin: time.Minute})
		r.pass(time.Second)
		require.NoError(t, *answer)
		r.wantMaps(two, two)
		if r.plane(0).Trial == nil || r.plane(1).Trial == nil {
			t.Fatal("nothing is to be confirmed")
		}
	}
	// Confirmed: all planes of the change, by one of them.
	try()
	require.NoError(t, *r.confirm(1))
	r.pass(2 * time.Minute)
	r.wantMaps(two, two)
	want(t, "twice", *r.confirm(0), ErrNoTrial)

	// Not confirmed. A plane in use is undone when it is free.
	answer := r.change(Change{Planes: both(one)})
	r.pass(time.Second)
	require.NoError(t, *answer)
	try()
	require.NoError(t, *r.disable(1)) // which is no confirmation
	r.hold(1)
	r.pass(2 * time.Minute)
	if p := r.plane(1); !r.plane(0).Map.Equal(two) || !p.Map.Equal(one) || p.State != Down {
		t.Errorf("%v, %+v", r.plane(0).Map, p)
	}
	r.release(1)
	r.pass(2 * time.Second)
	require.NoError(t, *r.enable(1))
	r.wantMaps(one, one)

	// Ranks have moved one plane since: it stays theirs. An operator has set the other one: it stays, too.
	try()
	r.hold(1)
	r.postAll(0, r.plane(0).Epoch, three)
	r.pass(time.Second)
	r.release(1)
	moved := r.set(1, three)
	r.pass(2 * time.Minute)
	require.NoError(t, *moved)
	r.wantMaps(three, three)
}

// TestChangeIsUndoneLater: a change may be what cuts the switch off, or the journal. Nothing forgets to undo it.
func TestChangeIsUndoneLater(t *testing.T) {
	var j *testJournal
	r := newTestRig(t, 4, 1, journaled(&j))
	pass := func(d time.Duration) {
		for range 8 {
			r.pass(d / 8)
			j.step()
		}
	}
	answer := r.change(Change{Planes: []PlaneChange{{Target: two}}, ConfirmWithin: time.Minute})
	pass(16 * time.Second)
	require.NoError(t, *answer)
	at := r.dev.maps[0]
	r.dev.maps[0] = circuit.Permutation{0} // it cannot be read
	pass(2 * time.Minute)
	if p := r.plane(0); p.Trial == nil {
		t.Fatalf("%+v", p)
	}
	r.dev.maps[0], j.err = at, ErrJournal // once
	pass(time.Minute)
	if p := r.plane(0); !p.Map.Equal(one) || p.Trial != nil || p.Failures != 1 {
		t.Errorf("%+v", p)
	}
}

// The next controller undoes a change whose time is over.
func TestChangeIsUndoneAfterATakeover(t *testing.T) {
	trial := &Trial{Planes: []int{0}, Until: time.Unix(0, 1e9).Add(time.Minute), Before: one, After: two, Who: "ann"}
	r := newTestRig(t, 4, 1, func(r *testRig, c *Config) {
		r.dev.maps[0] = two
		c.Recovered = []Recovered{{Epoch: 5, Map: two, Trial: trial}}
	})
	r.pass(30 * time.Second)
	r.wantMaps(two)
	r.pass(40 * time.Second)
	r.wantMaps(one)
}

// TestChangeIsUndoneOnceSettled: the device of a controller that takes over still moves when the time of a change is
// over. Ranks have not moved the plane: its map is only not known yet.
func TestChangeIsUndoneOnceSettled(t *testing.T) {
	trial := &Trial{Planes: []int{0}, Until: time.Unix(0, 1e9).Add(time.Minute), Before: one, After: two, Who: "ann"}
	r := newTestRig(t, 4, 1, func(r *testRig, c *Config) {
		withTimed(r, c)
		r.dev.next[0], r.dev.due[0] = two, r.now+int64(2*time.Minute)
		c.Recovered = []Recovered{{Epoch: 5, Map: two, Trial: trial}}
	})
	r.pass(90 * time.Second)
	if r.plane(0).Trial == nil {
		t.Fatal("the change is forgotten")
	}
	for range 2 { // the device has settled, before and after the undo
		r.pass(time.Minute)
		r.timed.news(0)
	}
	r.wantMaps(one)
}
