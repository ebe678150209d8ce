package lead

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"lightpath/ocsctl/controller"
	"lightpath/ocsctl/controller/journal"
)

// Options describe the controller to run. Store, Ports, Planes and Build are required.
type Options struct {
	Name, Address string        // of this controller, the same as in the store
	Store         journal.Store // closed by the caller, after Run
	Ports, Planes int
	// Build starts the core of a rule. c has what depends on the rule: Token, LastSeq, Recovered, Before, Journal, Leading
	// and Log. Build sets the other fields. An error ends Run, so that another controller can rule.
	Build func(c controller.Config) (*controller.Core, error)
	// OnLeader connects the core to front ends; stop disconnects it, before the core is closed. An error ends Run.
	// nil: callers use [Runner.Controller].
	OnLeader func(*controller.Core) (stop func(), err error)
	// OnEnd is called after the core of a rule was closed. It closes the resources that Build opened, so that the next
	// controller can open them. nil: there are none.
	OnEnd  func()
	Logger *slog.Logger // nil: nothing is logged
}

// Timing of Run.
const (
	resignTimeout = 5 * time.Second
	lookEvery     = 200 * time.Millisecond
)

// Runner is a controller that rules or stands by. Methods may be called from any goroutine.
type Runner struct {
	o      Options
	core   atomic.Pointer[controller.Core]
	own    atomic.Uint64 // token of the last rule of this controller
	ruling atomic.Bool   // this rule lasts
}

// New checks the options and returns a Runner.
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

// Controller returns the core while this controller is in charge. Otherwise it returns nil and the name of the
// controller that is; "": none is known.
func (r *Runner) Controller() (c controller.Controller, leader string) {
	if core := r.core.Load(); core != nil {
		return core, core.Name()
	}
	return nil, r.other().Name
}

// Standby names the controller that is in charge while this one is not: "NAME at ADDRESS is". The text ends a sentence
// of the caller.
func (r *Runner) Standby() string {
	l := r.o.Store.Leader()
	switch {
	case r.ruling.Load():
		return "it takes over at this moment"
	case r.before(l):
		return "its own last run is, until that one's lease ends"
	case l.Name == "" || l.Token == r.own.Load():
		return "no other controller is known to be"
	case l.Address == "":
		return l.Name + " is"
	}
	return l.Name + " at " + l.Address + " is"
}

// before reports whether a leader is an earlier run of this controller.
func (r *Runner) before(l journal.Leader) bool {
	return l.Token != r.own.Load() && l.Name != "" && l.Name == r.o.Name && l.Address == r.o.Address
}

// other returns the other controller that is in charge, as far as known. It returns the zero value if the journal names
// this one: its rule is about to start, has just ended, or is one from before its restart.
func (r *Runner) other() journal.Leader {
	l := r.o.Store.Leader()
	if l.Token == r.own.Load() || r.before(l) {
		return journal.Leader{}
	}
	return l
}

// Run campaigns and rules in turn until ctx ends; then it resigns and returns nil. It returns an error only if a
// further attempt would not help.
func (r *Runner) Run(ctx context.Context) error {
	for {
		rule, err := r.campaign(ctx)
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

// campaign waits until this controller rules. Until then, it logs for which controller it stands by.
func (r *Runner) campaign(ctx context.Context) (journal.Leadership, error) {
	var watched sync.WaitGroup
	defer watched.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	watched.Go(func() {
		tick := time.NewTicker(lookEvery)
		defer tick.Stop()
		for told := (journal.Leader{}); ; {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if now := r.other(); now != told && now.Name != "" {
				told = now
				r.o.Logger.Info("standing by", "in charge", now.Name, "address", now.Address, "token", now.Token)
			}
		}
	})
	return r.o.Store.Campaign(ctx)
}

// rule runs the core of a rule until ctx or the rule ends.
func (r *Runner) rule(ctx context.Context, l journal.Leadership) (err error) {
	log := r.o.Logger.With("token", l.Token())
	r.own.Store(l.Token())
	r.ruling.Store(true)
	defer r.ruling.Store(false)
	defer func() {
		// Also after the rule has ended: this releases the lease.
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
	before, err := ranksBefore(ctx, r.o.Store, r.o.Ports, l.LastSeq())
	if err != nil {
		log.Warn("the history cannot be read: all ranks are waited for", "error", err)
	}
	core, err := r.o.Build(controller.Config{
		Token: l.Token(), LastSeq: l.LastSeq(), Recovered: at, Before: before, Journal: l, Leading: l.Err, Log: log,
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
	logStart(log, core, at)
	why := watch(ctx, l, base)
	if ctx.Err() != nil {
		log.Info("ends as asked")
	} else {
		log.Warn("not in charge any more", "reason", why)
	}
	core.Resign(why)
	return nil
}

// logStart logs the start of a rule, and its planes. It leaves out planes whose failure the core has logged.
func logStart(log *slog.Logger, core *controller.Core, at []controller.Recovered) {
	s, err := core.Snapshot()
	if err != nil || !s.Leader {
		return // the core has stopped, or a switch obeys another controller
	}
	log.Info("in charge", "controller", core.Name())
	for j, p := range s.Planes {
		if p.State == controller.Down {
			if p.Reason != "" && (j >= len(at) || at[j].Disabled != "") {
				log.Warn("plane is out of service", "plane", p.Name, "reason", p.Reason)
			}
			continue
		}
		circuits := "as the journal says"
		if j >= len(at) || at[j].Map == nil {
			circuits = "taken as found: the journal has no record of them"
		}
		log.Info("plane is in service", "plane", p.Name, "epoch", p.Epoch, "verified", p.Verified, "circuits", circuits)
	}
}

// watch waits for the end of the rule, and returns its reason.
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

// baseline records the maps of planes that have no record in the journal, as soon as their devices have reported them.
// From then on, a takeover can detect drift.
type baseline struct {
	core    *controller.Core
	rule    journal.Leadership
	unknown []bool // by plane: it has no record
	left    int    // number of planes without a record
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

// record records the maps that have become known, and reports whether the core still rules. It does not if a device has
// reported a controller with a higher token.
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
