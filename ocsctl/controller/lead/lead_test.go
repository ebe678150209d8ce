package lead_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"lightpath/internal/await"
	"lightpath/internal/require"
	"lightpath/ocsctl/controller"
	"lightpath/ocsctl/controller/journal"
	"lightpath/ocsctl/controller/lead"
	"lightpath/plans/circuit"
)

const (
	ports    = 4
	patience = 60 * time.Second
)

// device is one plane that is somewhere, and may be told of another controller.
type device struct {
	mu      sync.Mutex
	at      circuit.Permutation
	silent  bool
	deposed bool
}

func (d *device) Switch(_ int, m controller.Move) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.deposed {
		d.deposed = false
		return controller.ErrNotLeader
	}
	d.at = m.To
	return nil
}

func (d *device) Map(int) (circuit.Permutation, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.silent {
		return nil, errors.New("no answer")
	}
	return d.at, nil
}

func (d *device) set(f func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f()
}

// store is a Memory whose rules the test can end, and whose baselines it sees.
type store struct {
	*journal.Memory
	rules chan *rule
}

type rule struct {
	journal.Leadership
	mu   sync.Mutex
	base []controller.Recovered
	late bool // by the clock, the rule is over; the store does not show it yet
}

func (r *rule) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.late {
		return controller.ErrNotLeader
	}
	return r.Leadership.Err()
}

func newStore() *store { return &store{journal.NewMemory("a", 0), make(chan *rule, 9)} }

func (s *store) Campaign(ctx context.Context) (journal.Leadership, error) {
	l, err := s.Memory.Campaign(ctx)
	if err != nil {
		return nil, err
	}
	r := &rule{Leadership: l}
	s.rules <- r
	return r, nil
}

func (r *rule) Baseline(at []controller.Recovered) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.base = append(r.base, at...)
	r.Leadership.Baseline(at)
}

func (r *rule) lastBase() circuit.Permutation {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := len(r.base) - 1; i >= 0; i-- {
		if r.base[i].Map != nil {
			return r.base[i].Map
		}
	}
	return nil
}

// run runs d's controller until stop, which returns what Run did.
func run(t *testing.T, s journal.Store, d controller.Device, change func(*lead.Options)) (r *lead.Runner,
	stop func() error) {
	t.Helper()
	o := lead.Options{Store: s, Ports: ports, Planes: 1, Build: func(c controller.Config) (*controller.Core, error) {
		c.Name, c.Ports, c.Planes = "a", ports, []controller.PlaneConfig{{Name: "p"}}
		c.Device, c.Grace = d, time.Nanosecond
		return controller.Start(c)
	}}
	if change != nil {
		change(&o)
	}
	r, err := lead.New(o)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	stop = sync.OnceValue(func() error { cancel(); return <-ended })
	t.Cleanup(func() { _ = stop() })
	return r, stop
}

func rules(r *lead.Runner) bool {
	c, _ := r.Controller()
	return c != nil
}

