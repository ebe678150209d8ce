package switches

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"lightpath/internal/clock"
	"lightpath/ocsctl/controller"
	"lightpath/ocsctl/driver"
	"lightpath/plans/circuit"
)

const (
	// firstRetry is the pause after a failed read; it doubles with each further failure.
	firstRetry = 250 * time.Millisecond
	// gather is the pause between a notification of a switch and the read, to collect further notifications.
	gather = 50 * time.Millisecond
)

// unit is one physical switch with its planes. Only its goroutine or task uses the fields below wake and changed.
type unit struct {
	d      *Device
	name   string
	log    *slog.Logger
	planes []*plane
	ports  driver.Ports // of all planes, one after the other

	wake    chan struct{} // a plane has a pending move, or changed is set
	changed atomic.Bool   // the switch has notified of a change

	sw       driver.Switch      // nil while there is no session
	s        *driver.Session    // of sw: the state of the circuits of all planes
	unwatch  func()             // ends the subscription of sw
	answered bool               // a read of this session has succeeded
	known    bool               // info is of this session
	misses   int                // failed reads in a row
	logged   map[problemID]bool // problems that were logged and last

	info driver.Info // the switch's identity; Device.mu guards it and bad
	bad  error       // why the last read failed; nil: it succeeded
}

// Seen is the last known state of a physical switch.
type Seen struct {
	Name   string
	Info   driver.Info // zero until it has answered
	Planes []string
	Err    error // why the last read failed; nil: it succeeded
}

// Switches returns the last known state of every switch.
func (d *Device) Switches() []Seen {
	d.mu.Lock()
	defer d.mu.Unlock()
	var all []Seen
	for _, u := range d.units {
		s := Seen{Name: u.name, Info: u.info, Err: u.bad}
		for _, p := range u.planes {
			s.Planes = append(s.Planes, p.Name)
		}
		all = append(all, s)
	}
	return all
}

// add adds a plane to the switch.
func (u *unit) add(p *plane) error {
	if len(u.planes) > 0 && (u.ports.Out == nil) != (p.Ports.Out == nil) {
		return fmt.Errorf("planes %s and %s are on switch %s: either all ports have the form in/out or none has",
			u.planes[0].Name, p.Name, u.name)
	}
	u.planes = append(u.planes, p)
	u.ports.In = append(u.ports.In, p.Ports.In...)
	if p.Ports.Out != nil {
		u.ports.Out = append(u.ports.Out, p.Ports.Out...)
	}
	return nil
}

// run serves the switch until the context ends. It calls looked after the first read.
func (u *unit) run(ctx context.Context, looked func()) {
	defer u.disconnect()
	u.look(ctx)
	looked()
	due := u.nextLook(ctx)
	for latest := due; clock.Wait(ctx, due, u.wake) == nil; {
		if !clock.Now(ctx).Before(due) {
			u.look(ctx)
			due = u.nextLook(ctx)
			latest = due
		}
		switch {
		case u.executeMoves(ctx): // after each other, they put a look off, but not beyond the interval
			if due = u.nextLook(ctx); due.After(latest) {
				due = latest
			}
		case u.changed.Swap(false):
			if soon := clock.Now(ctx).Add(gather); soon.Before(due) {
				due = soon
			}
		}
	}
	u.abandon()
}

// abandon ends the pending moves with ErrClosed.
func (u *unit) abandon() {
	var planes []*plane
	u.d.mu.Lock()
	for _, p := range u.planes {
		if p.move != nil {
			p.failure, p.move = ErrClosed, nil
			planes = append(planes, p)
		}
	}
	u.d.mu.Unlock()
	u.d.notify(planes)
}

// nextLook returns the time of the next periodic read.
func (u *unit) nextLook(ctx context.Context) time.Time {
	pause := u.d.cfg.DriftInterval
	if u.misses > 0 {
		pause = min(pause, firstRetry<<min(u.misses-1, 16))
	}
	return clock.Now(ctx).Add(pause)
}

