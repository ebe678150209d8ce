package optical_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"lightpath/internal/require"
	"lightpath/plans/fabric"
	"lightpath/shim/arbiter/live"
	"lightpath/shim/circuits"
	"lightpath/shim/shimtest"
)

// BenchmarkGaps measures an iteration of calls with other circuits and gaps between them, which hide each switch: the
// time in calls, with plans of single calls and with plans of the iteration. Switching takes milliseconds, as on
// switches in the field.
func BenchmarkGaps(b *testing.B) {
	benchmarkGaps(b, func(reconfig time.Duration) time.Duration { return 2*reconfig + 10*time.Millisecond })
}

// BenchmarkShortGaps is BenchmarkGaps with gaps that hide no switch.
func BenchmarkShortGaps(b *testing.B) {
	benchmarkGaps(b, func(reconfig time.Duration) time.Duration { return reconfig / 5 })
}

func benchmarkGaps(b *testing.B, gapOf func(reconfig time.Duration) time.Duration) {
	b.Helper()
	for _, reconfig := range []time.Duration{time.Millisecond, 5 * time.Millisecond, 25 * time.Millisecond} {
		for _, how := range []string{"off", "auto"} {
			b.Run(reconfig.String()+"/"+how, func(b *testing.B) {
				shimtest.UseEmulator(b, 4, 2, func(f *fabric.Fabric) { f.OCS[0].Reconfig = reconfig })
				b.Setenv("LIGHTPATH_PLAN_LIMIT", "100ms")
				b.Setenv("LIGHTPATH_ITERATION", how)
				w := shimtest.NewWorld(b, 4)
				rng := rand.New(rand.NewPCG(1, 2))
				gap := gapOf(reconfig)
				iterate := func() (inCalls time.Duration) {
					for _, k := range iteration {
						time.Sleep(gap)
						began := time.Now()
						require.NoError(b, k.Run(w, rng))
						inCalls += time.Since(began)
					}
					return inCalls
				}
				for range 12 {
					iterate()
				}
				before := circuits.Of(w.Comms[0]).Uses()
				var inCalls time.Duration
				for range b.N {
					inCalls += iterate()
				}
				n := float64(b.N)
				u := circuits.Of(w.Comms[0]).Uses()
				b.ReportMetric(inCalls.Seconds()*1e3/n, "ms/calls")
				b.ReportMetric((u.Exposed-before.Exposed).Seconds()*1e3/n, "ms/exposed")
				b.ReportMetric((u.Hidden-before.Hidden).Seconds()*1e3/n, "ms/hidden")
				hits, misses := live.Of(w.Comms[0]).Predictions()
				b.Logf("%d hits, %d misses", hits, misses)
			})
		}
	}
}
