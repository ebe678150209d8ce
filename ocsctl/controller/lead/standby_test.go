package lead_test

import (
	"context"
	"sync/atomic"
	"testing"

	"lightpath/internal/await"
	"lightpath/ocsctl/controller"
	"lightpath/ocsctl/controller/journal"
	"lightpath/ocsctl/controller/lead"
	"lightpath/plans/circuit"
)

// registry is a store that names the leader that a test says, and lets a controller rule when it says so.
type registry struct {
	*store
	leader atomic.Pointer[journal.Leader]
	open   chan struct{}
}

func (r *registry) Leader() journal.Leader { return *r.leader.Load() }

func (r *registry) Campaign(ctx context.Context) (journal.Leadership, error) {
	select {
	case <-r.open:
		return r.store.Campaign(ctx)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// TestStandby: a controller that is not in charge names the one that is, and never itself.
func TestStandby(t *testing.T) {
	s := &registry{store: newStore(), open: make(chan struct{})}
	s.leader.Store(new(journal.Leader))
	building, built := make(chan struct{}), make(chan struct{})
	r, _ := run(t, s, &device{at: circuit.Shift(ports, 1)}, func(o *lead.Options) {
		o.Name, o.Address = "ctl1", "localhost:7501"
		build := o.Build
		o.Build = func(c controller.Config) (*controller.Core, error) {
			close(building)
			<-built
			return build(c)
		}
	})
	says := func(leader journal.Leader, standby, name string) {
		t.Helper()
		s.leader.Store(&leader)
		if got := r.Standby(); got != standby {
			t.Errorf("%+v: %q, want %q", leader, got, standby)
		}
		if c, got := r.Controller(); c != nil || got != name {
			t.Errorf("%+v: %v, %q, want %q", leader, c, got, name)
		}
	}
	says(journal.Leader{}, "no other controller is known to be", "")
	says(journal.Leader{Name: "ctl2", Address: "localhost:7502", Token: 5}, "ctl2 at localhost:7502 is", "ctl2")
	says(journal.Leader{Name: "ctl2", Token: 5}, "ctl2 is", "ctl2")
	says(journal.Leader{Name: "ctl1", Address: "localhost:7502", Token: 5}, "ctl1 at localhost:7502 is", "ctl1")
	says(journal.Leader{Name: "ctl1", Address: "localhost:7501", Token: 6},
		"its own last run is, until that one's lease ends", "")
	close(s.open)
	<-building
	says(journal.Leader{Name: "ctl1", Address: "localhost:7501", Token: 1}, "it takes over at this moment", "")
	close(built)
	await.Until(t, "it is in charge", func() bool { return rules(r) })
}
