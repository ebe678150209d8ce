package driver

import (
	"strings"
	"testing"
	"time"

	"lightpath/plans/circuit"
)

// ledger is a machine of two ports, in a time of its own.
type ledger struct {
	*testing.T
	*Known
	now time.Time
}

const window = time.Second

func newLedger(t *testing.T, want Level) *ledger {
	return &ledger{t, NewKnown(2, Rule{Want: want, Window: window}), time.Unix(1000, 0)}
}

// look is a look at circuits 0>1 and 1>0 that receive so much; nil: there are no meters.
func (l *ledger) look(table circuit.Permutation, dbm ...float64) {
	l.now = l.now.Add(time.Millisecond)
	health := make([]Health, 4)
	for i := range health {
		health[i] = Health{State: "ENABLED"}
		if i >= 2 && dbm != nil {
			health[i].HasPower, health[i].PowerDBm = true, dbm[i-2]
		}
	}
	l.looked(table, health, l.now)
}

// made is a change whose verdicts are these levels, and where a level is Unverified a reason.
func (l *ledger) made(before, after circuit.Permutation, levels ...Level) {
	l.now = l.now.Add(time.Millisecond)
	var all []Circuit
	for r, level := range levels {
		v := Circuit{In: r, Intended: after[r], Observed: after[r], Verified: level}
		if level == Light {
			v.HasPower, v.PowerDBm = true, -3
		}
		if level == Unverified {
			v.Verified, v.Reason = ReadBack, "no light: -60.00 dBm, want -30.00"
			v.HasPower, v.PowerDBm = true, -60
		}
		all = append(all, v)
	}
	l.Changed(Change{Before: before, After: after}, all, l.now)
}

// is holds what is known of a circuit against a level and a part of a reason; "": it is good.
func (l *ledger) is(in int, level Level, reason string) {
	l.Helper()
	c := l.Circuit(in)
	if c.Verified != level || (c.Reason == "") != (reason == "") || !strings.Contains(c.Reason, reason) ||
		l.Good(in) != (reason == "") {
		l.Errorf("circuit %d: %+v, want %v, %q", in, c, level, reason)
	}
}

// TestKnownByLooks: a look judges every circuit that the switch has, to the level that it can give.
func TestKnownByLooks(t *testing.T) {
	swap, dark := circuit.Shift(2, 1), circuit.AllDark(2)
	l := newLedger(t, Light)
	l.look(swap, -3, -60) // ports 0 and 1 receive; rank 0 sends to port 1
	l.is(0, ReadBack, "no light: -60.00 dBm")
	l.is(1, Light, "")
	if l.WasLit(0) || !l.WasLit(1) {
		t.Error("light has been seen at port 0 only")
	}
	l.look(swap, -3, -4)
	l.is(0, Light, "")
	l.look(swap, -60, -4)
	l.is(1, ReadBack, "no light")
	l.look(swap)
	l.is(1, Status, "")
	if said := l.Level(0, 2); said != "status" {
		t.Error(said)
	}
	l.look(dark)
	if said := l.Level(0, 2); said != "read-back" || !l.Good(0) {
		t.Error(said)
	}
	for want, level := range map[Level]Level{ReadBack: ReadBack, Status: Status, Light: Light} {
		l := newLedger(t, want)
		l.look(swap, -3, -3)
		l.is(0, level, "")
	}
}

// TestKnownUnready checks that a circuit with a blocked port is not good, and that one look may fall into a motion.
func TestKnownUnready(t *testing.T) {
	swap := circuit.Shift(2, 1)
	l := newLedger(t, Light)
	look := func(unready bool) {
		health := make([]Health, 4)
		for i := range health {
			health[i] = Health{State: "TUNED", Unready: unready && i == 3}
		}
		l.looked(swap, health, l.now)
	}
	for _, c := range []struct {
		unready bool
		level   Level
		reason  string
	}{{false, Status, ""}, {true, Status, ""}, {false, Status, ""}, {true, Status, ""}, {true, ReadBack, "not up"},
		{true, ReadBack, "not up"}, {false, Status, ""}} {
		look(c.unready)
		l.is(0, c.level, c.reason)
		l.is(1, Status, "")
	}
	l.made(swap, swap, Unverified)
	look(true) // it was not good before
	l.is(0, ReadBack, "not up")
}

// TestKnownWindow: for the window of the meters after a change no look makes good what the change found bad,
// or takes old light for new.
func TestKnownWindow(t *testing.T) {
	swap, straight := circuit.Shift(2, 1), circuit.Shift(2, 0)
	l := newLedger(t, Light)
	l.look(straight, -3, -3)
	l.made(straight, swap, Light, Unverified)
	l.look(swap, -3, -3) // the meter still averages over the light of before
	l.is(0, Light, "")
	l.is(1, ReadBack, "no light")
	l.now = l.now.Add(window)
	l.look(swap, -60, -3)
	l.is(1, ReadBack, "no light")
	l.look(swap, -3, -3)
	l.is(1, Light, "")
	l.unknown(Change{Before: swap, After: straight}, l.now)
	l.look(straight, -3, -3)
	l.is(0, ReadBack, "unknown")
	l.now = l.now.Add(window)
	l.look(straight, -3, -3)
	l.is(0, Light, "")
	l.look(swap, -3, -3) // another writer
	l.is(0, Status, "")
	l.now = l.now.Add(window)
	l.look(swap, -3, -3)
	l.is(0, Light, "")
	if said := l.Level(0, 2); said != "light" {
		t.Error(said)
	}
}

// TestKnownTokens checks that a token counts more than light while every look confirms the circuit. A circuit that lost
// its token recovers by another token, or if it is made again, but not by light.
func TestKnownTokens(t *testing.T) {
	swap := circuit.Shift(2, 1)
	l := newLedger(t, Light)
	l.look(swap, -3, -3)
	l.Proved(0, true, l.now)
	l.is(0, Token, "")
	l.look(swap, -3, -3)
	l.is(0, Token, "")
	if said := l.Level(0, 2); said != "light, 1 of 2 by token" {
		t.Error(said)
	}
	l.look(swap, -3, -60)
	l.is(0, ReadBack, "no light")
	l.look(swap, -3, -3)
	l.is(0, Light, "")
	l.Proved(0, false, l.now)
	l.look(swap, -3, -3)
	l.is(0, Light, "no token")
	l.made(swap, swap, Light, Light)
	l.is(0, Light, "no token")
	l.Proved(0, true, l.now)
	l.is(0, Token, "")
	l.Proved(0, false, l.now)
	l.made(circuit.AllDark(2), swap, Light, Light)
	l.is(0, Light, "")
	l.lost(l.now)
	l.is(0, Unverified, "")
	l.look(swap, -3, -3)
	l.is(0, Light, "")
}
