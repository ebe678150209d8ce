package verbstest

import (
	"golang.org/x/sys/unix"

	"lightpath/collectives/transport/rdma"
)

// RaiseEvent adds an event of a device.
func RaiseEvent(d rdma.Device, e rdma.Event) {
	own := d.(*device)
	own.n.mu.Lock()
	defer own.n.mu.Unlock()
	own.events = append(own.events, e)
	_, _ = unix.Write(own.eventFD, one)
}

// Event implements [rdma.Device].
func (d *device) Event() (rdma.Event, bool, error) {
	d.n.mu.Lock()
	defer d.n.mu.Unlock()
	if len(d.events) == 0 {
		return rdma.Event{}, false, nil
	}
	e := d.events[0]
	if d.events = d.events[1:]; len(d.events) == 0 {
		var count [8]byte
		_, _ = unix.Read(d.eventFD, count[:])
	}
	return e, true, nil
}

// EventFD implements [rdma.Device].
func (d *device) EventFD() int { return d.eventFD }
