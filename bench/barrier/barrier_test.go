package barrier

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"lightpath/internal/require"
)

// TestRun checks that both modes complete every round in order and that the report adds up.
func TestRun(t *testing.T) {
	for _, mode := range []Mode{Spin, Sleep} {
		r, err := Run(t.Context(), Options{Ranks: 4, Rounds: 200, Mode: mode})
		require.NoError(t, err)
		t.Logf("%s: all %+v, each %+v, period %v", mode, r.All, r.Each, r.Period)
		n := 0
		for _, b := range r.Histogram {
			n += b.Count
		}
		if n != 200 || r.All.P50 <= 0 || r.All.P50 > r.All.P99 || r.All.P99 > r.All.Max || r.Each.Max > r.All.Max {
			t.Errorf("%+v", r)
		}
		b, err := json.Marshal(r)
		if err != nil || !strings.Contains(string(b), `"p99":`) {
			t.Errorf("%s, %v", b, err)
		}
	}
}

func TestRefusals(t *testing.T) {
	for _, o := range []Options{{1, 10, Spin, nil, ""}, {-1, 10, Spin, nil, ""}, {2, -1, Spin, nil, ""}, {2, 10, "nap", nil, ""}} {
		if _, err := Run(t.Context(), o); err == nil {
			t.Errorf("%+v was accepted", o)
		}
	}
}

// TestInterrupted: a measurement ends with its context.
func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Run(ctx, Options{Ranks: 2, Rounds: 1 << 20, Mode: Spin}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

func BenchmarkBarrier(b *testing.B) {
	for _, mode := range []Mode{Spin, Sleep} {
		b.Run(string(mode), func(b *testing.B) {
			r, err := Run(b.Context(), Options{Ranks: 8, Rounds: max(b.N, 10), Mode: mode})
			require.NoError(b, err)
			b.ReportMetric(float64(r.All.P50), "p50-ns")
			b.ReportMetric(float64(r.All.P99), "p99-ns")
			b.ReportMetric(float64(r.Period), "ns/round")
		})
	}
}
