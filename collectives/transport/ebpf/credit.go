package ebpf

import (
	"net/netip"

	"lightpath/collectives/transport/internal/counts"
)

// A credit message (package counts) says, by plane, how many frames of its receiver the sender
// has consumed.
const (
	// creditParts: consuming this part of a window is worth a message.
	creditParts = 4
	// creditBurst bounds the messages that one sweep reads.
	creditBurst = 64
)

// newControl makes the endpoint's socket on the control network.
func newControl(fd int, o *Options) *counts.Socket {
	co := counts.Options{Rank: o.Rank, Comm: o.Comm, Counts: len(o.Addrs[o.Rank].Planes), Secret: o.Secret, Addrs: make([]netip.AddrPort, len(o.Addrs))}
	for r := range o.Addrs {
		co.Addrs[r] = o.Addrs[r].Control
	}
	return counts.New(fd, co)
}

// tell sends a rank what has been consumed of its frames. A message that does not get through
// is asked for.
// Hot path: no allocation, no logging.
func (e *Endpoint) tell(rank int, flags uint16) {
	for i, p := range e.planes {
		from := &p.peers[rank]
		from.told = from.next
		e.control.Put(i, from.told)
	}
	e.control.Send(rank, flags)
}

// askForCredits asks every rank that this one waits for.
func (e *Endpoint) askForCredits() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.poll.Closed() {
		return
	}
	for rank := range e.planes[0].peers {
		for _, p := range e.planes {
			if p.peers[rank].blocked {
				e.tell(rank, counts.Request)
				break
			}
		}
	}
}

// readCredits takes the messages that have come. The caller holds mu.
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
	e.Wake() // there may be more, and no edge will say so
}

// credit acts on the message that rank src has sent.
func (e *Endpoint) credit(src int, flags uint16) {
	for i, p := range e.planes {
		to := &p.peers[src]
		if n := e.control.Count(i); n > to.consumed && n <= to.sent {
			to.consumed, to.blocked = n, false
			e.pace.credited()
		}
	}
	if flags&counts.Request != 0 {
		e.tell(src, 0)
	}
}