// open connects to the switch if there is no session.
func (u *unit) open(ctx context.Context) error {
	if u.sw != nil {
		return nil
	}
	sw, err := u.d.cfg.Open(ctx, u.name, u.ports)
	if err != nil {
		return err
	}
	if f, ok := sw.(driver.Fencer); ok && u.d.cfg.Token != 0 {
		if err := f.Fence(ctx, u.d.cfg.Token); err != nil && !errors.Is(err, driver.ErrRefused) {
			return errors.Join(err, sw.Close())
		}
	}
	u.sw, u.s = sw, driver.NewSession(sw, len(u.ports.In), u.d.cfg.rule())
	if w, ok := sw.(driver.Watcher); ok {
		u.subscribe(w)
	}
	return nil
}

// identify reads the switch's identity and abilities, for operators and the log. After an error they stay unknown, and
// the next look reads them.
func (u *unit) identify(ctx context.Context) {
	info, err := u.sw.Info(ctx)
	if err != nil {
		return
	}
	u.d.mu.Lock()
	same := info == u.info
	u.info, u.known = info, true
	u.d.mu.Unlock()
	if same {
		return
	}
	level := slog.LevelInfo
	if info.Reaches() < min(u.d.cfg.Verify, driver.Light) {
		level = slog.LevelWarn
	}
	u.log.Log(ctx, level, "switch answers", "vendor", info.Vendor, "model", info.Model, "serial", info.Serial,
		"verifies", info.Reaches(), "wanted", u.d.cfg.Verify)
}

// subscribe reads the switch after each of its notifications. It renews a subscription that ends; the periodic reads
// do not depend on it.
func (u *unit) subscribe(w driver.Watcher) {
	u.unwatch = u.d.start(func(ctx context.Context) {
		for ctx.Err() == nil {
			_ = w.Watch(ctx, func() { // its error is ignored: the next read finds the reason
				u.changed.Store(true)
				u.ring()
			})
			_ = clock.Sleep(ctx, u.d.cfg.DriftInterval) // the loop sees the context's end
		}
	})
}

// ring wakes the switch's goroutine or task.
func (u *unit) ring() {
	select {
	case u.wake <- struct{}{}:
	default: // it has been rung already
	}
}

// disconnect ends the session with the switch.
func (u *unit) disconnect() {
	if u.unwatch != nil {
		u.unwatch()
		u.unwatch = nil
	}
	if u.sw != nil {
		_ = u.sw.Close() // an error here has no consequence
		u.sw, u.s = nil, nil
	}
}

// look reads the switch's map and the health of its ports, and notifies the controller of planes that changed.
func (u *unit) look(ctx context.Context) {
	looking, cancel := clock.WithTimeout(ctx, u.d.cfg.LookTimeout)
	defer cancel()
	health, err := u.read(looking)
	if err == nil && !u.known {
		u.identify(looking)
	}
	if err == nil && !u.answered {
		health, err = u.verifyFound(ctx)
	}
	switch {
	case err == nil:
		u.misses, u.answered = 0, true
	case errors.Is(err, driver.ErrNotMatching): // the switch answers, with an invalid map
		u.misses = 0
	default:
		u.misses++
		if u.answered && u.misses < u.d.cfg.Misses && !errors.Is(err, driver.ErrPorts) {
			return // keep the last known state until Config.Misses reads have failed
		}
		err = u.unusable(err)
		u.disconnect() // the next session may be with a replaced switch, or need other keys
		u.answered, u.known = false, false
	}
	u.setBad(err)
	if err != nil {
		if u.s != nil {
			u.s.Forget(ctx)
		}
		u.update(func(p *plane) {
			p.lose(err)
		})
		return
	}
	now := clock.Now(ctx)
	u.update(func(p *plane) {
		u.see(p, health)
		if p.failure == nil || errors.Is(p.failure, driver.ErrFenced) {
			return
		}
		if p.watch == nil && now.Sub(p.ended) > u.d.cfg.Averaging {
			p.failure = nil // a fibre was cleaned, or only the answers of the move were lost
		}
	})
}

