package live

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"lightpath/ocsctl"
	"lightpath/plans"
	"lightpath/plans/circuit"
	"lightpath/plans/fabric"
	"lightpath/shim/arbiter"
	"lightpath/shim/calls"
	"lightpath/shim/circuits"
	"lightpath/shim/comm"
	"lightpath/shim/endpoints"
	"lightpath/shim/planeset"
	"lightpath/shim/planning"
	"lightpath/shim/settings"
)

const (
	ranks  = 2
	planes = planeset.Set(0b11)
)

// controller grants planes when a test says so.
type controller struct {
	endpoints.Client
	grant chan struct{}

	mu       sync.Mutex
	held     planeset.Set
	released int
}

func (c *controller) Acquire(l ocsctl.Lease) (uint64, error) {
	<-c.grant
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held |= planeset.Set(l.Mask)
	return l.Mask, nil
}

func (c *controller) Release(mask, _ uint64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held &^= planeset.Set(mask)
	c.released++
	return nil
}

func (c *controller) State(int) ocsctl.PlaneState {
	return ocsctl.PlaneState{Map: circuit.AllDark(ranks)}
}

func (c *controller) Poll(int) (uint32, error) { return 0, nil }

// book knows no plans, so the leader fails when it needs one.
type book struct{ arbiter.Book }

func (book) Row(calls.Shape, planeset.Set, []circuit.Permutation) (planning.Row, error) {
	return planning.Row{}, errors.New("no plan")
}

// newLeader returns a leader that has asked for all planes, and the controller that it waits for.
func newLeader() (*Leader, *controller) {
	at := &controller{grant: make(chan struct{})}
	c := comm.New(comm.Identity{Ranks: ranks})
	p := &circuits.Planes{
		Site: planning.Site{Cfg: &settings.Config{}, Ranks: ranks, Places: circuit.Place([]int{0, 1}, ranks),
			Planes: make([]fabric.Plane, planes.Len()), Template: &plans.Problem{Ranks: ranks}},
		Controller: &endpoints.Controller{Client: at},
	}
	Handle(c)
	l := Of(c)
	l.p = p
	l.machine = arbiter.New(arbiter.Config{Ranks: ranks, Site: &p.Site}, view{p}, book{})
	for i := range l.timers {
		l.timers[i] = time.NewTimer(time.Hour)
		l.timers[i].Stop()
	}
	l.perform(&arbiter.Action{Kind: arbiter.Acquire, Lease: ocsctl.Lease{Mask: uint64(planes)}})
	return l, at
}

// TestLateGrant: planes that are granted to a leader that has failed or ended are given back.
func TestLateGrant(t *testing.T) {
	for name, happens := range map[string]func(l *Leader, grant func()){
		"ended": func(l *Leader, grant func()) {
			l.Start()
			l.Close()
			grant()
		},
		"ended before it has taken the grant": func(l *Leader, grant func()) {
			grant()
			l.Close()
		},
		"failed": func(l *Leader, grant func()) {
			l.Start()
			l.c.Spread(errors.New("a peer is lost"))
			grant()
			synctest.Wait()
		},
	} {
		t.Run(name, func(t *testing.T) {
			for range 10 { // a choice among ready channels is random
				synctest.Test(t, func(t *testing.T) {
					l, at := newLeader()
					synctest.Wait() // the request is at the controller
					happens(l, func() {
						close(at.grant)
						synctest.Wait()
					})
					synctest.Wait()
					if at.held != 0 || at.released != 1 {
						t.Errorf("planes %#b are still held, %d releases", at.held, at.released)
					}
					l.Close()
				})
			}
		})
	}
}
