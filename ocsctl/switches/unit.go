package switches

import (
	"context"
	"errors"
	"fmt"
	"time"

	"lightpath/ocsctl/controller"
	"lightpath/ocsctl/driver"
	"lightpath/plans/circuit"
)

const (
	// firstRetry is the pause after a look that failed, doubled with each that follows: a switch that
	// is back soon is found soon.
	firstRetry = 250 * time.Millisecond
	// gather is how long news of a switch is collected before it is looked at.
	gather = 50 * time.Millisecond
)

// unit is one physical switch with the planes on it. Its goroutine alone touches what is below the
// channels.
type unit struct {
	d      *Device
	name   string
	planes []*plane
	ports  driver.Ports // of all planes, one after the other

	wake    chan struct{} // a plane wants to move
	changed chan struct{} // the switch says that something has changed

	sw       driver.Switch       // nil while there is no session
	unwatch  context.CancelFunc  // ends the subscription of sw
	table    circuit.Permutation // of all ports, as last read; nil: unknown
	answered bool                // it ever has
	misses   int                 // looks in a row that failed

	info driver.Info // who it says it is; Device.mu guards this and what follows
	bad  error       // why the last look told nothing
}

// Seen is what is known of a physical switch.
type Seen struct {
	Name   string
	Info   driver.Info // zero until it has answered
	Planes []string
	Err    error // why it is not known how the switch is
}

// Switches says how the switches are, as far as the last looks at them tell.
func (d *Device) Switches() []Seen {
	d.mu.Lock()
	defer d.mu.Unlock()
	var all []Seen
	for _, u := range d.units {
		s := Seen{Name: u.name, Info: u.info, Err: u.bad}
		for _, p := range u.planes {
			s.Planes = append(s.Planes, p.name)
		}
		all = append(all, s)
	}
	return all
}

// add gives the switch another plane.
func (u *unit) add(p *plane) error {
	if len(u.planes) > 0 && (u.ports.Out == nil) != (p.ports.Out == nil) {
		return fmt.Errorf("planes %s and %s are on switch %s: either all ports have the form in/out or none has", u.planes[0].name, p.name, u.name)
	}
	u.planes = append(u.planes, p)
	u.ports.In = append(u.ports.In, p.ports.In...)
	if p.ports.Out != nil {
		u.ports.Out = append(u.ports.Out, p.ports.Out...)
	}
	return nil
}

// run serves the switch until the context ends.
func (u *unit) run(ctx context.Context) {
	defer u.hangUp()
	timer := time.NewTimer(u.pause())
	defer timer.Stop()
	soon := false // the next look is due because of news
	for {
		select {
		case <-ctx.Done():
			u.abandon()
			return
		case <-u.changed:
			if !soon {
				soon = true
				timer.Reset(min(gather, u.pause()))
			}
			continue
		case <-u.wake:
			u.carry(ctx)
		case <-timer.C:
			u.look(ctx)
		}
		soon = false
		timer.Reset(u.pause())
	}
}

// abandon ends the moves that were never begun.
func (u *unit) abandon() {
	var planes []*plane
	u.d.mu.Lock()
	for _, p := range u.planes {
		if p.move != nil {
			p.failure, p.move = fmt.Errorf("epoch %d: %w", p.move.Epoch, ErrClosed), nil
			planes = append(planes, p)
		}
	}
	u.d.mu.Unlock()
	u.d.notify(planes)
}

// pause is how long until the next look.
func (u *unit) pause() time.Duration {
	pause := u.d.cfg.DriftInterval
	if u.misses > 0 {
		pause = min(pause, firstRetry<<min(u.misses-1, 16))
	}
	return pause
}

// open connects, where there is no session.
func (u *unit) open(ctx context.Context) error {
	if u.sw != nil {
		return nil
	}
	sw, err := u.d.cfg.Open(ctx, u.name, u.ports)
	if err != nil {
		return err
	}
	u.sw = sw
	if info, err := sw.Info(ctx); err == nil { // for operators only
		u.d.mu.Lock()
		u.info = info
		u.d.mu.Unlock()
	}
	if w, ok := sw.(driver.Watcher); ok {
		u.subscribe(w)
	}
	return nil
}

// subscribe listens to a switch that says when something changes. Where the subscription ends, the
// looks go on.
func (u *unit) subscribe(w driver.Watcher) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	u.unwatch = func() {
		cancel()
		<-ended
	}
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			_ = w.Watch(ctx, func() { // why it ended is what the next look finds
				select {
				case u.changed <- struct{}{}:
				default:
				}
			})
			select {
			case <-ctx.Done():
			case <-time.After(u.d.cfg.DriftInterval):
			}
		}
	}()
}

func (u *unit) hangUp() {
	if u.unwatch != nil {
		u.unwatch()
		u.unwatch = nil
	}
	if u.sw != nil {
		_ = u.sw.Close() // how a session ends changes nothing
		u.sw = nil
	}
}

// look reads the switch's map and the health of its ports, and tells the controller of every plane that
// has something new.
func (u *unit) look(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, u.d.cfg.LookTimeout)
	defer cancel()
	table, health, err := u.ask(ctx)
	if ctx.Err() != nil && err == nil {
		err = ctx.Err()
	}
	matching := errors.Is(err, driver.ErrNotMatching)
	switch {
	case err == nil:
		u.table, u.misses, u.answered = table, 0, true
	case matching: // it answers, and what it says is no map
		u.table, u.misses = nil, 0
	default:
		u.misses++
		if u.answered && u.misses < u.d.cfg.Misses {
			return // patience: what is known stays
		}
		u.table = nil
		err = fmt.Errorf("switch %s does not answer: %w", u.name, err)
	}
	u.d.mu.Lock()
	u.bad = err
	u.d.mu.Unlock()
	if err != nil {
		u.lost(err)
		return
	}
	u.seen(health)
}

