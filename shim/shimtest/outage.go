package shimtest

import (
	"fmt"
	"sync/atomic"

	"lightpath/ocsctl"
	"lightpath/shim/circuits"
	"lightpath/shim/endpoints"
)

// Outage takes planes out of service for some communicators, as their controller does.
type Outage struct {
	Down  atomic.Uint64
	Polls atomic.Int64 // polls of planes that are down until all planes return; 0: polls do not bring them back
}

// outageController is a controller of which some planes are out of service.
type outageController struct {
	endpoints.Client
	*Outage
}

// Acquire implements ocsctl.Client.
func (c outageController) Acquire(l ocsctl.Lease) (uint64, error) {
	up := l.Mask &^ c.Down.Load()
	if up == 0 {
		return 0, fmt.Errorf("planes %#x: mirrors are being cleaned: %w", l.Mask, ocsctl.ErrPlaneDown)
	}
	l.Mask, l.Circuits = up, nil // one map for each plane of the mask
	return c.Client.Acquire(l)
}

// Poll implements ocsctl.Client.
func (c outageController) Poll(plane int) (uint32, error) {
	epoch, err := c.Client.Poll(plane)
	if c.Down.Load()>>plane&1 != 0 {
		if c.Polls.Load() > 0 && c.Polls.Add(-1) == 0 {
			c.Down.Store(0)
		}
		err = fmt.Errorf("plane %d epoch %d: mirrors are being cleaned: %w", plane, epoch, ocsctl.ErrPlaneDown)
	}
	return epoch, err
}

// Apply puts the outage between communicators and their controller.
func (o *Outage) Apply(worlds ...*World) {
	for _, w := range worlds {
		for _, c := range w.Comms {
			if _, twice := circuits.Of(c).Controller.Client.(outageController); !twice {
				circuits.Of(c).Controller.Client = outageController{circuits.Of(c).Controller.Client, o}
			}
		}
	}
}
