package optical_test

import (
	"slices"
	"testing"
	"time"

	"lightpath/collectives/transport"
	"lightpath/internal/require"
	"lightpath/shim"
	"lightpath/shim/arbiter/live"
	"lightpath/shim/calls"
	"lightpath/shim/circuits"
	"lightpath/shim/session"
	"lightpath/shim/shimtest"
)

// BenchmarkFirstByte measures the time from the call to its first byte on a plane: with the ticket that is there before
// the call, with a ticket that ranks ask for, and on packet planes. The calls have a gap between them.
func BenchmarkFirstByte(b *testing.B) {
	for _, how := range []string{"ahead", "asked", "inproc", "tcp"} {
		packet := how == "inproc" || how == "tcp"
		b.Run(how, func(b *testing.B) {
			if packet {
				b.Setenv("LIGHTPATH_TRANSPORT", how)
			} else {
				shimtest.UseEmulator(b, 2, 2, nil)
			}
			if how == "asked" {
				b.Setenv("LIGHTPATH_ITERATION", "off")
			}
			w := shimtest.NewWorld(b, 2)
			var end *transport.Endpoint
			if packet {
				end = &session.Of(w.Comms[0]).Packet
			} else {
				end = &circuits.Of(w.Comms[0]).End
			}
			var first time.Time
			*end = shimtest.Watch(*end, func() {
				if first.IsZero() {
					first = time.Now()
				}
			})
			group := [2][]calls.Call{}
			for r := range w.Comms {
				group[r] = []calls.Call{shimtest.AllReduce(w.Comms[r], make([]float32, 1<<16))}
			}
			const warm, gap = 50, 3 * time.Millisecond
			n := b.N + warm
			ended := make(chan error, 1)
			go func() {
				for range n {
					time.Sleep(gap)
					if err := shim.Run(group[1]); err != nil {
						ended <- err
						return
					}
				}
				ended <- nil
			}()
			var took []time.Duration
			for i := range n {
				time.Sleep(gap)
				first = time.Time{}
				start := time.Now()
				require.NoError(b, shim.Run(group[0]))
				if i >= warm {
					took = append(took, first.Sub(start))
				}
			}
			require.NoError(b, <-ended)
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds()), "us/first-byte-median")
			b.ReportMetric(float64(took[len(took)*9/10].Microseconds()), "us/first-byte-p90")
			if !packet {
				hits, misses := live.Of(w.Comms[0]).Predictions()
				b.Logf("%d calls: %d hits, %d misses; rank 0: %+v", n, hits, misses, circuits.Of(w.Comms[0]).Uses())
			}
		})
	}
}