func (u *unit) ask(ctx context.Context) (circuit.Permutation, []driver.Health, error) {
	if err := u.open(ctx); err != nil {
		return nil, nil, err
	}
	table, err := u.read(ctx)
	if err != nil {
		return nil, nil, err
	}
	health, err := u.sw.Health(ctx)
	return table, health, err
}

// read reads the map; a driver that breaks its promise is not believed.
func (u *unit) read(ctx context.Context) (circuit.Permutation, error) {
	table, err := u.sw.Read(ctx)
	if err != nil {
		return nil, err
	}
	if err := table.Validate(len(u.ports.In)); err != nil {
		return nil, fmt.Errorf("%w: %w", driver.ErrProtocol, err)
	}
	return table, nil
}

// lost makes all planes that do not move unknown.
func (u *unit) lost(why error) {
	u.update(func(p *plane) {
		p.observed, p.unknown, p.watch = nil, why, why
	})
}

// seen takes over what a look has found.
func (u *unit) seen(health []driver.Health) {
	u.update(func(p *plane) {
		p.observed, p.unknown = u.block(u.table, p)
		p.watch = p.unknown
		if p.watch == nil {
			p.watch = u.unfit(p, health)
		}
		if p.watch == nil && p.failure != nil && time.Since(p.ended) > u.d.cfg.Averaging && u.recovered(p, health) {
			p.failure = nil
			clear(p.suspect)
		}
	})
}

// recovered reports whether the circuits that a failed move left in doubt are good after all: the fibre
// was cleaned, or only answers were lost. A switch that obeys somebody else does not recover.
func (u *unit) recovered(p *plane, health []driver.Health) bool {
	if errors.Is(p.failure, driver.ErrFenced) {
		return false
	}
	for r, suspect := range p.suspect {
		if to := p.observed[r]; suspect && to != circuit.Dark {
			h := health[len(u.ports.In)+p.first+to]
			if p.mute || h.HasPower && h.PowerDBm < u.d.cfg.LightDBm {
				return false
			}
		}
	}
	return true
}

// update changes the planes that do not move, and tells of those that look different afterwards.
func (u *unit) update(change func(p *plane)) {
	var news []*plane
	u.d.mu.Lock()
	for _, p := range u.planes {
		if p.move != nil {
			continue
		}
		before, was := p.observed, text(p.unwell())
		change(p)
		if !p.observed.Equal(before) || (p.observed == nil) != (before == nil) || text(p.unwell()) != was {
			news = append(news, p)
		}
	}
	u.d.mu.Unlock()
	u.d.notify(news)
}

// block is a plane's part of a map of the whole switch.
func (u *unit) block(table circuit.Permutation, p *plane) (circuit.Permutation, error) {
	n := len(p.ports.In)
	own := circuit.AllDark(n)
	for r := range own {
		to := table[p.first+r]
		if to == circuit.Dark {
			continue
		}
		if own[r] = to - p.first; own[r] < 0 || own[r] >= n {
			return nil, fmt.Errorf("port %s of rank %d goes to a port of another plane, %s", u.ports.In[p.first+r], r, u.egress(to))
		}
	}
	for r, to := range table { // ours that receive from others
		if (r < p.first || r >= p.first+n) && to >= p.first && to < p.first+n {
			return nil, fmt.Errorf("port %s of rank %d receives from a port of another plane, %s", u.egress(to), to-p.first, u.ports.In[r])
		}
	}
	return own, nil
}

// egress names the egress side of a port, as far as its name is known.
func (u *unit) egress(port int) string {
	if u.ports.Out == nil {
		return u.ports.In[port]
	}
	return u.ports.Out[port]
}

// unfit is the first port of a plane that has failed or has lost its light. Health lists ingress ports,
// then egress ports.
func (u *unit) unfit(p *plane, health []driver.Health) error {
	n := len(u.ports.In)
	if len(health) != 2*n {
		return fmt.Errorf("%w: health of %d ports, want %d", driver.ErrProtocol, len(health), 2*n)
	}
	for r := range p.ports.In {
		for _, h := range []driver.Health{health[p.first+r], health[n+p.first+r]} {
			if h.Failed {
				return fmt.Errorf("port %s of rank %d is %s", h.Port, r, h.State)
			}
		}
	}
	if p.verified < driver.Light { // light was never seen
		return nil
	}
	for r, to := range p.observed {
		if to == circuit.Dark {
			continue
		}
		if h := health[n+p.first+to]; h.HasPower && h.PowerDBm < u.d.cfg.LightDBm {
			return fmt.Errorf("light is lost: port %s of rank %d receives %.2f dBm from rank %d, want %.2f", h.Port, to, h.PowerDBm, r, u.d.cfg.LightDBm)
		}
	}
	return nil
}

// unwell says why a plane should not be used; Device.mu is held.
func (p *plane) unwell() error {
	err := p.failure
	if err == nil {
		err = p.watch
	}
	if err == nil {
		return nil
	}
	if errors.Is(err, driver.ErrFenced) {
		err = fmt.Errorf("%w: %w", controller.ErrNotLeader, err)
	}
	return fmt.Errorf("switches: plane %s: %w", p.name, err)
}

// drift reports the first circuit of now that is not as desired.
func (p *plane) drift(now, desired circuit.Permutation) error {
	for r := range now {
		if now[r] != desired[r] {
			return fmt.Errorf("%w: port %s of rank %d goes to %s, want %s", driver.ErrDrift, p.ports.In[r], r, rank(now[r]), rank(desired[r]))
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

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
