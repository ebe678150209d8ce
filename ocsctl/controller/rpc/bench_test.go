package rpc_test

import (
	"runtime"
	"slices"
	"testing"
	"time"

	"lightpath/ocsctl/controller"
	"lightpath/ocsctl/controller/controllertest"
	"lightpath/ocsctl/controller/rpc"
	"lightpath/plans/circuit"
)

// BenchmarkBarrier is the time from the first post to the moment when all of 8 ranks have seen
// the next epoch, over loopback: one stream each, all in this process.
func BenchmarkBarrier(b *testing.B) {
	const ports = 8
	core := startCore(b, controller.Config{Name: "a", Ports: ports, Device: controllertest.NewPanel(ports, 1)})
	s := serveCore(b, options("a", ports, 1), func() *controller.Core { return core })
	var all []*rpc.Client
	news := make(chan struct{}, 1)
	for p := range ports {
		c := dial(b, p, rpc.Options{}, s.address)
		c.OnChange(func() {
			select {
			case news <- struct{}{}:
			default:
			}
		})
		all = append(all, c)
	}
	maps := []circuit.Permutation{circuit.Shift(ports, 1), circuit.Shift(ports, 2)}
	took := make([]time.Duration, 0, b.N)
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		start := time.Now()
		for _, c := range all {
			if err := c.Post(0, uint32(i), holder, maps[i%2]); err != nil {
				b.Fatal(err)
			}
		}
		for _, c := range all {
			for {
				epoch, err := c.Poll(0)
				if err != nil {
					b.Fatal(err)
				}
				if epoch > uint32(i) {
					break
				}
				<-news
			}
		}
		took = append(took, time.Since(start))
	}
	b.StopTimer()
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Nanoseconds()), "p50-ns")
	b.ReportMetric(float64(took[len(took)*99/100].Nanoseconds()), "p99-ns")
	b.ReportMetric(float64(runtime.GOMAXPROCS(0)), "cores")
}
