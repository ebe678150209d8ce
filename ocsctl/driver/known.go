package driver

import (
	"cmp"
	"fmt"
	"math"
	"time"

	"lightpath/plans/circuit"
)

// Rule holds the wanted level of verification.
type Rule struct {
	Want Level // as far as the switch can; Unverified stands for Light
	// Window is the longest averaging window of the power meters. For this time after a change, a reading of a changed
	// circuit's power may still be that of the earlier light, so it is ignored.
	Window time.Duration
}

// LightDBm is the received power below which a circuit counts as dark.
const LightDBm = -30.0

// fact is a switch's report on one circuit.
type fact struct {
	state State
	dbm   float64 // received; NaN: nothing measures it
}

// noFact is the report of a switch that reports nothing.
var noFact = fact{state: Unsaid, dbm: math.NaN()}

// judge returns the level to which a circuit in the switch's table is verified, and the reason if it is not good, else
// "". It decides for changes, for readings, and for commands that use a switch without a controller.
func (r Rule) judge(f fact) (Level, string) {
	switch {
	case r.Want < Status:
		return ReadBack, ""
	case f.state == Failed:
		return ReadBack, "the switch reports a failed port"
	case f.state == Pending:
		return ReadBack, "the circuit is not up"
	}
	level := ReadBack
	if f.state == Up {
		level = Status
	}
	if r.Want < Light || math.IsNaN(f.dbm) {
		return level, ""
	}
	if f.dbm < LightDBm {
		return ReadBack, fmt.Sprintf("no light: %.2f dBm, want %.2f", f.dbm, LightDBm)
	}
	return Light, ""
}

// missing is the reason for a circuit that is not in the switch's table.
const missing = "the switch does not have it"

// Known holds the level to which each circuit of a switch is verified. Each circuit follows this state machine:
//
//	          change             table            port states         power meter          token
//	(none) ---------> commanded -------> read-back -------> status -------> light -------> token
//	                      |                  |                |               |              |
//	                      | refused          | port failed    | no light      | light lost   | token lost
//	                      v                  v                v               v              v
//	                   missing             ( not good: the reason says why, and what was read )
//
// The switch's abilities limit the level. A circuit stays at its level while every look confirms it. A look that does
// not confirm it makes it "not good". A circuit that is not good becomes good if a look finds light, or if it is
// removed and made again. If it lost a token, light is not enough: it needs another token, or to be made again.
//
// Known has neither clock nor connection: its caller passes each fact with its time. It is for one goroutine.
type Known struct {
	rule     Rule
	circuits []knownCircuit // by ingress port of the map
}

type knownCircuit struct {
	Circuit
	fact      fact
	seen      bool      // the table has been read
	lit       bool      // light was seen on it
	lostToken bool      // and no token has arrived since
	changed   time.Time // when it was made, or found to be another circuit
}

// NewKnown returns a machine for the circuits of a number of ports, all without facts.
func NewKnown(ports int, r Rule) *Known {
	r.Want = cmp.Or(r.Want, Light)
	k := &Known{rule: r, circuits: make([]knownCircuit, ports)}
	for r := range k.circuits {
		k.circuits[r] = knownCircuit{Circuit: Circuit{In: r, Intended: circuit.Dark, Observed: circuit.Dark}, fact: noFact}
	}
	return k
}

// Circuit returns the state of the circuit of an ingress port.
func (k *Known) Circuit(in int) Circuit { return k.circuits[in].Circuit }

// Good reports whether the circuit of a port is good. A dark port is good.
func (k *Known) Good(in int) bool {
	c := &k.circuits[in]
	return c.Observed == circuit.Dark || c.Reason == ""
}

// WasLit reports whether the present circuit of a port has ever had light.
func (k *Known) WasLit(in int) bool { return k.circuits[in].lit }

// looked records a reading of the switch: its table, and the health of its ports, ingress before egress. It judges
// every circuit in the table.
func (k *Known) looked(table circuit.Permutation, health []Health, at time.Time) {
	n := len(k.circuits)
	for r := range k.circuits {
		c := &k.circuits[r]
		k.observe(c, table[r], at)
		if c.Observed == circuit.Dark {
			continue
		}
		in, out := &health[r], &health[n+c.Observed]
		f := fact{state: stateOf(in, out), dbm: c.fact.dbm}
		if f.state == Pending && c.fact.state != Pending && c.Reason == "" {
			c.fact.state = Pending // the switch may adjust a mirror; the next look judges
			continue
		}
		if at.Sub(c.changed) < k.rule.Window {
			if c.Reason != "" {
				continue // the meters cannot show yet that it has become good
			}
		} else if f.dbm = math.NaN(); out.HasPower {
			f.dbm = out.PowerDBm
		}
		k.settle(c, f, at)
	}
}

