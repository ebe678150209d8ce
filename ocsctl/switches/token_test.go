package switches

import (
	"context"
	"errors"
	"strings"
	"testing"

	"lightpath/ocsctl/driver"
	"lightpath/plans/circuit"
)

type proberFunc func(plane int, circuits []circuit.Pair) ([]bool, error)

func (f proberFunc) Probe(_ context.Context, plane int, circuits []circuit.Pair) ([]bool, error) {
	return f(plane, circuits)
}

func TestTokens(t *testing.T) {
	var probed []circuit.Pair
	var lost int
	var broken error
	r := newRig(t, "polatis-scpi", 1, func(c *Config) {
		c.Verify = driver.Token
		c.Prober = proberFunc(func(_ int, circuits []circuit.Pair) ([]bool, error) {
			probed = circuits
			through := make([]bool, len(circuits))
			for i, c := range circuits {
				through[i] = c.From != lost
			}
			return through, broken
		})
	})
	lost = circuit.Dark
	r.must(0, shift(1))
	if verified, _ := r.dev.Report(0); verified != "token" || len(probed) != ranks {
		t.Errorf("verified by %s, probed %v", verified, probed)
	}
	r.must(0, circuit.Permutation{1, circuit.Dark, 3, 2}) // only what is new is probed: the rest may carry data
	if len(probed) != 1 || probed[0] != (circuit.Pair{From: 3, To: 2}) {
		t.Errorf("probed %v", probed)
	}
	lost = 2
	if err := r.move(0, shift(2)); !errors.Is(err, driver.ErrNotAsIntended) || !strings.Contains(err.Error(),
		"no token came from rank 2 to rank 0") {
		t.Errorf("a token is lost: %v", err)
	}
	lost = circuit.Dark
	if err := r.move(0, shift(2)); err == nil {
		t.Error("no token has come through since, and all is well")
	}
	r.idle = true // an operator sets the map
	r.must(0, shift(2))
	if verified, _ := r.dev.Report(0); verified != "token" || len(probed) != ranks {
		t.Errorf("verified by %s, probed %v", verified, probed)
	}
	broken = errors.New("no interface")
	if err := r.move(0, shift(3)); !errors.Is(err, broken) {
		t.Errorf("no probes: %v", err)
	}
}
