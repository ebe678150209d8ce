package device

import (
	"time"

	"lightpath/plans/circuit"
)

// Lit returns the circuits that carry light. It is the true state, whereas Table is the switch's report: ghosts are
// dark, and so are circuits of a stuck mirror that are reported as TUNED.
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

// Due returns the time of the next change without a request; zero: there is none. Reads from that time on show the
// change. The first read calls the watchers, or a timer, which may be a millisecond late.
func (d *Device) Due() time.Time {
	d.lock()
	defer d.unlock()
	if !d.bootAt.IsZero() && (d.next.IsZero() || d.bootAt.Before(d.next)) {
		return d.bootAt
	}
	return d.next
}
