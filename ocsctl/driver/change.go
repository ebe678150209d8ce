package driver

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"lightpath/internal/clock"
	"lightpath/plans/circuit"
)

// State is the progress of a circuit, in terms that all protocols share.
type State int

// The states of a circuit.
const (
	Pending State = iota // neither up nor failed so far
	Up
	Failed
	Unsaid // the switch does not say
)

// Protocol is the interface between Carry and a protocol: requests and answers, without judgement. If the connection
// has ended, a method opens another. Carry makes one call at a time.
type Protocol interface {
	// Map reads the whole map. With an error that wraps ErrNotMatching, it returns the valid part of the map.
	Map(ctx context.Context) (circuit.Permutation, error)
	// Send requests a change exactly once: first remove, then add. refused has an entry per circuit of remove, then of
	// add, which is nil if the switch accepted it; a nil slice means that it accepted all. An error that wraps
	// ErrRefused or ErrFenced means that the switch accepted nothing. After any other error, the answer is unknown.
	Send(ctx context.Context, token uint64, remove, add []circuit.Pair) (refused []error, err error)
	// States returns the states of circuits, nil if the switch cannot report them.
	States(ctx context.Context, circuits []circuit.Pair) ([]State, error)
	// Light returns the received power of circuits in dBm, NaN for a port without a detector. It returns nil if the
	// switch has no detectors.
	Light(ctx context.Context, circuits []circuit.Pair) (dbm []float64, err error)
}

// Tolerance holds the waits of Carry.
type Tolerance struct {
	Settle    time.Duration // until circuits are up after an answer, or are read back after a lost one; default 5 s
	Averaging time.Duration // window of the detectors: power is read this long after the circuits are up
}

// Polling begins at the first interval and doubles up to the second.
const (
	firstPoll = time.Millisecond
	lastPoll  = 50 * time.Millisecond
)

// Carry executes a change over a protocol with the contract of Switch.Apply: it refuses to start from another map than
// Before, sends the request once, reads back, and judges each circuit. An empty change verifies the existing circuits.
func Carry(ctx context.Context, p Protocol, c Change, tol Tolerance) ([]Circuit, error) {
	n := len(c.Before)
	if err := c.Before.Validate(n); err != nil {
		return nil, fmt.Errorf("driver: before: %w", err)
	}
	if err := c.After.Validate(n); err != nil {
		return nil, fmt.Errorf("driver: after: %w", err)
	}
	now, err := p.Map(ctx)
	if err != nil {
		return nil, err
	}
	if err := drift(now, c.Before, nil); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if tol.Settle <= 0 {
		tol.Settle = 5 * time.Second
	}
	j := newJudge(p, c, tol)
	remove, add := Delta(c.Before, c.After)
	var sent error
	if len(remove)+len(add) > 0 {
		if c.May != nil {
			if err := c.May(); err != nil {
				return nil, err
			}
		}
		var refused []error
		refused, sent = p.Send(ctx, c.Token, remove, add)
		j.took(append(slices.Clone(remove), add...), refused, sent)
	}
	if j.nothing || !j.settle(ctx) && j.read != nil {
		j.look(ctx, false)
	}
	j.light(ctx)
	return j.report(ctx, sent)
}

// judge collects the facts on a change. Its slices are by port of the map.
type judge struct {
	p    Protocol
	c    Change
	tol  Tolerance
	rule Rule

	touched  []bool // the change removes or makes a circuit of the port
	judged   []bool // touched, or the circuit is to be verified
	refused  []error
	nothing  bool  // the switch accepted nothing
	lost     error // why the answer is unknown
	observed circuit.Permutation
	read     error // of the last attempt to read the map
	facts    []fact
	dim      []string // why the power is unknown; "": it is known, or there is no detector
}

