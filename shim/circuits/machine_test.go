package circuits_test

import (
	"errors"
	"testing"
	"time"

	"lightpath/collectives/exec"
	"lightpath/ocsctl"
	"lightpath/plans/circuit"
	"lightpath/shim/calls"
	"lightpath/shim/circuits"
	"lightpath/shim/control"
	"lightpath/shim/errdefs"
	"lightpath/shim/ticket"
)

// fakePlanes are the states of planes that a test controls.
type fakePlanes []struct {
	epoch uint32
	ports circuit.Permutation
	err   error
}

func (f fakePlanes) State(plane int) (uint32, circuit.Permutation, error) {
	return f[plane].epoch, f[plane].ports, f[plane].err
}

const dark = circuit.Dark

// newMachine returns the machine of rank 1 of 3 at ports 4, 1 and 3 of a plane of 6 ports.
func newMachine(p fakePlanes) *circuits.Machine {
	return circuits.NewMachine(circuits.Config{Rank: 1, Holder: 7, Places: circuit.Place([]int{4, 1, 3}, 6),
		Planes: len(p), Timeout: 3 * time.Second}, p)
}

// start is a time of the tests' clock.
var start = time.Unix(1000, 0)

func ticketAt(epoch uint32, flags uint8, ranks circuit.Permutation) []byte {
	p := ticket.At(epoch, ranks)
	return ticket.Append(nil, &ticket.Ticket{Flags: flags, Use: 1, Planes: []ticket.Plane{p}})
}

// TestMachineOperation runs an operation of three moves in a loop: messages, maps of ports, and no allocation.
func TestMachineOperation(t *testing.T) {
	p := fakePlanes{{ports: circuit.Permutation{5, 3, dark, 4, 1, 0}}}
	m := newMachine(p)
	here, there := circuit.Permutation{1, 2, 0}, circuit.Permutation{dark, 0, 1}
	moves := circuits.ListedMaps{{here, there, here, there}}
	op := &circuits.Operation{Kind: control.MsgWant, Seq: 9, Shape: &calls.Shape{Count: 5}}
	run := func(body []byte, moves circuits.Movement) {
		t.Helper()
		want := m.Ask(start, op)
		if got, err := calls.DecodeShape(want.Body, 3); err != nil || got != *op.Shape || want.Seq != op.Seq {
			t.Fatalf("request %+v, %v", want, err)
		}
		if _, err := m.Take(start, body); err != nil {
			t.Fatal(err)
		}
		if settled, err := m.Settle(start); !settled || err != nil {
			t.Fatalf("settled %v, %v", settled, err)
		}
		for n := uint32(1); n <= moves.Switches(0); n++ {
			copy(p[0].ports, m.Ports(moves.Target(0, n)))
			p[0].epoch++
		}
		if done := m.Done(moves); done.Seq != op.Seq || len(done.Body) == 0 {
			t.Fatalf("done %+v", done)
		}
	}
	run(ticketAt(0, ticket.Maps, here), moves)
	if want := (circuit.Permutation{dark, 4, dark, 1, dark, dark}); !p[0].ports.Equal(want) || m.Standing()[0].Epoch != 3 {
		t.Errorf("ports %v at epoch %d, want %v at 3", p[0].ports, m.Standing()[0].Epoch, want)
	}
	// A loop: the planes return to where they were. The test rewinds their epoch, so that one ticket serves.
	var loop circuits.Movement = circuits.ListedMaps{{there, here, there}}
	stay, body := m.Standing()[0], ticketAt(3, 0, there)
	if n := testing.AllocsPerRun(100, func() {
		run(body, loop)
		p[0].epoch, m.Standing()[0] = stay.Epoch, stay
	}); n != 0 {
		t.Errorf("%v allocations in an operation", n)
	}
}

