package arbiter

import (
	"testing"
	"time"

	"lightpath/internal/require"
	"lightpath/plans"
	"lightpath/plans/circuit"
	"lightpath/shim/circuits"
	"lightpath/shim/ticket"
)

// turns returns a machine as repeating does, at a port with other communicators. Its ranks are in operation 3, and turn
// is whose operation comes next at the port.
func turns(t *testing.T) (r *rig, turn *circuits.NextUser) {
	t.Helper()
	return turnsOf(t, 2)
}

// turnsOf is turns on planes of so many ports.
func turnsOf(t *testing.T, ports int) (r *rig, turn *circuits.NextUser) {
	t.Helper()
	r, turn = repeating(t, ports), new(circuits.NextUser)
	r.m.cfg.NextUser = func() circuits.NextUser { return *turn }
	return r, turn
}

var (
	comesNext = Event{Kind: Next}
	idles     = Event{Kind: Expired, Timer: IdleTimer}
	another   = Event{Kind: Wanted, Planes: 0b11}
	granted   = Event{Kind: Granted, Planes: 0b11}
)

// away ends operation 3, after which another communicator has its turn, and then this one is next.
func away(r *rig, turn *circuits.NextUser) {
	r.t.Helper()
	*turn = circuits.Theirs
	r.step(r.done(0, 3), "stop 0")
	r.step(r.done(1, 3), "release 11")
	*turn = circuits.Ours
	r.step(comesNext, "acquire 11")
}

// TestTurns: planes go back at once if another communicator comes next, and are asked for before ranks ask.
func TestTurns(t *testing.T) {
	r, turn := turns(t)
	away(r, turn)
	r.step(comesNext) // the request stands
	r.step(granted, "ticket 4 to -1: planes 11 maps ahead", "set 0")
	r.step(another, "set 0")
	if after := r.last[0].After; after != MaxHold {
		t.Errorf("planes that were asked for ahead are kept for %v", after)
	}
	r.step(idles, "stop 0", "recall 4")
	r.step(recalled(0, 4, false))
	r.step(recalled(1, 4, false), "release 11")
	r.step(comesNext) // no second ticket has its number
	r.step(want(0, 4))
	r.step(want(1, 4), "stop 0", "acquire 11", "set 0")
	if after := r.last[2].After; after != SharedWait {
		t.Errorf("the operation waits for %v", after)
	}
	r.step(Event{Kind: Contested}, "set 0")
	if after := r.last[0].After; after != MaxHold {
		t.Errorf("the operation waits for contested planes for %v", after)
	}
	r.step(granted, "stop 0", "ticket 4 to -1: planes 11 maps")
}

// TestHandOver: if another request waits, planes go back between two operations with a gap, and are asked for again.
func TestHandOver(t *testing.T) {
	r, turn := turns(t)
	*turn = circuits.Ours
	for seq := uint64(3); seq < 5; seq++ {
		_, cycle := r.m.iteration.learner.Next()
		cycle.Gaps[0] = time.Duration(seq-3) * time.Second
		r.step(r.done(0, seq), "stop 0")
		r.step(another)
		if seq == 3 { // the next operation follows at once
			r.step(r.done(1, seq), "ticket 4 to -1: planes 11 ahead", "set 0")
		} else {
			r.step(r.done(1, seq), "release 11", "acquire 11")
		}
	}
}

// TestPrepare: planes move to the first maps of the plan before ranks ask. A recalled ticket leaves planes there.
func TestPrepare(t *testing.T) {
	r, turn := turnsOf(t, 4)
	away(r, turn)
	r.maps[0] = circuit.Permutation{circuit.Dark, 3, 0, 2}
	swap := circuit.Permutation{1, 0}
	r.row.Best.Plan = &plans.Plan{Initial: []circuit.Permutation{swap, circuit.AllDark(2)}}
	r.step(granted, "prepare 0 epoch 0 to [1 0 -1 -1]", "ticket 4 to -1: planes 11 maps ahead", "set 0")
	var sent ticket.Ticket
	_, err := ticket.Decode(r.last[1].Body, &sent)
	require.NoError(t, err)
	if at := &sent.Planes[0]; at.Epoch != 1 || !at.Maps.Equal(swap) {
		t.Errorf("the ticket: %+v", sent)
	}
	r.step(idles, "stop 0", "recall 4")
	r.step(recalled(0, 4, false))
	r.step(recalled(1, 4, false), "set 0")
	r.step(idles, "set 0") // the plane is not there yet
	r.epochs[0], r.maps[0] = 1, swap
	r.step(want(0, 4))
	r.step(want(1, 4), "stop 0", "ticket 4 to -1: planes 11 maps") // no rank took the maps from the first ticket
}

// TestBackOff: after others have waited for long, since ranks began an operation at different times, tickets do not go
// out ahead for a while.
func TestBackOff(t *testing.T) {
	r, turn := turns(t)
	*turn = circuits.Ours
	r.step(another, "set 0")
	r.step(recalled(1, 3, false), "stop 0", "recall 3")
	r.step(recalled(0, 3, true))
	r.now = r.now.Add(SharedWait)
	r.step(want(1, 3), "ticket 3 to 1: planes 11")
	r.step(r.done(0, 3))
	r.m.wanted = false
	r.step(r.done(1, 3), "set 0")
	if r.m.ahead.skip != 1 {
		t.Errorf("%d more operations without a ticket ahead", r.m.ahead.skip)
	}
}
