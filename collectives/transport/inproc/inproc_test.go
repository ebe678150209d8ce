package inproc

import (
	"testing"

	"lightpath/collectives/transport"
	"lightpath/collectives/transport/transporttest"
	"lightpath/internal/require"
)

func suite(o Options) transporttest.Config {
	return transporttest.Config{
		PeerLoss: true,
		Open: func(t testing.TB, ranks, planes int) []transport.Endpoint {
			e, err := NewGroup(ranks, planes, o)
			require.NoError(t, err)
			return e
		},
	}
}

func TestConformance(t *testing.T) {
	transporttest.Run(t, suite(Options{}))
}

// TestConformanceOfSmallRings runs the suite with two slots per ring.
func TestConformanceOfSmallRings(t *testing.T) {
	transporttest.Run(t, suite(Options{Slots: 2, Payload: 4096}))
}

func TestBadOptions(t *testing.T) {
	for _, c := range []struct {
		ranks, planes int
		o             Options
	}{
		{0, 1, Options{}}, {2, 0, Options{}}, {5000, 1, Options{}}, {2, 65, Options{}},
		{2, 1, Options{Slots: -1}}, {2, 1, Options{Payload: 12}}, {2, 1, Options{Payload: 1 << 30}},
	} {
		if _, err := NewGroup(c.ranks, c.planes, c.o); err == nil {
			t.Errorf("%+v: accepted", c)
		}
	}
}

// TestManyRanks allocates within the budget for 64 ranks.
func TestManyRanks(t *testing.T) {
	e, err := NewGroup(64, 4, Options{})
	require.NoError(t, err)
	for _, x := range e {
		require.NoError(t, x.Close())
	}
}

func BenchmarkInproc(b *testing.B) { suite(Options{}).Benchmark(b) }