// TestSettle: planes that are not there yet, have moved on, hold another map or have failed.
func TestSettle(t *testing.T) {
	ports, ranks := circuit.Permutation{dark, 3, dark, 4, 1, dark}, circuit.Permutation{1, 2, 0}
	other, broken, unknown := circuit.AllDark(6), errors.New("broken"), ocsctl.ErrUnknownMap
	const second, late, maps = time.Second, 3*time.Second + 1, ticket.Maps
	for name, k := range map[string]struct {
		epoch uint32
		ports circuit.Permutation
		fault error
		flags uint8 // of the ticket
		after time.Duration
		ok    bool
		err   error
	}{
		"there":                    {epoch: 5, ports: ports, flags: maps, ok: true},
		"further on":               {epoch: 6, ports: other, flags: maps, ok: true},
		"not yet":                  {epoch: 4, ports: other, flags: maps, after: 3 * second},
		"too late":                 {epoch: 4, ports: other, flags: maps, after: late, err: errdefs.ErrTimeout},
		"another map":              {epoch: 5, ports: other, flags: maps, after: second + 1, err: unknown},
		"left elsewhere":           {epoch: 5, ports: ports, err: unknown},
		"failed, granted again":    {epoch: 5, ports: ports, fault: broken, flags: maps, after: second},
		"failed, not granted anew": {epoch: 5, ports: ports, fault: broken, flags: maps, after: second + 1, err: broken},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(fakePlanes{{k.epoch, k.ports, k.fault}})
			m.Ask(start, &circuits.Operation{Row: &ticket.Row{}})
			if _, err := m.Take(start, ticketAt(5, k.flags, ranks)); err != nil {
				t.Fatal(err)
			}
			if ok, err := m.Settle(start.Add(k.after)); ok != k.ok || !errors.Is(err, k.err) {
				t.Errorf("settled %v, %v; want %v, %v", ok, err, k.ok, k.err)
			}
		})
	}
	// A ticket for other ranks or planes is refused at once.
	m := newMachine(fakePlanes{{ports: ports}})
	for _, body := range [][]byte{nil, ticketAt(5, ticket.Maps, circuit.AllDark(4)),
		ticket.Append(nil, &ticket.Ticket{Flags: ticket.Packet, Planes: make([]ticket.Plane, 2)})} {
		if _, err := m.Take(start, body); !errors.Is(err, control.ErrMessage) {
			t.Errorf("ticket of %d bytes: %v", len(body), err)
		}
	}
}

// TestOverdue: a rank waits for its ticket until the time-out or the call's own deadline.
func TestOverdue(t *testing.T) {
	m := newMachine(fakePlanes{{}})
	for name, k := range map[string]struct {
		shape *calls.Shape // nil: a round
		own   time.Duration
		limit time.Duration
		err   error
	}{
		"collective":    {&calls.Shape{}, 0, 3 * time.Second, errdefs.ErrTimeout},
		"round":         {nil, 0, 3 * time.Second, errdefs.ErrTimeout},
		"deadline":      {&calls.Shape{}, time.Second, time.Second, exec.ErrDeadline},
		"late deadline": {&calls.Shape{}, time.Hour, 3 * time.Second, errdefs.ErrTimeout},
	} {
		op := circuits.Operation{Shape: k.shape, Row: &ticket.Row{}}
		if k.own > 0 {
			op.Deadline = start.Add(k.own)
		}
		m.Ask(start, &op)
		if err := m.Overdue(start.Add(k.limit-1), &op); err != nil {
			t.Errorf("%s: before the limit: %v", name, err)
		}
		if err := m.Overdue(start.Add(k.limit), &op); !errors.Is(err, k.err) {
			t.Errorf("%s: %v, want %v", name, err, k.err)
		}
	}
}

