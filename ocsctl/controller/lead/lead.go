// Package lead runs a controller for as long as it is the one in charge: it campaigns, builds
// the core on what the rule before has left, hands it to the front ends, takes it away from them
// when the rule ends, and campaigns again.
//
// Layer: ocsctl, above the core and the journal; commands compose the rest. It knows neither
// devices nor front ends.
package lead

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"lightpath/ocsctl/controller"
	"lightpath/ocsctl/controller/journal"
)

// Rule is what a core is built on.
type Rule struct {
	Token     uint64
	LastSeq   uint64
	Recovered []controller.Recovered // nil: a beginning
	Absent    []bool                 // ports that had no rank in the rule before
	Journal   controller.Journal
	Leading   func() error // nil while the rule lasts
}

// Apply sets what a rule decides of a core's configuration.
func (r *Rule) Apply(c *controller.Config) {
	c.Token, c.LastSeq, c.Recovered, c.Absent = r.Token, r.LastSeq, r.Recovered, r.Absent
	c.Journal, c.Leading = r.Journal, r.Leading
}

// Options say what is run. Store, Ports, Planes and Build are required.
type Options struct {
	Store         journal.Store // closed by the caller, after Run
	Ports, Planes int
	// Build starts the core of a rule, on a configuration that the rule was applied to. An error
	// ends Run: another controller may be able to.
	Build func(Rule) (*controller.Core, error)
	// OnLeader shows the core to ranks and operators; stop has to end that, before the core is
	// closed. An error ends Run. nil: who wants the core asks [Runner.Controller].
	OnLeader func(*controller.Core) (stop func(), err error)
	// OnEnd is called when the core of a rule has been closed: what Build has opened for it has to go
	// before the next controller can have it. nil: nothing has to.
	OnEnd  func()
	Logger *slog.Logger // nil: nothing is logged
}

// Bounds of what Run waits for.
const (
	resignTimeout = 5 * time.Second
	lookEvery     = 200 * time.Millisecond
)

// Runner is a controller that rules or stands by. Methods may be called from any goroutine.
type Runner struct {
	o    Options
	core atomic.Pointer[controller.Core]
}

// New checks the options.
func New(o Options) (*Runner, error) {
	switch {
	case o.Store == nil:
		return nil, errors.New("lead: store: missing")
	case o.Build == nil:
		return nil, errors.New("lead: build: missing")
	case o.Ports < 1 || o.Planes < 1:
		return nil, fmt.Errorf("lead: a fabric of %d ports and %d planes", o.Ports, o.Planes)
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.OnLeader == nil {
		o.OnLeader = func(*controller.Core) (func(), error) { return func() {}, nil }
	}
	return &Runner{o: o}, nil
}

// Run is New and [Runner.Run].
func Run(ctx context.Context, o Options) error {
	r, err := New(o)
	if err != nil {
		return err
	}
	return r.Run(ctx)
}

// Controller returns the core while this controller is in charge. Otherwise it returns nil and
// the name of the one that is; "" where none is known.
func (r *Runner) Controller() (c controller.Controller, leader string) {
	if core := r.core.Load(); core != nil {
		return core, core.Name()
	}
	return nil, r.Leader().Name
}

// Leader returns who is in charge, as far as it is known.
func (r *Runner) Leader() journal.Leader { return r.o.Store.Leader() }

// Run campaigns and rules, again and again, until ctx ends: then it resigns and returns nil. Its
// errors are those that trying again would not mend.
func (r *Runner) Run(ctx context.Context) error {
	for {
		rule, err := r.o.Store.Campaign(ctx)
		if err == nil {
			err = r.rule(ctx, rule)
		}
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// rule rules until ctx or the rule ends.
func (r *Runner) rule(ctx context.Context, l journal.Leadership) (err error) {
	log := r.o.Logger.With("token", l.Token())
	defer func() {
		// A rule that has ended has nothing to resign from; this gives the lease back.
		bounded, cancel := context.WithTimeout(context.Background(), resignTimeout)
		defer cancel()
		if e := l.Resign(bounded); e != nil {
			log.Warn("could not resign: the next controller waits for the lease to run out", "error", e)
		}
	}()
	at, err := l.Recovered(r.o.Ports, r.o.Planes)
	if err != nil {
		return err
	}
	away, err := absent(ctx, r.o.Store, r.o.Ports, l.LastSeq())
	if err != nil {
		log.Warn("the history cannot be read: all ranks are waited for", "error", err)
		away = nil
	}
	core, err := r.o.Build(Rule{
		Token: l.Token(), LastSeq: l.LastSeq(), Recovered: at, Absent: away, Journal: l, Leading: l.Err,
	})
	if err != nil {
		return fmt.Errorf("lead: token %d: %w", l.Token(), err)
	}
	if r.o.OnEnd != nil {
		defer r.o.OnEnd()
	}
	defer core.Close()
	base := newBaseline(core, l, at, r.o.Planes)
	base.record()
	stop, err := r.o.OnLeader(core)
	if err != nil {
		return fmt.Errorf("lead: token %d: %w", l.Token(), err)
	}
	defer stop()
	r.core.Store(core)
	defer r.core.Store(nil)
	log.Info("in charge", "controller", core.Name())
	why := watch(ctx, l, base)
	log.Warn("not in charge any more", "reason", why)
	core.Resign(why)
	return nil
}

// watch returns why the rule has ended.
func watch(ctx context.Context, l journal.Leadership, base *baseline) error {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return fmt.Errorf("lead: shutting down: %w", controller.ErrNotLeader)
		case <-l.Done():
			return l.Err()
		case <-tick.C:
			if !base.record() {
				return fmt.Errorf("lead: the core has given up: %w", controller.ErrNotLeader)
			}
		}
	}
}

// baseline tells the journal where planes are that it has no record of, as soon as their devices
// have said so: from then on a takeover can tell drift from a beginning.
type baseline struct {
	core    *controller.Core
	rule    journal.Leadership
	unknown []bool // by plane
	left    int    // planes that are
}

func newBaseline(c *controller.Core, l journal.Leadership, at []controller.Recovered, planes int) *baseline {
	b := &baseline{core: c, rule: l, unknown: make([]bool, planes)}
	for j := range b.unknown {
		if b.unknown[j] = j >= len(at) || at[j].Map == nil; b.unknown[j] {
			b.left++
		}
	}
	return b
}

// record records what has become known, and reports whether the core still rules: a device may
// have told it that another controller does.
func (b *baseline) record() bool {
	s, err := b.core.Snapshot()
	if err != nil || !s.Leader {
		return false
	}
	if b.left == 0 {
		return true
	}
	at := make([]controller.Recovered, len(b.unknown))
	for j, p := range s.Planes[:min(len(s.Planes), len(at))] {
		if b.unknown[j] && (p.State == controller.Resident || p.State == controller.Waiting) {
			at[j] = controller.Recovered{Epoch: p.Epoch, Map: p.Map}
			b.unknown[j] = false
			b.left--
		}
	}
	b.rule.Baseline(at)
	return true
}
