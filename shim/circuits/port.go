package circuits

import (
	"slices"
	"sync"

	"lightpath/shim/arbiter/sequence"
)

// Port is what the communicators of a rank's port share: the order in which they use the planes, and one lock for
// their tickets ahead. Ranks call in the order of their program, so the order repeats at each port, whatever
// communicators of other ports do. Safe for concurrent use.
type Port struct {
	mu      sync.Mutex
	learner *sequence.Learner
	all     []*Machine // in the order in which they came
}

// NewPort returns a port that predicts after its order has come so many times.
func NewPort(repeats int) *Port { return &Port{learner: sequence.New(repeats)} }

// NextUser says whose operation comes next at a port.
type NextUser uint8

// The turns.
const (
	Unknown NextUser = iota // not known
	Alone                   // this communicator's, since no other uses the planes
	Ours                    // this communicator's, among others
	Theirs                  // another communicator's
)

func (p *Port) join(m *Machine) {
	p.mu.Lock()
	p.all = append(p.all, m)
	p.mu.Unlock()
}

// leave removes a machine, and reports whether it was the last.
func (p *Port) leave(m *Machine) (last bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all = slices.DeleteFunc(p.all, func(o *Machine) bool { return o == m })
	return len(p.all) == 0
}

// NextUser returns whose operation comes next at the port.
func (m *Machine) NextUser() NextUser {
	m.port.mu.Lock()
	defer m.port.mu.Unlock()
	at, cycle := m.port.learner.Next()
	switch {
	case cycle == nil:
		return Unknown
	case cycle.Keys[at] != m.cfg.Holder:
		return Theirs
	case len(cycle.Keys) == 1:
		return Alone
	}
	return Ours
}

// OnNext registers a function, which must not block. The port calls it when an operation of another communicator has
// ended, and this communicator's comes next.
func (m *Machine) OnNext(f func()) {
	m.port.mu.Lock()
	m.next = f
	m.port.mu.Unlock()
}

// Ended notes that an operation of this communicator has ended at the port.
func (m *Machine) Ended() {
	p := m.port
	p.mu.Lock()
	p.learner.Add(m.cfg.Holder, -1)
	at, cycle := p.learner.Next()
	var next func()
	for _, o := range p.all {
		if cycle != nil && o != m && o.cfg.Holder == cycle.Keys[at] {
			next = o.next
		}
	}
	p.mu.Unlock()
	if next != nil {
		next()
	}
}

// waitsElsewhere reports whether the rank waits for a ticket of another communicator. These learn that the planes are
// contested. The caller holds the lock.
func (m *Machine) waitsElsewhere() (waits bool) {
	for _, o := range m.port.all {
		if o != m && o.ahead.waits {
			waits = true
			o.cfg.Contested()
		}
	}
	return waits
}

// declineOthers gives up the tickets in hand of the other communicators, since the rank waits for one of this
// communicator: it may be that the planes are held for those tickets. The caller holds the lock.
func (m *Machine) declineOthers() {
	for _, o := range m.port.all {
		if a := &o.ahead; o != m && a.state == inHand {
			a.state = void
			o.cfg.Declined(a.seq)
			m.cfg.Contested()
		}
	}
}
