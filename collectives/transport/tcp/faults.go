package tcp

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"lightpath/collectives/transport"
	"lightpath/collectives/transport/internal/nic"
)

// faultAfter is the time without an acknowledgement after which unanswered probes are a sign of a fault.
const faultAfter = time.Second

// Faults implements [transport.FaultFinder].
func (e *endpoint) Faults() (all []transport.Fault) {
	for plane, local := range e.local {
		if seen := nic.FaultOfAddress(local); seen != "" {
			all = append(all, transport.Fault{Plane: plane, Peer: transport.Itself, Seen: seen})
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.poll.Closed() {
		return nil
	}
	for _, c := range e.conns {
		if seen := c.fault(); seen != "" {
			all = append(all, transport.Fault{Plane: c.plane, Peer: c.peer, Seen: seen})
		}
	}
	return all
}

// fault returns a sign that the plane of a stream does not reach the peer's host, "" for none. The end of the peer's
// process is no such sign. The text has no times, so that it stays the same while the fault lasts. An idle connection
// shows a fault only some seconds after the first look, when its probes have been lost.
func (c *conn) fault() string {
	switch {
	case c.down:
		if errors.Is(c.cause, errSilent) {
			return errSilent.Error()
		}
		return ""
	case c.via != c.plane:
		return fmt.Sprintf("data uses plane %d instead", c.via)
	}
	if c.guard == nil {
		c.probe()
	}
	info, err := unix.GetsockoptTCPInfo(c.fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil || info.State != stateEstablished {
		return ""
	}
	// The first probe may only be on its way.
	if max(info.Probes, info.Retransmits) > 1 && unanswered(info, faultAfter) {
		return errSilent.Error()
	}
	return ""
}

// addresses returns the local address of each plane.
func (l *Listener) addresses(planes int) (all []netip.Addr) {
	for plane := range planes {
		all = append(all, l.ls[plane%len(l.ls)].Addr().(*net.TCPAddr).AddrPort().Addr())
	}
	return all
}
