package ocs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"lightpath/ocsctl/driver"
	"lightpath/ocsctl/switches"
	"lightpath/plans/circuit"
)

// errNoTokens: nothing on this host can send tokens over the circuits.
var errNoTokens = errors.New("--verify token: the planes' interfaces are not up on this host, so no token can be " +
	"sent over the circuits")

// prove sends tokens over the circuits of a plane, and records the arrived ones in the verdicts and the known circuits.
func prove(ctx context.Context, p switches.Prober, plane int, verdicts []driver.Circuit, known *driver.Known) error {
	var made []circuit.Pair
	var of []*driver.Circuit // the verdicts of made
	for i := range verdicts {
		if v := &verdicts[i]; v.Intended != circuit.Dark && v.Reason == "" {
			made, of = append(made, circuit.Pair{From: v.In, To: v.Intended}), append(of, v)
		}
	}
	if len(made) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, switches.ProbeTimeout)
	defer cancel()
	through, err := p.Probe(ctx, plane, made)
	if err != nil {
		return fmt.Errorf("%w: tokens over the circuits: %w", driver.ErrNotAsIntended, err)
	}
	lost := 0
	for i, c := range made {
		arrived := i < len(through) && through[i]
		known.Proved(c.From, arrived, time.Now())
		if arrived {
			of[i].Verified = driver.Token
		} else {
			of[i].Reason = "no token came through"
			lost++
		}
	}
	if lost > 0 {
		return fmt.Errorf("%w: no token came through %d of %d", driver.ErrNotAsIntended, lost, len(made))
	}
	return nil
}
