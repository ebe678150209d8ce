package emulator

import (
	"fmt"
	"strings"
	"sync/atomic"

	"lightpath/ocsctl"
	"lightpath/ocsctl/controller/local"
)

// Client is a rank's connection to a switch: the connection to its controller, and the rings of the rank's port. Safe
// for concurrent use, except for the rings.
type Client struct {
	*local.Client
	view  *portView
	ports []PortMemory
	lost  []atomic.Pointer[error] // by plane: the error for lost frames of this port
}

var _ ocsctl.Client = (*Client)(nil)

// Attach makes the rings of a client whose controller has its planes in memory
// (ocsctl.DataMemory). The caller uses the result instead of l. Closing it closes l.
func Attach(l *local.Client) (*Client, error) {
	mem, info := l.Rings()
	if info == nil {
		return nil, fmt.Errorf("emulator: port %d: %w: %s", l.Port(), errNoRings, l.DataPlane())
	}
	geo := geometry{planes: len(l.Planes()), slots: info.Slots, mtu: info.MTU}
	if geo.slots < 1 || geo.slots > maxSlots || geo.mtu <= LabelSize || geo.mtu > maxMTU {
		return nil, fmt.Errorf("emulator: %w: %d slots of %d", local.ErrProtocol, geo.slots, geo.mtu)
	}
	c := &Client{Client: l, lost: make([]atomic.Pointer[error], geo.planes)}
	var err error
	if c.view, err = geo.view(mem); err != nil {
		return nil, err
	}
	for p := range geo.planes {
		c.ports = append(c.ports, PortMemory{TX: c.view.tx[p], RX: c.view.rx[p], Bell: l.Bell(), Switch: l.CoreBell(),
			idle: c.view.idle[p]})
	}
	return c, nil
}

// Ports returns the rings of the port, one entry per plane, valid until Close.
func (c *Client) Ports() []PortMemory { return c.ports }

// MTU returns the largest size of a frame in bytes, including its label.
func (c *Client) MTU() int {
	_, info := c.Rings()
	return info.MTU
}

// Poll returns the plane's epoch and its error. The error for lost frames of this port precedes the controller's error,
// which is often their consequence.
func (c *Client) Poll(plane int) (uint32, error) {
	if err := c.lost[plane].Load(); err != nil {
		return c.State(plane).Epoch, *err
	}
	if c.Use() {
		a := &c.view.alarms[plane]
		if n := a.total(); n > 0 {
			c.diagnose(plane, a, n)
		}
		c.Unuse()
		if err := c.lost[plane].Load(); err != nil {
			return c.State(plane).Epoch, *err
		}
	}
	return c.Client.Poll(plane)
}

// diagnose converts the alarms of a plane to an error.
func (c *Client) diagnose(plane int, a *alarms, n uint32) {
	var why []string
	is := ocsctl.ErrFramesLost
	for v := range a.lost {
		if k := a.lost[v].Load(); k > 0 {
			text := fmt.Sprintf("%d %v", k, Verdict(v))
			if Verdict(v) == LostVacant {
				text += fmt.Sprintf(": the rank of port %d is gone", a.gone.Load())
				is = fmt.Errorf("%w: %w", is, ocsctl.ErrPortLost)
			}
			why = append(why, text)
		}
	}
	err := fmt.Errorf("emulator: port %d plane %d epoch %d: %d frames (%s): %w", c.Port(), plane, a.epoch.Load(), n,
		strings.Join(why, ", "), is)
	c.lost[plane].CompareAndSwap(nil, &err)
}