func newJudge(p Protocol, c Change, tol Tolerance) *judge {
	n := len(c.Before)
	j := &judge{
		p: p, c: c, tol: tol, rule: Rule{Want: max(c.Want, ReadBack)},
		touched: make([]bool, n), judged: make([]bool, n), refused: make([]error, n), facts: make([]fact, n),
		dim: make([]string, n),
	}
	for r := range j.facts {
		j.touched[r] = c.Before[r] != c.After[r]
		j.judged[r] = j.touched[r] || c.After[r] != circuit.Dark && (c.Check == nil || c.Check[r])
		j.facts[r] = noFact
	}
	return j
}

// took records the ports whose requests were refused.
func (j *judge) took(asked []circuit.Pair, refused []error, err error) {
	if j.nothing = errors.Is(err, ErrRefused) || errors.Is(err, ErrFenced); !j.nothing {
		j.lost = err
	}
	for i, pair := range asked {
		if j.nothing {
			j.refused[pair.From] = err
		} else if i < len(refused) && refused[i] != nil && j.refused[pair.From] == nil {
			j.refused[pair.From] = refused[i]
		}
	}
}

// settle waits until every circuit is decided, and returns false if the time ends first. If the time ended long ago,
// this process was stopped and has not seen the switch's changes. Then settle waits again.
func (j *judge) settle(ctx context.Context) bool {
	for {
		over := clock.Now(ctx).Add(j.tol.Settle)
		settling, cancel := clock.WithTimeout(ctx, j.tol.Settle)
		done := j.wait(settling)
		cancel()
		if done || ctx.Err() != nil || clock.Now(ctx).Sub(over) < 2*lastPoll {
			return done
		}
	}
}

// wait polls until every circuit is decided, and returns false if the time ends first.
func (j *judge) wait(ctx context.Context) bool {
	for pause := firstPoll; ; pause = min(2*pause, lastPoll) {
		if j.look(ctx, j.c.Want >= Status) {
			return true
		}
		if clock.Sleep(ctx, pause) != nil {
			return false
		}
	}
}

// look reads the map and, if asked, the states once, and reports whether no circuit can be expected
// to become better.
func (j *judge) look(ctx context.Context, states bool) bool {
	now, err := j.p.Map(ctx)
	j.read = err
	if now == nil || err != nil && !errors.Is(err, ErrNotMatching) {
		return false
	}
	j.observed = now
	done := true
	for r := range now {
		// Another writer has removed a missing circuit that the change does not touch.
		if j.touched[r] && now[r] != j.c.After[r] && j.refused[r] == nil {
			done = false
		}
	}
	if up := j.there(); len(up) > 0 && j.c.Want >= Status {
		done = states && j.states(ctx, up) && done
	}
	return done || errors.Is(err, ErrNotMatching)
}

// there returns the circuits to verify that are in the switch's table.
func (j *judge) there() (pairs []circuit.Pair) {
	for r, to := range j.observed {
		if j.judged[r] && to != circuit.Dark && to == j.c.After[r] {
			pairs = append(pairs, circuit.Pair{From: r, To: to})
		}
	}
	return pairs
}

// states reads the states of circuits, and reports whether all of them are up or have failed.
func (j *judge) states(ctx context.Context, up []circuit.Pair) bool {
	for _, pair := range up {
		j.facts[pair.From].state = Pending
	}
	states, err := j.p.States(ctx, up)
	if err != nil || states != nil && len(states) != len(up) {
		return false
	}
	done := true
	for i, pair := range up {
		state := Unsaid
		if states != nil {
			state = states[i]
		}
		j.facts[pair.From].state = state
		done = done && state != Pending
	}
	return done
}