// verifyFound verifies the circuits of a switch that answers for the first time. A read is not enough: its meters may
// still average over a change that an earlier controller made. It takes as long as a move.
func (u *unit) verifyFound(ctx context.Context) ([]driver.Health, error) {
	moving, cancel := clock.WithTimeout(ctx, u.d.cfg.MoveTimeout)
	defer cancel()
	table := u.s.Table()
	_, err := u.s.Apply(moving, driver.Change{Before: table, After: table, Want: u.d.cfg.rule().Want})
	if err != nil && !errors.Is(err, driver.ErrNotAsIntended) { // the read below decides
		u.log.Debug("circuits could not be verified anew", "error", err)
	}
	looking, end := clock.WithTimeout(ctx, u.d.cfg.LookTimeout)
	defer end()
	return u.s.Look(looking)
}

// unusable returns the error for planes while there is no session with the switch.
func (u *unit) unusable(err error) error {
	switch {
	case errors.Is(err, driver.ErrPorts):
		return fmt.Errorf("switch %s cannot be used: %w", u.name, err)
	case errors.Is(err, driver.ErrFenced):
		return fmt.Errorf("switch %s: %w: %w", u.name, controller.ErrNotLeader, err)
	}
	return fmt.Errorf("switch %s %w: %w", u.name, driver.ErrNoAnswer, err)
}

// setBad records the error of the last read, nil for a success. It logs when the kind of error changes.
func (u *unit) setBad(err error) {
	u.d.mu.Lock()
	before := u.bad
	u.bad = err
	u.d.mu.Unlock()
	switch was, is := trouble(before), trouble(err); {
	case was == is:
	case err == nil:
		u.log.Info("switch answers again", "planes", u.planeNames())
	default:
		u.log.Warn(is, "planes", u.planeNames(), "error", err)
	}
}

// trouble returns the kind of a read's error, as text for the log; "": no error.
func trouble(err error) string {
	switch {
	case err == nil:
		return ""
	case errors.Is(err, driver.ErrNotMatching):
		return "switch reports an invalid map"
	case errors.Is(err, driver.ErrPorts):
		return "switch does not have the ports of the fabric file"
	case errors.Is(err, driver.ErrFenced):
		return "switch obeys another controller"
	}
	return "switch does not answer"
}

func (u *unit) planeNames() (all []string) {
	for _, p := range u.planes {
		all = append(all, p.Name)
	}
	return all
}

// read reads the switch's map and the health of its ports; it connects first if there is no session.
func (u *unit) read(ctx context.Context) ([]driver.Health, error) {
	if err := u.open(ctx); err != nil {
		return nil, err
	}
	return u.s.Look(ctx)
}

// see updates a plane from the session's last read. Without health, it does not look for failed ports. The caller
// holds Device.mu.
func (u *unit) see(p *plane, health []driver.Health) {
	p.verified, p.unlit = "", nil
	if p.observed, p.unknown = u.block(u.s.Table(), p); p.unknown != nil {
		p.watch = p.unknown
		return
	}
	p.verified = u.s.Level(p.first, len(p.Ports.In))
	u.readPorts(p, health)
	found := u.problems(p, health)
	u.logProblems(p, found)
	p.watch, p.unlit = badPorts(found), unlit(found)
}

// lose records that the switch's state is not known, and why. The caller holds Device.mu.
func (p *plane) lose(why error) {
	p.observed, p.unknown, p.watch, p.verified, p.unlit = nil, why, why, "", nil
	p.readings = make([]controller.PortState, len(p.Ports.In))
	for r := range p.readings {
		p.readings[r].Label = p.Ports.Label(r)
	}
}

// readPorts records what the last read says of the ports of a plane. A port's power is that of its circuit, which the
// session knows: right after a move the meters still average over earlier light. Without health, failed ports and
// states stay as they were. The caller holds Device.mu.
func (u *unit) readPorts(p *plane, health []driver.Health) {
	n := len(u.ports.In)
	all := make([]controller.PortState, len(p.Ports.In))
	for r := range all {
		all[r].Label = p.Ports.Label(r)
		in, out := p.first+r, n+p.first+r
		if out < len(health) {
			s := &health[in]
			if health[out].Failed {
				s = &health[out]
			}
			all[r].State, all[r].Failed = s.State, s.Failed
		} else if r < len(p.readings) {
			all[r].State, all[r].Failed = p.readings[r].State, p.readings[r].Failed
		}
	}
	for r, to := range p.observed {
		if c := u.s.Circuit(p.first + r); to != circuit.Dark && c.HasPower {
			all[to].DBm = &c.PowerDBm
		}
	}
	p.readings = all
}