// TestRule: front ends get the core while the rule lasts and lose it before it closes. Its device closes
// after the core. The next rule gives front ends another core.
func TestRule(t *testing.T) {
	s, d := newStore(), &device{at: circuit.Shift(ports, 1)}
	shown := make(chan *controller.Core, 9)
	hidden, ended := make(chan error, 9), make(chan struct{}, 9)
	r, stop := run(t, s, d, func(o *lead.Options) {
		o.OnLeader = func(c *controller.Core) (func(), error) {
			shown <- c
			return func() {
				_, err := c.Snapshot() // not closed yet
				hidden <- err
			}, nil
		}
		o.OnEnd = func() { ended <- struct{}{} }
	})
	first := <-shown
	await.Until(t, "the runner has the core", func() bool { return rules(r) })
	if c, name := r.Controller(); c != controller.Controller(first) || name != "a" {
		t.Fatalf("the controller is %v, %q", c, name)
	}
	l := <-s.rules
	await.Until(t, "the journal knows where the plane is", func() bool {
		return l.lastBase().Equal(circuit.Shift(ports, 1))
	})
	require.NoError(t, first.Set(0, circuit.Shift(ports, 2), "ann"))
	require.NoError(t, l.Resign(t.Context())) // or its lease runs out
	if err := <-hidden; err != nil {
		t.Fatalf("front ends were stopped after the core: %v", err)
	}
	<-ended
	if _, err := first.Snapshot(); !errors.Is(err, controller.ErrStopped) {
		t.Errorf("the rule has ended before the core was closed: %v", err)
	}
	second := <-shown
	if second == first {
		t.Fatal("a core rules twice")
	}
	snap, err := second.Snapshot()
	if err != nil || snap.Planes[0].Epoch != 1 || !snap.Planes[0].Map.Equal(circuit.Shift(ports, 2)) ||
		snap.Token != (<-s.rules).Token() {
		t.Fatalf("%+v, %v", snap, err)
	}
	require.NoError(t, stop())
	if rules(r) || s.Leader() != (journal.Leader{}) {
		t.Error("rules after the end")
	}
	if _, err := second.Snapshot(); !errors.Is(err, controller.ErrStopped) {
		t.Errorf("the core was not closed: %v", err)
	}
}

// TestCoreGivesUp: a device that knows of another controller ends the rule, though the journal
// does not.
func TestCoreGivesUp(t *testing.T) {
	s, d := newStore(), &device{at: circuit.Shift(ports, 1)}
	r, _ := run(t, s, d, nil)
	await.Until(t, "rules", func() bool { return rules(r) })
	l := <-s.rules
	d.set(func() { d.deposed = true })
	c, _ := r.Controller()
	if err := c.Set(0, circuit.Shift(ports, 2), "ann"); !errors.Is(err, controller.ErrNotLeader) {
		t.Fatal(err)
	}
	if next := <-s.rules; next.Token() <= l.Token() {
		t.Fatalf("token %d after %d", next.Token(), l.Token())
	}
}

// TestLate checks that no device moves once the lease may have run out, even before the runner is told.
func TestLate(t *testing.T) {
	s, d := newStore(), &device{at: circuit.Shift(ports, 1)}
	r, _ := run(t, s, d, nil)
	await.Until(t, "rules", func() bool { return rules(r) })
	l := <-s.rules
	l.mu.Lock()
	l.late = true
	l.mu.Unlock()
	c, _ := r.Controller()
	if err := c.Set(0, circuit.Shift(ports, 2), "ann"); !errors.Is(err, controller.ErrNotLeader) {
		t.Fatal(err)
	}
	if m, err := d.Map(0); err != nil || !m.Equal(circuit.Shift(ports, 1)) {
		t.Fatalf("the device has moved: %v, %v", m, err)
	}
	if next := <-s.rules; next.Token() <= l.Token() {
		t.Fatalf("token %d after %d", next.Token(), l.Token())
	}
}

// TestNothingKnown: where no device has said where it is there is no baseline, until it has.
func TestNothingKnown(t *testing.T) {
	s, d := newStore(), &device{at: circuit.Shift(ports, 1), silent: true}
	r, _ := run(t, s, d, nil)
	await.Until(t, "rules", func() bool { return rules(r) })
	l := <-s.rules
	if m := l.lastBase(); m != nil {
		t.Fatalf("the journal was told %v", m)
	}
	d.set(func() { d.silent = false })
	c, _ := r.Controller()
	require.NoError(t, c.Set(0, circuit.Shift(ports, 3), "ann"))
	await.Until(t, "the journal knows", func() bool { return l.lastBase().Equal(circuit.Shift(ports, 3)) })
}

