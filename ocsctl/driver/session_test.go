package driver_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"lightpath/ocsctl/driver"
	"lightpath/plans/circuit"
)

// lostSwitch is a switch whose answers to changes are lost. All its ports have light.
type lostSwitch struct {
	driver.Switch
	table circuit.Permutation
}

func (s *lostSwitch) Read(context.Context) (circuit.Permutation, error) { return s.table, nil }

func (s *lostSwitch) Health(context.Context) ([]driver.Health, error) {
	all := make([]driver.Health, 2*len(s.table))
	for i := range all {
		all[i] = driver.Health{HasPower: true, PowerDBm: -3}
	}
	return all, nil
}

func (s *lostSwitch) Apply(_ context.Context, c driver.Change) ([]driver.Circuit, error) {
	s.table = c.After
	return nil, driver.ErrUnknownOutcome
}

// TestUnknownOutcome: the meters of a circuit whose change has an unknown outcome may still show the light of before.
func TestUnknownOutcome(t *testing.T) {
	straight, swap := circuit.Shift(2, 0), circuit.Shift(2, 1)
	s := driver.NewSession(&lostSwitch{table: straight}, 2, driver.Rule{Want: driver.Light, Window: time.Hour})
	if _, err := s.Look(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, err := s.Apply(t.Context(), driver.Change{Before: straight, After: swap, Want: driver.Light})
	if !errors.Is(err, driver.ErrUnknownOutcome) {
		t.Fatal(err)
	}
	if _, err := s.Look(t.Context()); err != nil {
		t.Fatal(err)
	}
	for r := range 2 {
		if c := s.Circuit(r); c.Verified == driver.Light || c.Reason == "" {
			t.Errorf("circuit of port %d: %+v", r, c)
		}
	}
}