// stateOf returns the state of a circuit from those of its ports.
func stateOf(in, out *Health) State {
	switch {
	case in.Failed || out.Failed:
		return Failed
	case in.Unready || out.Unready:
		return Pending
	case in.State == "" || out.State == "":
		return Unsaid
	}
	return Up
}

// observe records the circuit of a port. Another circuit than before begins without facts.
func (k *Known) observe(c *knownCircuit, to int, at time.Time) {
	if c.Observed == to && c.Verified != Unverified {
		return
	}
	if c.Observed != to && c.seen {
		c.fact, c.lit, c.lostToken, c.changed = noFact, false, false, at
	}
	c.seen, c.Observed, c.Verified, c.Reason, c.At = true, to, ReadBack, "", at
}

// settle judges a circuit by facts.
func (k *Known) settle(c *knownCircuit, f fact, at time.Time) {
	proven := c.Verified == Token
	c.fact, c.At = f, at
	c.PowerDBm, c.HasPower = 0, !math.IsNaN(f.dbm)
	if c.HasPower {
		c.PowerDBm = f.dbm
	}
	c.Verified, c.Reason = k.rule.judge(f)
	switch {
	case c.Reason != "":
	case c.lostToken:
		c.Reason = lostToken
	case proven:
		c.Verified = Token
	}
	c.lit = c.lit || c.Verified >= Light
}

const lostToken = "no token came through"

// Changed records the verdicts of a change, which Apply has returned.
func (k *Known) Changed(c Change, verdicts []Circuit, at time.Time) {
	for _, v := range verdicts {
		known := &k.circuits[v.In]
		if c.Before[v.In] != c.After[v.In] {
			known.changed, known.Verified = at, Unverified
			known.fact, known.lit, known.lostToken = noFact, false, false
		}
		k.observe(known, v.Observed, at)
		known.Intended, known.Accepted = v.Intended, v.Accepted
		if v.Observed != v.Intended {
			continue // the next reading judges a circuit that was not requested
		}
		proven := known.Verified == Token && v.Reason == ""
		known.Circuit, known.At = v, at
		if v.HasPower {
			known.fact.dbm = v.PowerDBm
		}
		known.lit = known.lit || v.Verified >= Light
		switch {
		case known.lostToken && v.Reason == "":
			known.Reason = lostToken
		case proven:
			known.Verified = Token
		}
	}
}

// Proved records whether a token sent over the circuit of a port has arrived at the right port.
func (k *Known) Proved(in int, through bool, at time.Time) {
	c := &k.circuits[in]
	if c.lostToken = !through; c.lostToken {
		c.Verified, c.Reason, c.At = ReadBack, lostToken, at
		return
	}
	if c.Reason == lostToken {
		c.Reason = ""
	}
	if c.Reason == "" {
		c.Verified, c.At = Token, at
	}
}

// unknown records that the outcome of a change is not known. Its circuits are not good until a reading after the window
// of the meters finds them good.
func (k *Known) unknown(c Change, at time.Time) {
	for r := range k.circuits {
		if known := &k.circuits[r]; c.Before[r] != c.After[r] {
			known.changed, known.Intended, known.Observed = at, c.After[r], c.After[r]
			known.fact, known.lit, known.lostToken = noFact, false, false
			known.Verified, known.Reason, known.At = ReadBack, ErrUnknownOutcome.Error(), at
		}
	}
}

// lost records that the switch's table is no longer known. No circuit is verified until the next reading.
func (k *Known) lost(at time.Time) {
	for r := range k.circuits {
		k.circuits[r].Verified, k.circuits[r].At = Unverified, at
	}
}

// Level describes how far the circuits of n ports are verified: the lowest level, and the number of circuits beyond it.
// Without circuits it is "read-back".
func (k *Known) Level(first, n int) string {
	var count [Token + 1]int
	least, all := Token, 0
	for r := first; r < first+n; r++ {
		if c := &k.circuits[r]; c.Observed != circuit.Dark {
			all++
			count[c.Verified]++
			least = min(least, c.Verified)
		}
	}
	if all == 0 {
		return ReadBack.String()
	}
	said := least.String()
	for l := Token; l > least; l-- {
		if count[l] > 0 {
			said += fmt.Sprintf(", %d of %d by %s", count[l], all, l)
		}
	}
	return said
}
