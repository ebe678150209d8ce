package arbiter

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"lightpath/ocsctl"
	"lightpath/plans/circuit"
	"lightpath/shim/control"
	"lightpath/shim/ticket"
)

// leaves returns the end of an operation that leaves plane 0 at an epoch and a map.
func leaves(rank int, seq uint64, epoch uint32, m circuit.Permutation) Event {
	return Event{Kind: Done, Rank: rank, Seq: seq, Standing: &ticket.Ticket{Planes: []ticket.Plane{ticket.At(epoch, m)}}}
}

// TestStanding checks where operations leave a plane: the next operation begins there, and all ranks must agree.
func TestStanding(t *testing.T) {
	swap, same := circuit.Permutation{1, 0}, circuit.Permutation{0, 1}
	for name, k := range map[string]struct {
		second Event
		is     error
		says   string
	}{
		"ranks agree":                  {second: leaves(1, 1, 3, swap)},
		"another epoch":                {leaves(1, 1, 4, swap), ocsctl.ErrUnknownMap, "rank 1 leaves plane 0 at epoch 4"},
		"another map":                  {leaves(1, 1, 3, same), ocsctl.ErrUnknownMap, "another map"},
		"the end of another operation": {leaves(1, 2, 3, swap), control.ErrMessage, "not under way"},
		"the end of a past operation":  {leaves(1, 0, 3, swap), control.ErrMessage, "not under way"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, 2, 2, 1)
			r.step(want(0, 1))
			r.step(want(1, 1), "stop 0", "acquire 1", "set 0")
			r.step(Event{Kind: Granted, Planes: 1}, "stop 0", "ticket 1 to -1: planes 1 maps")
			r.step(leaves(0, 1, 3, swap))
			if k.is != nil {
				last := r.m.Step(r.now, &k.second)
				if len(last) != 1 || !errors.Is(last[0].Err, k.is) || !strings.Contains(last[0].Err.Error(), k.says) {
					t.Fatalf("actions %+v", last)
				}
				return
			}
			r.step(k.second, "set 0")
			r.step(Event{Kind: Expired, Timer: IdleTimer}, "set 0") // the plane is not there yet
			r.epochs[0] = 3
			r.step(want(0, 2))
			r.step(want(1, 2), "stop 0", "ticket 2 to -1: planes 1")
			var now ticket.Ticket
			if _, err := ticket.Decode(r.last[1].Body, &now); err != nil || now.Planes[0].Epoch != 3 ||
				now.Planes[0].Hash != swap.Digest() || !r.m.standing[0].Maps.Equal(swap) {
				t.Errorf("the next ticket: %+v, %v; maps %v", now.Planes[0], err, r.m.standing[0].Maps)
			}
		})
	}
	r := newRig(t, 2, 2, 1)
	r.held(1)
	again := r.done(1, 0) // no operation is under way, and none has number 0
	if last := r.m.Step(r.now, &again); len(last) != 1 || !errors.Is(last[0].Err, control.ErrMessage) {
		t.Errorf("an end without an operation: %+v", last)
	}
}

// TestOutOfService checks which faults of a plane only cost the plane.
func TestOutOfService(t *testing.T) {
	for _, k := range []struct {
		err  error
		only bool
	}{
		{ocsctl.ErrPlaneDown, true},
		{ocsctl.ErrPortLost, true},
		{ocsctl.ErrPinned, true},
		{ocsctl.ErrFramesLost, false},
		{fmt.Errorf("%w: %w", ocsctl.ErrPlaneDown, ocsctl.ErrFramesLost), false},
		{fmt.Errorf("%w: %w", ocsctl.ErrPlaneDown, ocsctl.ErrControlLost), false},
		{errors.New("something else"), false},
	} {
		if only := outOfService(k.err); only != k.only {
			t.Errorf("%v: %t", k.err, only)
		}
	}
}

// TestLateRowOfOpenRound checks that a post with a lower number than the open round's goes to packet planes.
func TestLateRowOfOpenRound(t *testing.T) {
	r := newRig(t, 3, 3, 1)
	post := func(rank int, seq uint64) Event { return Event{Kind: Row, Rank: rank, Seq: seq, Row: &ticket.Row{}} }
	r.step(post(0, 5), "set 1")
	r.step(post(1, 4), "ticket 4 to 1: packet")
	r.step(post(1, 5))
	r.step(post(2, 6), "stop 1", "ticket 5 to 0: packet", "ticket 5 to 1: packet", "set 1")
}

// TestRoundAndCollective checks that the end of a round does not touch the requests for a collective with its number.
func TestRoundAndCollective(t *testing.T) {
	r := newRig(t, 2, 2, 1)
	r.step(message(0, 1, 1e9), "set 1")
	r.step(message(1, 1, 1e9), "stop 1", "stop 0", "acquire 1", "set 0")
	r.step(Event{Kind: Granted, Planes: 1}, "stop 0", "ticket 1 to -1: planes 1 maps")
	r.step(r.done(0, 1))
	r.step(want(0, 1))
	r.step(r.done(1, 1), "set 0")
	r.step(want(1, 1), "stop 0", "ticket 1 to -1: planes 1")
}

// TestRoundWithoutPlanes checks that a round goes to packet planes if no plane is in service.
func TestRoundWithoutPlanes(t *testing.T) {
	down := ocsctl.ErrPlaneDown
	r := newRig(t, 2, 3, 1)
	r.step(message(0, 1, 1e9), "set 1")
	r.step(message(1, 1, 1e9), "stop 1", "stop 0", "acquire 1", "set 0")
	r.step(Event{Kind: Granted, Err: down},
		"stop 0",
		"plane p0 is out of service ("+down.Error()+"); going on with 0 of 1 planes",
		"no plane with circuits is in service; going on with packet planes",
		"stop 1", "ticket 1 to 0: packet", "ticket 1 to 1: packet")
}