// light reads the detectors, after their averaging window no longer contains light of earlier circuits.
func (j *judge) light(ctx context.Context) {
	if j.c.Want < Light {
		return
	}
	var up []circuit.Pair
	for _, pair := range j.there() {
		if s := j.facts[pair.From].state; s == Up || s == Unsaid {
			up = append(up, pair)
		}
	}
	if len(up) == 0 {
		return
	}
	var dbm []float64
	err := clock.Sleep(ctx, j.tol.Averaging)
	if err == nil {
		dbm, err = j.p.Light(ctx, up)
	}
	for i, pair := range up {
		switch {
		case err != nil:
			j.dim[pair.From] = fmt.Sprintf("power is unknown: %v", err)
		case i < len(dbm):
			j.facts[pair.From].dbm = dbm[i]
		}
	}
}

// verdict judges the circuit of a port at time at.
func (j *judge) verdict(r int, at time.Time) Circuit {
	v := Circuit{In: r, Intended: j.c.After[r], Observed: j.observed[r], At: at}
	v.Accepted = v.Observed == v.Intended || j.refused[r] == nil && j.lost == nil
	switch {
	case v.Observed == v.Intended && v.Observed == circuit.Dark:
		v.Verified = ReadBack
	case v.Observed == v.Intended && j.dim[r] != "":
		v.Verified, v.Reason = ReadBack, j.dim[r]
	case v.Observed == v.Intended:
		f := j.facts[r]
		v.Verified, v.Reason = j.rule.judge(f)
		if v.HasPower = !math.IsNaN(f.dbm); v.HasPower {
			v.PowerDBm = f.dbm
		}
	case j.refused[r] != nil:
		v.Reason = j.refused[r].Error()
	case j.lost != nil:
		v.Reason = fmt.Sprintf("%s: %v", missing, j.lost)
	case !j.touched[r]:
		v.Reason = missing + " any more: another writer has changed it"
	default:
		v.Reason = missing
	}
	return v
}

// report returns the verdicts, and the error that follows from them.
func (j *judge) report(ctx context.Context, sent error) ([]Circuit, error) {
	if j.observed == nil {
		return nil, fmt.Errorf("%w: %w", ErrUnknownOutcome, OneLine(j.lost, j.read, ctx.Err()))
	}
	var all []Circuit
	bad := 0
	var example string
	for r := range j.judged {
		if !j.judged[r] {
			continue
		}
		v := j.verdict(r, clock.Now(ctx))
		// A circuit that another writer has changed is drift, see below.
		if v.Reason != "" && (j.touched[r] || v.Observed == v.Intended) {
			if bad++; bad == 1 {
				example = fmt.Sprintf("port %d: %s", r, v.Reason)
			}
		}
		all = append(all, v)
	}
	noMap := errors.Is(j.read, ErrNotMatching)
	switch {
	case j.read != nil && (j.lost != nil || !noMap):
		return all, fmt.Errorf("%w: %w", ErrUnknownOutcome, OneLine(j.lost, j.read))
	case noMap:
		return all, j.read
	case j.nothing:
		return all, sent
	case bad > 0 && ctx.Err() != nil:
		return all, fmt.Errorf("%w: %w", ErrUnknownOutcome, ctx.Err())
	case bad > 0:
		return all, fmt.Errorf("%w: %d of %d, first %s", ErrNotAsIntended, bad, len(all), example)
	}
	return all, drift(j.observed, j.c.After, j.touched)
}

// OneLine is errors.Join with a text of one line, for logs and operators.
func OneLine(all ...error) error {
	var joined error
	for _, err := range all {
		switch {
		case err == nil:
		case joined == nil:
			joined = err
		default:
			joined = fmt.Errorf("%w; %w", joined, err)
		}
	}
	return joined
}

// drift returns an error for the first port, except those in except, whose circuit differs from want.
func drift(now, want circuit.Permutation, except []bool) error {
	if len(now) != len(want) {
		return fmt.Errorf("%w: %d ports, want %d", ErrDrift, len(now), len(want))
	}
	for r := range now {
		if now[r] != want[r] && (except == nil || !except[r]) {
			return fmt.Errorf("%w: port %d goes to %d, want %d", ErrDrift, r, now[r], want[r])
		}
	}
	return nil
}
