package ebpf

import (
	"net/netip"

	"lightpath/collectives/transport/internal/counts"
)

// A credit message (package counts) tells a rank, per plane, the number of its frames that the sender has consumed.
const (
	// creditParts is the number of credit messages per window.
	creditParts = 4
	// creditBurst is the largest number of messages that one poll reads.
	creditBurst = 64
)

// newControl returns the endpoint's socket on the control network.
func newControl(fd int, o *Options) *counts.Socket {
	co := counts.Options{
		Rank: o.Rank, Comm: o.Comm, Counts: len(o.Addrs[o.Rank].Planes), Secret: o.Secret,
		Addrs: make([]netip.AddrPort, len(o.Addrs)),
	}
	for r := range o.Addrs {
		co.Addrs[r] = o.Addrs[r].Control
	}
	return counts.New(fd, co)
}

// sendCredits sends a rank its credits. If the network loses the message, the rank requests another.
// Hot path: no allocation, no logging.
func (e *Endpoint) sendCredits(rank int, flags uint16) {
	for i, p := range e.planes {
		from := &p.peers[rank]
		from.credited = from.next
		e.control.Put(i, from.credited)
	}
	e.control.Send(rank, flags)
}

// requestCredits sends a request to every rank whose credit this rank waits for.
func (e *Endpoint) requestCredits() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.poll.Closed() {
		return
	}
	for rank := range e.planes[0].peers {
		for _, p := range e.planes {
			if p.peers[rank].blocked {
				e.sendCredits(rank, counts.Request)
				break
			}
		}
	}
}

// readCredits reads the messages that have arrived. The caller holds mu.
// Hot path: no allocation, no logging.
func (e *Endpoint) readCredits() {
	for range creditBurst {
		src, flags, more := e.control.Receive()
		if !more {
			return
		}
		if src >= 0 {
			e.credit(src, flags)
		}
	}
	e.Wake() // more messages may have arrived, for which there is no further edge
}

// credit handles a message of rank src.
func (e *Endpoint) credit(src int, flags uint16) {
	for i, p := range e.planes {
		to := &p.peers[src]
		if n := e.control.Count(i); n > to.consumed && n <= to.sent {
			to.consumed, to.blocked = n, false
			e.wait.creditArrived()
		}
	}
	if flags&counts.Request != 0 {
		e.sendCredits(src, 0)
	}
}
