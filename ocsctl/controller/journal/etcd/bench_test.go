package etcd

import (
	"slices"
	"testing"
	"time"

	"lightpath/ocsctl/controller"
	"lightpath/ocsctl/controller/journal/journaltest"
	"lightpath/plans/circuit"
)

// BenchmarkIntend measures how long a move waits until its intent is durable. The history is written at the same time.
func BenchmarkIntend(b *testing.B) {
	c := open(b, b.TempDir(), func(c *Config) { c.Lease = defaultLease })
	l := lead(b, c)
	var took []time.Duration
	done := make(chan error, 1)
	for i := 0; b.Loop(); i++ {
		began := time.Now()
		l.Intend(intent(uint32(i)), func(err error) { done <- err })
		if err := <-done; err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(began))
		l.Record(controller.Event{Time: time.Now(), Kind: controller.Switched, Epoch: uint32(i) + 1,
			To: circuit.Shift(journaltest.Ports, i), Port: -1}, nil)
	}
	slices.Sort(took)
	at := func(q float64) float64 { return float64(took[int(q*float64(len(took)-1))].Microseconds()) }
	b.ReportMetric(at(0.5), "p50-us")
	b.ReportMetric(at(0.99), "p99-us")
}
