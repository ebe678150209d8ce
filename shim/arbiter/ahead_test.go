package arbiter

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"lightpath/collectives/datatype"
	"lightpath/ocsctl"
	"lightpath/shim/arbiter/sequence"
	"lightpath/shim/calls"
	"lightpath/shim/control"
	"lightpath/shim/errdefs"
	"lightpath/shim/ticket"
)

var broadcast = calls.Shape{Kind: calls.Broadcast, Type: datatype.Float32, Count: 5}

const found = "iteration of 1 operations found: tickets go out ahead"

// wants returns the request of a rank for another shape.
func wants(rank int, seq uint64, s calls.Shape) Event {
	return Event{Kind: Want, Rank: rank, Seq: seq, Shape: s}
}

func recalled(rank int, seq uint64, inUse bool) Event {
	return Event{Kind: Recalled, Rank: rank, Seq: seq, OK: inUse}
}

// repeating returns a machine of two ranks that hold two planes. The ticket of operation 3 has gone out ahead, after
// two equal operations.
func repeating(t *testing.T, ports int) *rig {
	t.Helper()
	r := newRig(t, 2, ports, 2)
	cfg := r.m.cfg
	cfg.Repeats = 2
	r.m = New(cfg, r, r)
	r.held(0b11)
	r.step(want(0, 2))
	r.step(want(1, 2), "stop 0", "ticket 2 to -1: planes 11")
	r.step(r.done(0, 2))
	r.step(r.done(1, 2), found, "ticket 3 to -1: planes 11 ahead", "set 0")
	return r
}

// play makes the steps of events, and checks the actions of each.
func (r *rig) play(events []Event, want [][]string) {
	for i, e := range events {
		if e.Kind == Done {
			e = r.done(e.Rank, e.Seq)
		}
		r.step(e, want[i]...)
	}
}

