package shim_test

import (
	"fmt"
	"testing"
	"time"

	"lightpath/internal/require"
	"lightpath/shim"
	"lightpath/shim/calls"
	"lightpath/shim/session"
	"lightpath/shim/shimtest"
)

// BenchmarkFirstByte measures the time from the entry of the engine to the first byte on a plane, for calls with plans.
// The calls have one shape, or many shapes in turn, which the table of programs must find.
func BenchmarkFirstByte(b *testing.B) {
	for _, planes := range []string{"1", "4"} {
		for _, shapes := range []int{1, 64} {
			b.Run(fmt.Sprintf("planes=%s/shapes=%d", planes, shapes), func(b *testing.B) {
				b.Setenv("LIGHTPATH_TRANSPORT", "inproc")
				b.Setenv("LIGHTPATH_PLANES", planes)
				w := shimtest.NewWorld(b, 2)
				var first time.Time
				packet := &session.Of(w.Comms[0]).Packet
				*packet = shimtest.Watch(*packet, func() {
					if first.IsZero() {
						first = time.Now()
					}
				})
				group := make([][2][]calls.Call, shapes)
				for i := range group {
					for r := range w.Comms {
						group[i][r] = []calls.Call{shimtest.AllReduce(w.Comms[r], make([]float32, 256+i))}
					}
				}
				const warm = 3
				n := b.N + warm*shapes
				end := make(chan error, 1)
				go func() {
					for i := range n {
						if err := shim.Run(group[i%shapes][1]); err != nil {
							end <- err
							return
						}
					}
					end <- nil
				}()
				var took time.Duration
				for i := range n {
					first = time.Time{}
					start := time.Now()
					require.NoError(b, shim.Run(group[i%shapes][0]))
					if i >= n-b.N {
						took += first.Sub(start)
					}
				}
				require.NoError(b, <-end)
				b.ReportMetric(float64(took.Nanoseconds())/float64(b.N), "ns/first-byte")
			})
		}
	}
}
