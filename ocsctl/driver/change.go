package driver

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"lightpath/plans/circuit"
)

// State is how far a circuit is, in the terms that all protocols share.
type State int

// The states of a circuit.
const (
	Pending State = iota // neither up nor failed so far
	Up
	Failed
)

// Protocol is what Carry needs of one: requests and answers, without judgement. A method whose
// connection is gone opens another. Carry calls one at a time.
type Protocol interface {
	// Map reads the whole map. With an error that wraps ErrNotMatching comes the map as far as
	// it is one.
	Map(ctx context.Context) (circuit.Permutation, error)
	// Send asks for a change once, never again: remove first, then add. refused has an entry per
	// circuit of remove, then of add, nil where the switch took it; a nil slice means that it
	// took all. An error that wraps ErrRefused or ErrFenced means that the switch took nothing,
	// any other that its answer is unknown.
	Send(ctx context.Context, token uint64, remove, add []circuit.Pair) (refused []error, err error)
	// States returns how far circuits are; nil where the switch cannot say.
	States(ctx context.Context, circuits []circuit.Pair) ([]State, error)
	// Light returns the power that arrives for circuits, NaN where nothing measures it; nil where
	// the switch has no detectors.
	Light(ctx context.Context, circuits []circuit.Pair) (dbm []float64, err error)
}

// Tolerance is how long Carry waits and what it takes for light.
type Tolerance struct {
	Settle    time.Duration // from the answer until the circuits are up, and for reading back a lost answer; default 5 s
	Averaging time.Duration // window of the detectors: power is read this long after the circuits are up
	LightDBm  float64       // power from which on there is light; default -30
}

// Polling begins at the first interval and doubles up to the second.
const (
	firstPoll = time.Millisecond
	lastPoll  = 50 * time.Millisecond
)

// Carry carries out a change over a protocol as Switch.Apply promises: it refuses to start from a map
// that is not Before, asks once, reads back, and judges each circuit.
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
	remove, add := Delta(c.Before, c.After)
	if len(remove)+len(add) == 0 {
		return nil, nil
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if tol.Settle <= 0 {
		tol.Settle = 5 * time.Second
	}
	if tol.LightDBm == 0 {
		tol.LightDBm = -30
	}
	refused, err := p.Send(ctx, c.Token, remove, add)
	j := judge{p: p, c: c, tol: tol, remove: remove, add: add, refused: make([]error, n), level: make([]Level, n), reason: make([]string, n), touched: make([]bool, n)}
	nothing := errors.Is(err, ErrRefused) || errors.Is(err, ErrFenced)
	j.took(refused, err, nothing)
	if !nothing {
		j.lost = err
	}
	if nothing || !j.settle(ctx) && j.read != nil {
		j.look(ctx, false)
	}
	j.light(ctx)
	return j.report(ctx, err)
}

// judge collects what is known of a change.
type judge struct {
	p           Protocol
	c           Change
	tol         Tolerance
	remove, add []circuit.Pair

	touched  []bool
	refused  []error // by port
	lost     error   // why the answer is unknown
	observed circuit.Permutation
	read     error // of the last attempt to read the map
	level    []Level
	reason   []string
	noStatus bool
}

// took notes which ports' requests were refused.
func (j *judge) took(refused []error, err error, nothing bool) {
	for i, pair := range append(append([]circuit.Pair(nil), j.remove...), j.add...) {
		j.touched[pair.From] = true
		if nothing {
			j.refused[pair.From] = err
		} else if i < len(refused) && refused[i] != nil && j.refused[pair.From] == nil {
			j.refused[pair.From] = refused[i]
		}
	}
}

// settle waits until every circuit is decided, and reports false where the time was over first. It begins anew where
// it hears of that late: then this process has stood still, and has not seen what the switch did.
func (j *judge) settle(ctx context.Context) bool {
	for {
		over := time.Now().Add(j.tol.Settle)
		settling, cancel := context.WithDeadline(ctx, over)
		done := j.wait(settling)
		cancel()
		if done || ctx.Err() != nil || time.Since(over) < 2*lastPoll {
			return done
		}
	}
}

