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
	for _, v := range verdicts {
		if v.Intended != circuit.Dark && v.Reason == "" {
			made = append(made, circuit.Pair{From: v.In, To: v.Intended})
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
		known.Proved(c.From, i < len(through) && through[i], time.Now())
		for k := range verdicts {
			switch v := &verdicts[k]; {
			case v.In != c.From:
			case i < len(through) && through[i]:
				v.Verified = driver.Token
			default:
				v.Reason = "no token came through"
				lost++
			}
		}
	}
	if lost > 0 {
		return fmt.Errorf("%w: no token came through %d of %d", driver.ErrNotAsIntended, lost, len(made))
	}
	return nil
}