// TestErrors: what trying again would not mend ends Run, and the rule.
func TestErrors(t *testing.T) {
	broken := errors.New("broken")
	for name, change := range map[string]func(*lead.Options){
		"build": func(o *lead.Options) {
			o.Build = func(controller.Config) (*controller.Core, error) { return nil, broken }
		},
		"on leader": func(o *lead.Options) { o.OnLeader = func(*controller.Core) (func(), error) { return nil, broken } },
		"recovered": func(o *lead.Options) { o.Store = brokenStore{newStore(), broken} },
	} {
		s := newStore()
		o := lead.Options{Store: s, Ports: ports, Planes: 1, Build: func(c controller.Config) (*controller.Core, error) {
			c.Ports, c.Planes, c.Device = ports, make([]controller.PlaneConfig, 1), &device{at: circuit.AllDark(ports)}
			return controller.Start(c)
		}}
		change(&o)
		r, err := lead.New(o)
		require.NoError(t, err)
		if err := r.Run(t.Context()); !errors.Is(err, broken) {
			t.Errorf("%s: %v", name, err)
		}
		if s.Leader() != (journal.Leader{}) {
			t.Errorf("%s: still rules", name)
		}
	}
	for field, o := range map[string]lead.Options{
		"store":   {Ports: 1, Planes: 1, Build: func(controller.Config) (*controller.Core, error) { return nil, nil }},
		"build":   {Store: newStore(), Ports: 1, Planes: 1},
		"0 ports": {Store: newStore(), Planes: 1, Build: func(controller.Config) (*controller.Core, error) { return nil, nil }},
	} {
		if _, err := lead.New(o); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
}

// brokenStore has rules whose journal cannot be read.
type brokenStore struct {
	*store
	err error
}

func (s brokenStore) Campaign(ctx context.Context) (journal.Leadership, error) {
	l, err := s.store.Campaign(ctx)
	return brokenRule{l, s.err}, err
}

type brokenRule struct {
	journal.Leadership
	err error
}

func (r brokenRule) Recovered(int, int) ([]controller.Recovered, error) { return nil, r.err }

// sink is a rank that hears nothing.
type sink struct{}

func (sink) Changed(int, []uint32, circuit.Permutation, error) {}
func (sink) Refused(int, uint64, error)                        {}
func (sink) Granted(uint64, uint64, error)                     {}
func (sink) Wanted(uint64, uint64)                             {}
func (sink) Closed(error)                                      {}

// TestWaitsOnlyForRanks: after a takeover operators wait for ranks that were there, and for none if there
// was none.
func TestWaitsOnlyForRanks(t *testing.T) {
	s, d := newStore(), &device{at: circuit.Shift(ports, 1)}
	shown := make(chan *controller.Core, 9)
	run(t, s, d, func(o *lead.Options) {
		o.Build = func(c controller.Config) (*controller.Core, error) {
			c.Name, c.Ports, c.Planes = "a", ports, []controller.PlaneConfig{{Name: "p"}}
			c.Device, c.Grace = d, time.Hour
			return controller.Start(c)
		}
		o.OnLeader = func(c *controller.Core) (func(), error) {
			shown <- c
			return func() {}, nil
		}
	})
	rule := <-s.rules
	next := func() *controller.Core {
		t.Helper()
		require.NoError(t, rule.Resign(t.Context())) // or its lease runs out
		rule = <-s.rules
		return <-shown
	}
	<-shown
	await.Until(t, "the journal knows where the plane is", func() bool { return rule.lastBase() != nil })
	second := next()
	if err := second.Set(0, circuit.Shift(ports, 2), "ann"); err != nil {
		t.Errorf("no rank was there: %v", err)
	}
	if _, err := second.Attach(sink{}, controller.AttachOptions{Port: 2}); err != nil {
		t.Fatal(err)
	}
	third := next()
	if err := third.Set(0, circuit.Shift(ports, 3), "ann"); !errors.Is(err, controller.ErrHeld) {
		t.Errorf("port 2 had a rank: %v", err)
	}
	a, err := third.Attach(sink{}, controller.AttachOptions{Port: 2})
	require.NoError(t, err)
	await.Until(t, "all ranks are back", func() bool { return third.Set(0, circuit.Shift(ports, 3), "ann") == nil })
	a.Detach(true)
	if err := next().Set(0, circuit.Shift(ports, 1), "ann"); err != nil {
		t.Errorf("the rank had left: %v", err)
	}
}