// wait polls until every circuit is decided, and reports false where the time was over first.
func (j *judge) wait(ctx context.Context) bool {
	for pause := firstPoll; ; pause = min(2*pause, lastPoll) {
		if j.look(ctx, j.c.Want >= Status) {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(pause):
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
	var up []circuit.Pair
	done := true
	for r, t := range j.touched {
		if !t {
			continue
		}
		j.level[r] = Unverified
		switch {
		case now[r] == j.c.After[r]:
			j.level[r], j.reason[r] = ReadBack, ""
			if now[r] != circuit.Dark {
				if j.c.Want >= Status {
					j.reason[r] = "the circuit is not up in time"
				}
				up = append(up, circuit.Pair{From: r, To: now[r]})
			}
		case j.refused[r] == nil:
			done = false
		}
	}
	if len(up) > 0 && j.c.Want >= Status {
		done = states && j.states(ctx, up) && done
	}
	return done || errors.Is(err, ErrNotMatching)
}

func (j *judge) states(ctx context.Context, up []circuit.Pair) bool {
	states, err := j.p.States(ctx, up)
	if err != nil {
		return false
	}
	if j.noStatus = states == nil; j.noStatus {
		for _, pair := range up {
			j.reason[pair.From] = ""
		}
		return true
	}
	done := true
	if len(states) != len(up) {
		return false
	}
	for i, pair := range up {
		switch states[i] {
		case Up:
			j.level[pair.From], j.reason[pair.From] = Status, ""
		case Failed:
			j.reason[pair.From] = "the switch reports a failed port"
		case Pending:
			done = false
		}
	}
	return done
}

// light asks the detectors, once they have forgotten the light of earlier circuits.
func (j *judge) light(ctx context.Context) {
	if j.c.Want < Light {
		return
	}
	var up []circuit.Pair
	for _, pair := range j.add {
		if j.level[pair.From] == Status || j.level[pair.From] == ReadBack && j.noStatus {
			up = append(up, pair)
		}
	}
	if len(up) == 0 {
		return
	}
	select {
	case <-ctx.Done():
		return
	case <-time.After(j.tol.Averaging):
	}
	dbm, err := j.p.Light(ctx, up)
	for i, pair := range up {
		switch {
		case err != nil:
			j.level[pair.From], j.reason[pair.From] = ReadBack, fmt.Sprintf("power is unknown: %v", err)
		case i >= len(dbm) || math.IsNaN(dbm[i]): // nothing measures it
		case dbm[i] < j.tol.LightDBm:
			j.level[pair.From], j.reason[pair.From] = ReadBack, fmt.Sprintf("no light: %.2f dBm, want %.2f", dbm[i], j.tol.LightDBm)
		default:
			j.level[pair.From] = Light
		}
	}
}

// report gives the verdicts and what they mean together.
func (j *judge) report(ctx context.Context, sent error) ([]Circuit, error) {
	if j.observed == nil {
		return nil, fmt.Errorf("%w: %w", ErrUnknownOutcome, both(j.lost, j.read, ctx.Err()))
	}
	var all []Circuit
	bad := 0
	var example string
	for r, t := range j.touched {
		if !t {
			continue
		}
		v := Circuit{In: r, Intended: j.c.After[r], Observed: j.observed[r], Verified: j.level[r], Reason: j.reason[r]}
		v.Accepted = v.Observed == v.Intended || j.refused[r] == nil && j.lost == nil
		if v.Reason == "" && v.Observed != v.Intended {
			v.Reason = "the switch does not have it"
			if j.refused[r] != nil {
				v.Reason = j.refused[r].Error()
			}
		}
		if v.Reason != "" {
			if bad++; bad == 1 {
				example = fmt.Sprintf("port %d: %s", r, v.Reason)
			}
		}
		all = append(all, v)
	}
	switch {
	case j.lost != nil && j.read != nil:
		return all, fmt.Errorf("%w: %w", ErrUnknownOutcome, both(j.lost, j.read))
	case errors.Is(j.read, ErrNotMatching):
		return all, j.read
	case errors.Is(sent, ErrRefused), errors.Is(sent, ErrFenced):
		return all, sent
	case bad > 0 && ctx.Err() != nil:
		return all, fmt.Errorf("%w: %w", ErrUnknownOutcome, ctx.Err())
	case bad > 0:
		return all, fmt.Errorf("%w: %d of %d, first %s", ErrNotAsIntended, bad, len(all), example)
	}
	return all, drift(j.observed, j.c.After, j.touched)
}

// both is errors.Join in one line, as logs and operators want it.
func both(all ...error) error {
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

// drift reports the first port at which the switch has another circuit than want, but for those in
// except.
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
