package driver

import (
	"context"
	"errors"
	"fmt"

	"lightpath/internal/clock"
	"lightpath/plans/circuit"
)

// Session is one switch, with the states of its circuits. Controllers and commands read and change a switch only
// through a Session, so "verified" means the same in both. It is for one goroutine.
type Session struct {
	*Known
	sw    Switch
	table circuit.Permutation // as last read; nil: unknown
}

// NewSession returns the session of a switch with so many ports in its map. The caller closes the
// switch.
func NewSession(sw Switch, ports int, r Rule) *Session {
	return &Session{Known: NewKnown(ports, r), sw: sw}
}

// Table returns the switch's map as last read or changed, nil if it is not known. It is read-only.
func (s *Session) Table() circuit.Permutation { return s.table }

// Forget records that the table is no longer known.
func (s *Session) Forget(ctx context.Context) {
	s.table = nil
	s.lost(clock.Now(ctx))
}

// Read reads the switch's map, and checks that the driver returns a valid one.
func (s *Session) Read(ctx context.Context) (circuit.Permutation, error) {
	table, err := s.sw.Read(ctx)
	if err != nil {
		return nil, err
	}
	if err := table.Validate(len(s.circuits)); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrProtocol, err)
	}
	s.table = table
	return table, nil
}

// Look reads the switch's map and the health of its ports, and judges every circuit by them. An error changes nothing.
func (s *Session) Look(ctx context.Context) ([]Health, error) {
	table, err := s.Read(ctx)
	if err != nil {
		return nil, err
	}
	health, err := s.sw.Health(ctx)
	if err == nil && len(health) != 2*len(table) {
		err = fmt.Errorf("%w: health of %d ports, want %d", ErrProtocol, len(health), 2*len(table))
	}
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return nil, err
	}
	s.looked(table, health, clock.Now(ctx))
	return health, nil
}

// Apply makes a change as Switch.Apply does, and records its verdicts.
func (s *Session) Apply(ctx context.Context, c Change) ([]Circuit, error) {
	verdicts, err := s.sw.Apply(ctx, c)
	if verdicts == nil && errors.Is(err, ErrUnknownOutcome) {
		s.unknown(c, clock.Now(ctx))
	}
	s.Changed(c, verdicts, clock.Now(ctx))
	if s.table = nil; err == nil {
		s.table = c.After
	}
	return verdicts, err
}

// Set is Apply for planes that no rank uses. For the ports in idle (nil: all), it also removes and remakes circuits
// that the change keeps but that are not good. This may repair a mirror's position.
func (s *Session) Set(ctx context.Context, c Change, idle []bool) ([]Circuit, error) {
	again := s.Remake(c, idle)
	if len(again) == 0 {
		return s.Apply(ctx, c)
	}
	first := c
	first.After, first.Want = c.Before.Clone(), ReadBack
	for _, pair := range again {
		first.After[pair.From] = circuit.Dark
	}
	verdicts, err := s.Apply(ctx, first)
	if err != nil && (!errors.Is(err, ErrNotAsIntended) || verdicts == nil) {
		return nil, err
	}
	// A circuit that could not be removed is verified where it is.
	table, err := s.Read(ctx)
	if err != nil {
		return nil, err
	}
	for r := range table {
		if table[r] != first.After[r] && table[r] != c.Before[r] {
			return nil, fmt.Errorf("%w: port %d goes to %d, want %d", ErrDrift, r, table[r], c.Before[r])
		}
	}
	c.Before = table
	return s.Apply(ctx, c)
}

// Remake returns the circuits that Set remakes.
func (s *Session) Remake(c Change, idle []bool) (pairs []circuit.Pair) {
	for r, to := range c.After {
		if to != circuit.Dark && to == c.Before[r] && (idle == nil || idle[r]) && !s.Good(r) {
			pairs = append(pairs, circuit.Pair{From: r, To: to})
		}
	}
	return pairs
}
