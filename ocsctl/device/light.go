package device

import (
	"time"

	"lightpath/plans/circuit"
)

// Lit returns the circuits that light goes through. That is the truth, where Table is what the
// switch says of it: ghosts are dark, and so is a mirror that is stuck but claims to be TUNED.
func (d *Device) Lit() circuit.Permutation {
	d.lock()
	defer d.unlock()
	p := circuit.AllDark(d.cfg.Ports)
	for in, r := range d.byIn {
		if r != nil && d.carries(r) {
			p[in] = r.out
		}
	}
	return p
}

// Due returns when the state changes next by itself; zero: it does not. Reads from that time on show
// the change. Watchers are called at the first read, or by a timer, which may be a millisecond late.
func (d *Device) Due() time.Time {
	d.lock()
	defer d.unlock()
	if !d.bootAt.IsZero() && (d.next.IsZero() || d.bootAt.Before(d.next)) {
		return d.bootAt
	}
	return d.next
}