// TestMissed: a rank does not take moves of others for its own, neither at the beginning of an operation nor later.
func TestMissed(t *testing.T) {
	dim := circuit.AllDark(3)
	moves := circuits.ListedMaps{{dim, dim, dim}}
	for epoch, missed := range map[uint32]bool{7: false, 9: false, 10: true} {
		planes := fakePlanes{{epoch: 7, ports: circuit.AllDark(6)}}
		m := newMachine(planes)
		m.Ask(start, &circuits.Operation{Row: &ticket.Row{}})
		if _, err := m.Take(start, ticketAt(7, ticket.Maps, dim)); err != nil {
			t.Fatal(err)
		}
		if settled, err := m.Settle(start); !settled || err != nil {
			t.Fatal(settled, err)
		}
		planes[0].epoch = epoch
		if err := m.CheckMoves(moves); (err != nil) != missed {
			t.Errorf("epoch %d: %v", epoch, err)
		}
		planes[0].epoch = 7
		if err := m.CheckMoves(moves); err != nil {
			t.Error(err)
		}
		if err := m.CheckEpoch(0, epoch); (err != nil) != missed {
			t.Errorf("epoch %d, during the operation: %v", epoch, err)
		}
	}
}

// aheadAt returns an encoded ticket that goes out ahead of a call.
func aheadAt(epoch uint32, ranks circuit.Permutation, s *calls.Shape) []byte {
	p := ticket.At(epoch, ranks)
	return ticket.EncodeAhead(&ticket.Ticket{Use: 1, Planes: []ticket.Plane{p}}, s.Signature())
}

// predicted is a machine with the ticket of operation 9 in hand, and where its planes are.
func predicted(t testing.TB) (*circuits.Machine, fakePlanes, *circuits.Operation, []byte) {
	here := circuit.Permutation{1, 2, 0}
	p := fakePlanes{{ports: circuit.Permutation{dark, 3, dark, 4, 1, dark}, epoch: 5}}
	m := newMachine(p)
	m.Standing()[0] = ticket.At(5, here)
	op := &circuits.Operation{Kind: control.MsgWant, Seq: 9, Shape: &calls.Shape{Count: 5}}
	body := aheadAt(5, here, op.Shape)
	if wake, declined := m.Offer(9, op.Shape.Signature(), body); wake || declined {
		t.Fatal(wake, declined)
	}
	return m, p, op, body
}

