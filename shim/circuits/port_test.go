package circuits_test

import (
	"slices"
	"testing"

	"lightpath/plans/circuit"
	"lightpath/shim/calls"
	"lightpath/shim/circuits"
	"lightpath/shim/control"
)

// TestPort: communicators of a port learn whose operation comes next there, and decline tickets in hand when the rank
// waits for another one's.
func TestPort(t *testing.T) {
	p := fakePlanes{{ports: circuit.AllDark(6)}}
	port := circuits.NewPort(2)
	var log []string
	add := func(holder uint64, name string) *circuits.Machine {
		m := circuits.NewMachine(circuits.Config{Holder: holder, Places: circuit.Place([]int{0, 1}, 6), Planes: 1, Port: port,
			Declined:  func(uint64) { log = append(log, name+" declines") },
			Contested: func() { log = append(log, name+" waits") }}, p)
		m.OnNext(func() { log = append(log, name+" is next") })
		return m
	}
	check := func(what string, want ...string) {
		t.Helper()
		if !slices.Equal(log, want) {
			t.Errorf("%s: %q, want %q", what, log, want)
		}
		log = nil
	}
	a, b := add(1, "a"), add(2, "b")
	if a.Ended(); a.NextUser() != circuits.Unknown {
		t.Errorf("turn %d after one operation", a.NextUser())
	}
	if a.Ended(); a.NextUser() != circuits.Alone || b.NextUser() != circuits.Theirs {
		t.Errorf("turns %d, %d after two operations of one communicator", a.NextUser(), b.NextUser())
	}
	check("alone")
	for range 3 {
		b.Ended()
		a.Ended()
	}
	if a.NextUser() != circuits.Theirs || b.NextUser() != circuits.Ours {
		t.Errorf("turns %d, %d", a.NextUser(), b.NextUser())
	}
	log = nil
	b.Ended()
	check("b has ended", "a is next")

	s := &calls.Shape{Count: 5}
	body := aheadAt(0, circuit.AllDark(2), s)
	op := &circuits.Operation{Kind: control.MsgWant, Seq: 3, Shape: s}
	if wake, declined := a.Offer(3, s.Signature(), body); wake || declined {
		t.Error(wake, declined)
	}
	if g, declined, _, err := b.Begin(start, op); g != nil || declined || err != nil {
		t.Error(g, declined, err)
	}
	check("b asks", "a declines", "b waits")
	if _, declined := a.Offer(4, s.Signature(), body); !declined {
		t.Error("a ticket is taken while the rank waits elsewhere")
	}
	check("offered while b waits", "b waits")
	if wake, declined := b.Offer(3, s.Signature(), body); !wake || declined {
		t.Error(wake, declined)
	}
}
