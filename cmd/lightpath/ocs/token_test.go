package ocs

import (
	"context"
	"errors"
	"testing"

	"lightpath/cmd/lightpath/cli/fabrictest"
	"lightpath/ocsctl/driver"
	"lightpath/plans/circuit"
)

// tokens is a prober of which the token of one port is lost.
type tokens struct {
	lost int
	err  error
	sent []circuit.Pair
}

func (p *tokens) Probe(_ context.Context, _ int, circuits []circuit.Pair) ([]bool, error) {
	p.sent = circuits
	through := make([]bool, len(circuits))
	for i, c := range circuits {
		through[i] = c.From != p.lost
	}
	return through, p.err
}

func TestProve(t *testing.T) {
	verdicts := func() []driver.Circuit {
		return []driver.Circuit{
			{In: 0, Intended: 1, Observed: 1, Accepted: true, Verified: driver.Light},
			{In: 2, Intended: circuit.Dark, Observed: circuit.Dark, Accepted: true, Verified: driver.ReadBack},
			{In: 3, Intended: 0, Observed: 0, Accepted: true, Verified: driver.Light},
		}
	}
	known := driver.NewKnown(4, driver.Rule{})
	p := &tokens{lost: -1}
	all := verdicts()
	if err := prove(t.Context(), p, 0, all, known); err != nil || len(p.sent) != 2 || all[0].Verified != driver.Token ||
		all[1].Verified != driver.ReadBack || all[2].Verified != driver.Token {
		t.Errorf("%v, %+v, sent %v", err, all, p.sent)
	}
	p, all = &tokens{lost: 3}, verdicts()
	if err := prove(t.Context(), p, 0, all, known); !errors.Is(err, driver.ErrNotAsIntended) ||
		all[0].Verified != driver.Token || all[2].Reason == "" || all[2].Verified != driver.Light {
		t.Errorf("%v, %+v", err, all)
	}
	p, all = &tokens{err: errors.New("no interface")}, verdicts()
	if err := prove(t.Context(), p, 0, all, known); !errors.Is(err, p.err) {
		t.Error(err)
	}
	if err := prove(t.Context(), p, 0, all[1:2], known); err != nil {
		t.Errorf("nothing was made: %v", err)
	}
}

// TestVerifyTokenRefused: without interfaces nothing is changed.
func TestVerifyTokenRefused(t *testing.T) {
	d, fabric := fabrictest.Switch(t)
	lightpath.Refuse(t, "", []string{"--verify token", "not up on this host"}, "ocs", "set", "--fabric", fabric,
		"--plane", "p0",
		"--map", "ring:1", "--verify", "token")
	if d.Revision() != 0 {
		t.Error("the switch was changed")
	}
}
