package etcd

import (
	"sync/atomic"
	"testing"
	"time"

	"lightpath/internal/require"
	"lightpath/ocsctl/controller"
	"lightpath/ocsctl/controller/journal/journaltest"
	"lightpath/plans/circuit"
)

// TestIntentsJoin: intents that come while a transaction is under way share the next one, as far
// as one has room, on fabrics of any size.
func TestIntentsJoin(t *testing.T) {
	t.Parallel()
	server := open(t, t.TempDir())
	const planes = controller.MaxPlanes
	for name, test := range map[string]struct{ ports, least, most int }{
		"small": {4, 1, 3},
		"large": {controller.MaxPorts, 3, 12}, // 20 kB each
	} {
		t.Run(name, func(t *testing.T) {
			r := newRelay(t, server.conf.socket())
			var writes atomic.Int32
			c := open(t, "", through("a", r.address), func(c *Config) {
				c.Prefix, c.Lease = "/"+name, time.Minute
				c.OnWrite = func(time.Duration, error) { writes.Add(1) }
			})
			l, err := c.Campaign(t.Context())
			require.NoError(t, err)
			if _, err := l.Recovered(test.ports, planes); err != nil {
				t.Fatal(err)
			}
			r.stick(there)
			answers := make(chan error, planes)
			to := circuit.Shift(test.ports, 1)
			for j := range planes {
				l.Intend(controller.Intent{Plane: j, Epoch: 1, To: to}, func(err error) { answers <- err })
			}
			r.free()
			for range planes {
				select {
				case err := <-answers:
					require.NoError(t, err)
				case <-time.After(journaltest.Patience):
					t.Fatal("an intent has not been answered")
				}
			}
			if n := int(writes.Load()); n < test.least || n > test.most {
				t.Errorf("%d intents took %d transactions", planes, n)
			}
			journaltest.Resign(t, l)
			l, err = c.Campaign(t.Context())
			require.NoError(t, err)
			at, err := l.Recovered(test.ports, planes)
			require.NoError(t, err)
			for j := range at {
				if i := at[j].Intent; i == nil || i.Plane != j || !i.To.Equal(to) {
					t.Fatalf("plane %d: %+v", j, at[j])
				}
			}
			journaltest.Resign(t, l)
		})
	}
}