// TestPredicted checks that a call whose ticket is there before it does not allocate.
func TestPredicted(t *testing.T) {
	m, _, op, body := predicted(t)
	var stay circuits.Movement = circuits.ListedMaps{nil}
	if n := testing.AllocsPerRun(100, func() {
		m.Offer(9, op.Shape.Signature(), body)
		g, declined, _, err := m.Begin(start, op)
		if g == nil || declined || err != nil || !g.CameAhead() || g.Seq != 9 || g.Use != 1 {
			t.Fatalf("%+v, declined %t, %v", g, declined, err)
		}
		if settled, err := m.Settle(start); !settled || err != nil {
			t.Fatal(settled, err)
		}
		m.Done(stay)
		if !m.Recall(9) {
			t.Fatal("a ticket that was used can be recalled")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestNotPredicted checks when a rank does not use the ticket in hand: it says so before it asks. A ticket is void
// then.
func TestNotPredicted(t *testing.T) {
	for name, k := range map[string]struct {
		change   func(m *circuits.Machine, p fakePlanes, op *circuits.Operation)
		declined bool
	}{
		"another call":   {func(_ *circuits.Machine, _ fakePlanes, op *circuits.Operation) { op.Shape.Count++ }, true},
		"another number": {func(_ *circuits.Machine, _ fakePlanes, op *circuits.Operation) { op.Seq++ }, true},
		"a round":        {func(_ *circuits.Machine, _ fakePlanes, op *circuits.Operation) { op.Shape = nil }, true},
		"a failed plane": {func(_ *circuits.Machine, p fakePlanes, _ *circuits.Operation) {
			p[0].err = errors.New("x")
		}, true},
		"another controller": {func(_ *circuits.Machine, p fakePlanes, _ *circuits.Operation) { p[0].epoch = 6 }, true},
		"left elsewhere": {func(m *circuits.Machine, _ fakePlanes, _ *circuits.Operation) {
			m.Standing()[0].Epoch = 4
		}, true},
		"recalled": {func(m *circuits.Machine, _ fakePlanes, _ *circuits.Operation) {
			if m.Recall(8) || m.Recall(9) {
				t.Error("a ticket in hand is in use")
			}
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			m, p, op, _ := predicted(t)
			k.change(m, p, op)
			g, declined, seq, err := m.Begin(start, op)
			if g != nil || declined != k.declined || declined && seq != 9 || err != nil {
				t.Errorf("%+v, declined %t %d, %v", g, declined, seq, err)
			}
			if m.Recall(9) {
				t.Error("the ticket is in use")
			}
			if g, declined, err := m.Claim(start); g != nil || declined || err != nil {
				t.Errorf("claim: %+v, %t, %v", g, declined, err)
			}
		})
	}
}

// TestOfferWhileWaiting checks a ticket that comes after the rank has asked.
func TestOfferWhileWaiting(t *testing.T) {
	here := circuit.Permutation{1, 2, 0}
	for name, k := range map[string]struct {
		seq            uint64
		count          uint64
		recall         bool
		wake, declined bool
		used           bool
	}{
		"for it":           {seq: 9, count: 5, wake: true, used: true},
		"recalled at once": {seq: 9, count: 5, recall: true, wake: true},
		"another call":     {seq: 9, count: 6, declined: true},
		"a later call":     {seq: 10, count: 5, declined: true},
	} {
		t.Run(name, func(t *testing.T) {
			m, _, op, _ := predicted(t)
			m.Recall(9)
			if g, declined, _, err := m.Begin(start, op); g != nil || declined || err != nil {
				t.Fatalf("%+v, %t, %v", g, declined, err)
			}
			s := calls.Shape{Count: k.count}
			if wake, declined := m.Offer(k.seq, s.Signature(), aheadAt(5, here, &s)); wake != k.wake || declined != k.declined {
				t.Fatalf("wake %t, declined %t", wake, declined)
			}
			if k.recall && m.Recall(k.seq) {
				t.Error("it is in use")
			}
			g, declined, err := m.Claim(start)
			if (g != nil) != k.used || declined || err != nil || m.Recall(k.seq) != k.used {
				t.Errorf("%+v, declined %t, %v", g, declined, err)
			}
		})
	}
}

func BenchmarkPredicted(b *testing.B) {
	m, _, op, body := predicted(b)
	var stay circuits.Movement = circuits.ListedMaps{nil}
	for b.Loop() {
		m.Offer(9, op.Shape.Signature(), body)
		_, _, _, _ = m.Begin(start, op)
		_, _ = m.Settle(start)
		m.Done(stay)
	}
}

// TestPlanesOfOthers: epochs of the port beyond the operation's are moves of others.
func TestPlanesOfOthers(t *testing.T) {
	swap := circuit.Permutation{2, dark, 0} // ranks 0 and 2, at ports 4 and 3
	planes := fakePlanes{{epoch: 7, ports: circuit.Permutation{dark, dark, dark, 4, 3, dark}}}
	m := newMachine(planes)
	take := func() {
		m.Ask(start, &circuits.Operation{Row: &ticket.Row{}})
		if _, err := m.Take(start, ticketAt(7, ticket.Maps, swap)); err != nil {
			t.Fatal(err)
		}
	}
	take()
	if settled, err := m.Settle(start); !settled || err != nil {
		t.Fatal(settled, err)
	}
	if err := m.CheckMoves(circuits.ListedMaps{{swap}}); err != nil {
		t.Error(err)
	}
	planes[0].epoch = 8
	if err := m.CheckMoves(circuits.ListedMaps{{swap}}); err == nil {
		t.Error("the move of another is taken for the operation's")
	}
	planes[0].epoch, planes[0].ports = 7, circuit.Permutation{2, dark, 0, 5, dark, 3}
	take()
	if settled, err := m.Settle(start.Add(2 * time.Second)); settled || err == nil {
		t.Errorf("another map at the ticket's epoch: %v, %v", settled, err)
	}
}
