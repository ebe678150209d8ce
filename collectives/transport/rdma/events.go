package rdma

import (
	"fmt"
	"net/netip"
)

// eventID marks the events of device i of an endpoint as eventID - i.
const eventID = -3

// attachment is a plane's end of its device, as events concern it.
type attachment struct {
	device Device
	number int // of the device, in the endpoint
	port   int
	gid    GID // by which it is known to the peers
	index  int // of that
	note   string
}

// events acts on what has befallen device i. The caller holds e.mu.
func (e *Endpoint) events(i int) {
	d := e.devices[i]
	for {
		ev, some, err := d.Event()
		if !some && err == nil {
			return
		}
		for _, p := range e.planes {
			switch {
			case p.at.device != d:
			case err != nil:
				p.failAll(fmt.Errorf("%w: its events: %w", ErrDevice, err))
			default:
				p.befall(&ev)
			}
		}
		if err != nil {
			return
		}
	}
}

// befall acts on an event of the plane's device. What retransmission may mend is only noted: an error
// that comes of it says so.
func (p *plane) befall(ev *Event) {
	at := &p.at
	switch ev.Kind {
	case DeviceFatal, CQFailed:
		p.failAll(fmt.Errorf("%w: %s", ErrDevice, ev.Kind))
	case QueueFailed:
		for r := range p.peers {
			if q := &p.peers[r]; q.qp != nil && q.qp.Number() == ev.QPN {
				p.fail(q, p.broke(q.epoch, fmt.Errorf("%w: QP %#x to rank %d: %s", ErrDevice, ev.QPN, r, ev.Kind)))
			}
		}
	case PortDown:
		if ev.Port != at.port {
			return
		}
		if at.note = ev.Kind.String(); p.unacknowledged { // nothing is sent again
			p.failAll(fmt.Errorf("%w: port %d: %s", ErrDevice, at.port, ev.Kind))
		}
	case PortUp:
		if ev.Port == at.port {
			at.note = ""
		}
	case AddressMoved:
		// An entry that no connection was made with is nobody's business.
		if now, err := at.device.GID(at.port, at.index); ev.Port == at.port && (err != nil || now.GID != at.gid) {
			p.failAll(fmt.Errorf("%w: port %d: GID %d is no longer %v", ErrDevice, at.port, at.index, netip.AddrFrom16(at.gid)))
		}
	}
}

// failAll ends the flows to and from all peers.
func (p *plane) failAll(err error) {
	for r := range p.peers {
		if q := &p.peers[r]; r != p.rank {
			p.fail(q, p.broke(q.epoch, err))
		}
	}
}

// broke says where an error is.
func (p *plane) broke(epoch uint32, err error) error {
	return fmt.Errorf("transport: rank %d, plane %d, epoch %d: %w", p.rank, p.id, epoch, err)
}
