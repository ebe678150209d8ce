package lumos

import (
	"math/rand/v2"
	"strings"
	"testing"

	"lightpath/internal/require"
)

var small = Fabric{Pods: 3, KLeaf: 4, KSpine: 4, Tau: 2, KOCS: 8}

func TestCables(t *testing.T) {
	rng := rand.New(rand.NewPCG(17, 18))
	for round := range 60 {
		f := randomFabric(rng, 1+round%2)
		f.KOCS *= 2
		for _, w := range []Wiring{Interleaved, Uniform, Doubled} {
			cables, err := f.Cables(w)
			require.NoError(t, err)
			if err := f.CheckCables(w, cables); err != nil {
				t.Fatalf("%+v %v: %v", f, w, err)
			}
			for _, other := range []Wiring{Interleaved, Uniform, Doubled} {
				if other != w && f.CheckCables(other, cables) == nil {
					t.Fatalf("%+v: %v passes for %v", f, w, other)
				}
			}
			rng.Shuffle(len(cables), func(i, j int) { cables[i], cables[j] = cables[j], cables[i] })
			if err := f.CheckCables(w, cables); err != nil {
				t.Fatalf("%+v %v in another order: %v", f, w, err)
			}
		}
	}
}

// TestMirrored is the property that interleaving is for: what OCS 2k connects to the egress of, OCS 2k+1
// connects to the ingress of, at the same port.
func TestMirrored(t *testing.T) {
	cables, err := small.Cables(Interleaved)
	require.NoError(t, err)
	type place struct{ spine, ocs, port int }
	at := map[bool]map[place][2]int{true: {}, false: {}}
	for _, c := range cables {
		at[c.Egress][place{c.Spine, c.OCS, c.OCSPort}] = [2]int{c.Pod, c.Port}
	}
	for p, spine := range at[true] {
		mirror := p
		mirror.ocs ^= 1
		if got := at[false][mirror]; got != spine {
			t.Errorf("group %d OCS %d port %d has the egress of %v, its mirror the ingress of %v", p.spine, p.ocs, p.port,
				spine, got)
		}
	}
}

func TestMiswired(t *testing.T) {
	for want, spoil := range map[string]func(c []Cable) []Cable{
		"cable 8: cable 1 is at the same end": func(c []Cable) []Cable { c[7] = c[0]; return c },
		"at the same port of the same OCS": func(c []Cable) []Cable {
			c[2].OCS = c[0].OCS
			return c
		},
		"47 cables, want 48":                 func(c []Cable) []Cable { return c[1:] },
		"no such port of an OCS":             func(c []Cable) []Cable { c[5].OCSPort = 8; return c },
		"no such port of a spine":            func(c []Cable) []Cable { c[5].Pod = -1; return c },
		"want OCS 0":                         func(c []Cable) []Cable { c[0].OCS, c[4].OCS = c[4].OCS, c[0].OCS; return c },
		"not mirrored":                       func(c []Cable) []Cable { c[0].OCSPort = 7; c[3].OCSPort = 7; return c },
		"a pod's two ends on the OCS differ": func(c []Cable) []Cable { c[0].OCSPort = 7; return c },
	} {
		cables, err := small.Cables(Interleaved)
		require.NoError(t, err)
		if err := small.CheckCables(Interleaved, spoil(cables)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
