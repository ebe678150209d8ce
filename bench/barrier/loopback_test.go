package barrier

import (
	"testing"

	"lightpath/internal/require"
)

// TestLoopback measures over gRPC. Ranks sleep: goroutines that spin on few cores would keep Go's scheduler from
// polling the network.
func TestLoopback(t *testing.T) {
	r := loopback(t, Options{Ranks: 4, Rounds: 50, Mode: Sleep})
	t.Logf("all %+v, period %v", r.All, r.Period)
	if r.Ranks != 4 || r.All.P50 <= 0 {
		t.Errorf("%+v", r)
	}
	if _, _, err := Loopback(0); err == nil {
		t.Error("a controller for 0 ranks started")
	}
}

func loopback(t testing.TB, o Options) *Report {
	t.Helper()
	dial, stop, err := Loopback(o.Ranks)
	require.NoError(t, err)
	defer stop()
	o.Dial, o.Name = dial, "gRPC over loopback"
	r, err := Run(t.Context(), o)
	require.NoError(t, err)
	return r
}

func BenchmarkLoopback(b *testing.B) {
	r := loopback(b, Options{Ranks: 8, Rounds: b.N, Mode: Sleep})
	b.ReportMetric(float64(r.All.P50), "p50-ns")
	b.ReportMetric(float64(r.All.P99), "p99-ns")
}
