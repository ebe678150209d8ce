package rdma

import (
	"fmt"
	"net/netip"
)

// eventID - i is the event id of device i of an endpoint.
const eventID = -3

// devicePort is the device and the port of a plane.
type devicePort struct {
	device Device
	number int // of the device in Endpoint.devices
	port   int
	gid    GID // address that peers use
	index  int // of gid in the port's table
	note   string
}

// readDeviceEvents handles all pending events of device i. The caller holds e.mu.
func (e *Endpoint) readDeviceEvents(i int) {
	d := e.devices[i]
	for {
		ev, some, err := d.Event()
		if !some && err == nil {
			return
		}
		for _, p := range e.planes {
			switch {
			case p.dev.device != d:
			case err != nil:
				p.failAll(fmt.Errorf("%w: read its events: %w", ErrDevice, err))
			default:
				p.handleEvent(&ev)
			}
		}
		if err != nil {
			return
		}
	}
}

// handleEvent handles an event of the plane's device. If retransmission may recover from the event, handleEvent only
// stores a note, which later errors include.
func (p *plane) handleEvent(ev *Event) {
	at := &p.dev
	switch ev.Kind {
	case DeviceFatal, CQFailed:
		p.failAll(fmt.Errorf("%w: %s", ErrDevice, ev.Kind))
	case QueueFailed:
		for r := range p.peers {
			if q := &p.peers[r]; q.qp != nil && q.qp.Number() == ev.QPN {
				p.fail(q, p.wrapError(q.epoch, fmt.Errorf("%w: QP %#x to rank %d: %s", ErrDevice, ev.QPN, r, ev.Kind)))
			}
		}
	case PortDown:
		if ev.Port != at.port {
			return
		}
		if at.note = ev.Kind.String(); p.unacknowledged { // UC does not retransmit
			p.failAll(fmt.Errorf("%w: port %d: %s", ErrDevice, at.port, ev.Kind))
		}
	case PortUp:
		if ev.Port == at.port {
			at.note = ""
		}
	case AddressMoved:
		// Other entries of the table do not matter.
		if now, err := at.device.GID(at.port, at.index); ev.Port == at.port && (err != nil || now.GID != at.gid) {
			p.failAll(fmt.Errorf("%w: port %d: GID %d is no longer %v", ErrDevice, at.port, at.index, netip.AddrFrom16(at.gid)))
		}
	}
}

// failAll ends the flows to and from all peers.
func (p *plane) failAll(err error) {
	for r := range p.peers {
		if q := &p.peers[r]; r != p.rank {
			p.fail(q, p.wrapError(q.epoch, err))
		}
	}
}

// wrapError adds rank, plane and epoch to an error.
func (p *plane) wrapError(epoch uint32, err error) error {
	return fmt.Errorf("transport: rank %d, plane %d, epoch %d: %w", p.rank, p.id, epoch, err)
}