func sameReading(a, b controller.PortState) bool {
	if (a.DBm == nil) != (b.DBm == nil) || a.DBm != nil && *a.DBm != *b.DBm {
		return false
	}
	a.DBm, b.DBm = nil, nil
	return a == b
}

// update calls change for each plane without a move, and notifies the controller of those whose map or health changed.
func (u *unit) update(change func(p *plane)) {
	var news []*plane
	u.d.mu.Lock()
	for _, p := range u.planes {
		if p.move != nil {
			continue
		}
		before, was, readings := p.observed, text(p.unwell()), p.readings
		change(p)
		if !slices.EqualFunc(readings, p.readings, sameReading) || !p.observed.Equal(before) ||
			(p.observed == nil) != (before == nil) || text(p.unwell()) != was {
			news = append(news, p)
		}
	}
	u.d.mu.Unlock()
	u.d.notify(news)
}

// block returns a plane's part of a map of the whole switch. It returns an error if a circuit leads to or from another
// plane.
func (u *unit) block(table circuit.Permutation, p *plane) (circuit.Permutation, error) {
	n := len(p.Ports.In)
	own := circuit.AllDark(n)
	for r := range own {
		to := table[p.first+r]
		if to == circuit.Dark {
			continue
		}
		if own[r] = to - p.first; own[r] < 0 || own[r] >= n {
			return nil, fmt.Errorf("port %s of rank %d goes to a port of another plane, %s",
				u.ports.In[p.first+r], r, u.egress(to))
		}
	}
	for r, to := range table { // circuits from other planes to this one
		if (r < p.first || r >= p.first+n) && to >= p.first && to < p.first+n {
			return nil, fmt.Errorf("port %s of rank %d receives from a port of another plane, %s",
				u.egress(to), to-p.first, u.ports.In[r])
		}
	}
	return own, nil
}

// egress returns the name of a port's egress side; without Ports.Out it has the name of the ingress side.
func (u *unit) egress(port int) string {
	if u.ports.Out == nil {
		return u.ports.In[port]
	}
	return u.ports.Out[port]
}

// unwell returns why ranks should not use a plane; nil: they may. The caller holds Device.mu.
func (p *plane) unwell() error {
	err := p.failure
	failed, ofPorts := errors.AsType[*controller.BadPorts](err)
	now, watched := errors.AsType[*controller.BadPorts](p.watch)
	switch {
	case err == nil, errors.Is(p.watch, driver.ErrFenced), ofPorts && p.watch != nil && !watched:
		err = p.watch
	case ofPorts && watched:
		both := &controller.BadPorts{Why: maps.Clone(now.Why), Err: failed.Err}
		maps.Copy(both.Why, failed.Why)
		err = both
	}
	if err == nil {
		return nil
	}
	if errors.Is(err, driver.ErrFenced) {
		err = fmt.Errorf("%w: %w", controller.ErrNotLeader, err)
	}
	return fmt.Errorf("switches: plane %s: %w", p.Name, err)
}

// drift returns an error for the first circuit of now that differs from desired; nil: none does.
func (p *plane) drift(now, desired circuit.Permutation) error {
	for r := range now {
		if now[r] != desired[r] {
			return fmt.Errorf("%w: port %s of rank %d goes to %s, want %s",
				driver.ErrDrift, p.Ports.In[r], r, rank(now[r]), rank(desired[r]))
		}
	}
	return nil
}

func rank(r int) string {
	if r == circuit.Dark {
		return "nowhere"
	}
	return fmt.Sprintf("rank %d", r)
}

// text describes an error with all that may change in it.
func text(err error) string {
	if err == nil {
		return ""
	}
	if b, ok := errors.AsType[*controller.BadPorts](err); ok {
		return fmt.Sprint(err, b.Why)
	}
	return err.Error()
}
