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
func (c outageController) Acquire(mask, holder uint64, ports ...int) (uint64, error) {
	return c.granted(mask, holder, c.Client.Acquire, ports...)
}

// Share implements ocsctl.Client.
func (c outageController) Share(mask, holder uint64, ports ...int) (uint64, error) {
	return c.granted(mask, holder, c.Client.Share, ports...)
}

func (c outageController) granted(mask, holder uint64, ask func(uint64, uint64, ...int) (uint64, error),
	ports ...int) (uint64, error) {
	up := mask &^ c.Down.Load()
	if up == 0 {
		return 0, fmt.Errorf("planes %#x: mirrors are being cleaned: %w", mask, ocsctl.ErrPlaneDown)
	}
	return ask(up, holder, ports...)
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