// TestAhead checks a loop without requests: each end of an operation sends the next ticket.
func TestAhead(t *testing.T) {
	r := repeating(t, 2)
	for seq := uint64(3); seq < 9; seq++ {
		r.now = r.now.Add(time.Second) // planes are kept as long as no other job asks
		sig, ahead := ticket.IsAhead(r.last[1+boolInt(seq == 3)-1].Body)
		if !ahead || sig != allReduce.Signature() {
			t.Fatalf("the ticket of operation %d: signature %#x, %t", seq, sig, ahead)
		}
		r.step(want(0, seq)) // it asked before it had the ticket
		r.step(r.done(1, seq), "stop 0")
		r.step(want(1, seq+1)) // ahead of the other rank
		r.step(r.done(0, seq), fmt.Sprintf("ticket %d to -1: planes 11 ahead", seq+1), "set 0")
	}
	if hits, misses := r.m.Predictions(); hits != 6 || misses != 0 {
		t.Errorf("%d hits, %d misses", hits, misses)
	}
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// TestMisprediction checks what follows if ranks ask for something else than the ticket that went out ahead.
func TestMisprediction(t *testing.T) {
	for name, k := range map[string]struct {
		events []Event
		want   [][]string
	}{
		"all ranks call something else": {
			[]Event{recalled(0, 3, false), wants(0, 3, broadcast), recalled(0, 3, false), wants(1, 3, broadcast),
				recalled(1, 3, false)},
			[][]string{{"stop 0", "recall 3"}, {}, {}, {}, {"stop 0", "ticket 3 to -1: planes 11"}},
		},
		"one after the other": {
			[]Event{recalled(0, 3, false), wants(0, 3, broadcast), recalled(1, 3, false), wants(1, 3, broadcast)},
			[][]string{{"stop 0", "recall 3"}, {}, {"set 0"}, {"stop 0", "ticket 3 to -1: planes 11"}},
		},
		"one rank uses it": {
			[]Event{recalled(0, 3, false), wants(0, 3, broadcast), recalled(1, 3, true)},
			[][]string{{"stop 0", "recall 3"}, {}, {mismatch}},
		},
		"one rank has ended it": {
			[]Event{{Kind: Done, Rank: 1, Seq: 3}, recalled(0, 3, false), wants(0, 3, broadcast)},
			[][]string{{"stop 0"}, {"stop 0", "recall 3"}, {mismatch}},
		},
		"one rank has not seen it in time": { // its want came before the recall, and its answer is that it is unused
			[]Event{wants(0, 3, allReduce), recalled(0, 3, false), recalled(1, 3, true), {Kind: Done, Rank: 1, Seq: 3},
				{Kind: Done, Rank: 0, Seq: 3}},
			[][]string{{}, {"stop 0", "recall 3"}, {"ticket 3 to 0: planes 11"}, {},
				{"ticket 4 to -1: planes 11 ahead", "set 0"}},
		},
		"one rank comes late": {
			[]Event{recalled(0, 3, false), recalled(1, 3, true), wants(0, 3, allReduce)},
			[][]string{{"stop 0", "recall 3"}, {}, {"ticket 3 to 0: planes 11"}},
		},
		"a group of sends and receives of one rank": {
			[]Event{recalled(0, 3, false), row(0, 2, 1), recalled(1, 3, true), row(0, 2, 2)},
			[][]string{{"stop 0", "recall 3"}, {"set 1"}, {"stop 1", "ticket 8589934593 to 0: packet"},
				{"ticket 8589934594 to 0: packet"}},
		},
		"a round of all ranks": {
			[]Event{recalled(0, 3, false), row(0, 2, 1), row(1, 2, 1), recalled(1, 3, false)},
			[][]string{{"stop 0", "recall 3"}, {"set 1"}, {"stop 1"}, {"stop 0", "ticket 8589934593 to -1: planes 11"}},
		},
		"late answers": {
			[]Event{recalled(0, 2, true), recalled(1, 1, false), {Kind: Done, Rank: 1, Seq: 3}, {Kind: Done, Rank: 0, Seq: 3},
				recalled(0, 3, true)},
			[][]string{{}, {}, {"stop 0"}, {"ticket 4 to -1: planes 11 ahead", "set 0"}, {}},
		},
		"a rank leaves": {
			[]Event{{Kind: Left, Rank: 1}, recalled(0, 3, false), wants(0, 3, allReduce)},
			[][]string{{"stop 0", "recall 3"}, {"set 0"}, {}},
		},
		"a rank leaves after the last operation": {
			[]Event{{Kind: Done, Rank: 1, Seq: 3}, {Kind: Left, Rank: 1}, {Kind: Done, Rank: 0, Seq: 3}},
			[][]string{{"stop 0"}, {"stop 0", "recall 3"}, {"set 0"}},
		},
	} {
		t.Run(name, func(t *testing.T) { repeating(t, 2).play(k.events, k.want) })
	}
}

const mismatch = "fail: shim: operation 3: rank 0 called Broadcast(count 5, type float, root 0), rank 1 called " +
	"AllReduce(count 10, type float, op sum): ranks made different calls"

// row returns a post of one of two ranks, which exchange messages.
func row(rank int, collectives uint64, n uint32) Event {
	e := message(rank, uint64(n), 1e9)
	e.Seq = RoundNumber(collectives, n)
	return e
}

// TestAheadPlanes checks when held planes are given back while a ticket is out.
func TestAheadPlanes(t *testing.T) {
	another := Event{Kind: Wanted, Planes: 0b10}
	idle := Event{Kind: Expired, Timer: IdleTimer}
	for name, k := range map[string]struct {
		events []Event
		want   [][]string
	}{
		"another job asks in the gap": {
			[]Event{another, idle, recalled(0, 3, false), recalled(1, 3, false)},
			[][]string{{"set 0"}, {"stop 0", "recall 3"}, {}, {"release 11"}},
		},
		"another job asks, and the operation has begun": {
			[]Event{another, idle, recalled(0, 3, true), recalled(1, 3, false), want(1, 3), {Kind: Done, Rank: 0, Seq: 3},
				{Kind: Done, Rank: 1, Seq: 3}, idle},
			[][]string{{"set 0"}, {"stop 0", "recall 3"}, {}, {}, {"ticket 3 to 1: planes 11"}, {}, {"set 0"}, {"release 11"}},
		},
		"another job asks during the operation": {
			[]Event{{Kind: Done, Rank: 0, Seq: 3}, another, {Kind: Done, Rank: 1, Seq: 3}, idle},
			[][]string{{"stop 0"}, {}, {"set 0"}, {"release 11"}},
		},
		"others want other planes": {[]Event{{Kind: Wanted, Planes: 0b100}}, [][]string{{}}},
		"the operation does not come": {
			[]Event{idle, recalled(1, 3, false), recalled(0, 3, false), idle},
			[][]string{{"stop 0", "recall 3"}, {}, {"set 0"}, {"release 11"}},
		},
	} {
		t.Run(name, func(t *testing.T) { repeating(t, 2).play(k.events, k.want) })
	}
	r := repeating(t, 2)
	r.down[1] = ocsctl.ErrPlaneDown // in the gap: ranks do not use the ticket
	r.step(recalled(0, 3, false), "stop 0", "recall 3")
	r.step(want(0, 3))
	r.step(want(1, 3))
	r.step(recalled(1, 3, false), "stop 0",
		"plane p1 is out of service ("+ocsctl.ErrPlaneDown.Error()+"); going on with 1 of 2 planes", "release 10",
		"ticket 3 to -1: planes 1")
	r.step(r.done(0, 3))
	r.step(r.done(1, 3), "set 0") // no ticket goes out ahead on some of the planes
}

// TestWantedEarly checks that the news that others want planes counts also if it comes before the grant.
func TestWantedEarly(t *testing.T) {
	r := repeating(t, 2)
	r.step(r.done(0, 3), "stop 0")
	r.step(Event{Kind: Wanted, Planes: 0b11})
	r.step(r.done(1, 3), "set 0")
	r.step(Event{Kind: Expired, Timer: IdleTimer}, "release 11")
	r.step(want(0, 4))
	r.step(want(1, 4), "stop 0", "acquire 11", "set 0")
	r.step(Event{Kind: Wanted, Planes: 0b11})
	r.step(Event{Kind: Granted, Planes: 0b11}, "stop 0", "ticket 4 to -1: planes 11 maps")
	r.step(r.done(0, 4))
	r.step(r.done(1, 4), "set 0")
}

// TestKeep checks that a repeating communicator keeps planes beyond MaxHold only while no other job waits for them.
func TestKeep(t *testing.T) {
	for _, wanted := range []bool{false, true} {
		r := repeating(t, 2)
		r.step(recalled(0, 3, false), "stop 0", "recall 3")
		r.step(recalled(1, 3, false), "set 0")
		r.now = r.now.Add(MaxHold + 1)
		next := []string{"stop 0", "ticket 3 to -1: planes 11"}
		if wanted {
			r.step(Event{Kind: Wanted, Planes: 1})
			next = []string{"stop 0", "release 11", "acquire 11", "set 0"}
		}
		r.step(want(0, 3))
		r.step(want(1, 3), next...)
	}
}

// TestNoTicketTwice checks that no second ticket ahead has the number of one that was recalled: a late answer must not
// be taken for one about the second.
func TestNoTicketTwice(t *testing.T) {
	r := repeating(t, 2)
	r.step(recalled(0, 3, false), "stop 0", "recall 3")
	r.step(row(0, 2, 1), "set 1")
	r.step(row(1, 2, 1), "stop 1")
	r.step(recalled(1, 3, false), "stop 0", "ticket 8589934593 to -1: planes 11")
	r.step(r.done(0, 2<<32|1))
	r.step(r.done(1, 2<<32|1),
		"iteration: grouped sends and receives came instead of "+allReduce.String()+"; ranks ask for tickets again", "set 0")
	it := &r.m.iteration // predict operation 3 once more
	key, o := it.operationOf(&work{seq: it.calls + 1, shape: allReduce})
	it.known[key], it.learner = o, sequence.New(2)
	it.learner.Add(key, -1)
	it.learner.Add(key, -1)
	for again, want := range []bool{false, true} {
		if ahead, err := r.m.issueAhead(); ahead != want || err != nil {
			t.Error(ahead, err)
		}
		it.calls += uint64(1 - again)
	}
}

// TestAheadMistakes checks the errors of wrong messages while a ticket is out.
func TestAheadMistakes(t *testing.T) {
	for name, k := range map[string]struct {
		events []Event
		is     error
		says   string
	}{
		"ranks ask for different calls": {[]Event{wants(0, 3, broadcast), want(1, 3)}, errdefs.ErrMismatch, "rank 1 called"},
		"the end of another operation":  {[]Event{{Kind: Done, Rank: 0, Seq: 4}}, control.ErrMessage, "not under way"},
	} {
		t.Run(name, func(t *testing.T) {
			r := repeating(t, 2)
			var last []Action
			for i := range k.events {
				e := k.events[i]
				if e.Kind == Done {
					e = r.done(e.Rank, e.Seq)
				}
				last = r.m.Step(r.now, &e)
			}
			if n := len(last); n == 0 || last[n-1].Kind != Fail || !errors.Is(last[n-1].Err, k.is) ||
				!strings.Contains(last[n-1].Err.Error(), k.says) {
				t.Errorf("actions %+v", last)
			}
		})
	}
}

// TestPlanesMayHaveMoved checks that no ticket goes out ahead while a plane is out of service.
func TestPlanesMayHaveMoved(t *testing.T) {
	r := repeating(t, 3)
	r.step(r.done(0, 3), "stop 0")
	r.down[0] = ocsctl.ErrPlaneDown
	r.step(r.done(1, 3), "set 0")
}

// TestShared checks that no ticket goes out ahead while a rank has other communicators on the planes.
func TestShared(t *testing.T) {
	r := repeating(t, 2)
	shared := r.done(0, 3)
	shared.Standing.Flags |= ticket.Elsewhere
	r.step(shared, "stop 0")
	r.step(r.done(1, 3), "set 0")
	r.step(want(0, 4))
	r.step(want(1, 4), "stop 0", "ticket 4 to -1: planes 11")
	r.step(r.done(0, 4)) // it has none any more
	r.step(r.done(1, 4), "ticket 5 to -1: planes 11 ahead", "set 0")
}
