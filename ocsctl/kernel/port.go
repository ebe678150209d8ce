package kernel

import (
	"net/netip"
	"sync/atomic"
)

// Port is a rank's end of every plane of a fabric, in the order of the fabric file.
type Port struct {
	Rank   int
	Planes []RankPlane

	release func() error
}

// RankPlane is a rank's end of one plane.
type RankPlane struct {
	// FD is a nonblocking UDP socket in the rank's namespace, bound to Local and to the plane's
	// interface. The caller may use it from any thread; [Port.Close] closes it.
	FD    int
	Local netip.AddrPort
	// MTU is the size of the largest IP packet in bytes. A datagram carries 28 bytes less.
	MTU      int
	Counters *Counters
}

// Close closes the sockets and unmaps the counters, which must not be read afterwards.
func (p *Port) Close() error {
	if p.release == nil {
		return nil
	}
	release := p.release
	p.release = nil
	return release()
}

// Counters holds the kernel's counters of one port of one plane, in memory that the kernel's programs write. Reading
// costs no system call, and is atomic per field, from any goroutine. Counters start at 0 when the fabric is built. All
// users of the port share them.
//
// The switch counts a frame when it has left the rank's wire, even if it is then lost.
type Counters struct {
	sw   switchCounters
	rank rankCounters
}

// switchCounters counts the frames that entered the switch at this port. The programs use the same layout (offsets in
// program.go).
type switchCounters struct {
	udp         uint64 // UDP frames, including lost ones
	forwarded   uint64 // frames of data that followed a circuit
	bytes       uint64 // of those, with Ethernet headers
	dark        uint64 // frames of data on no circuit
	misdirected uint64 // frames of data for another rank than their circuit's
	returned    uint64 // TCP segments without payload, and ARP, which may travel against circuits
	other       uint64 // anything else; dropped
	tokens      uint64 // frames of a prober
}

// rankCounters counts the frames that arrived at the rank's end.
type rankCounters struct {
	delivered      uint64 // frames for this rank
	deliveredBytes uint64 // of those, with Ethernet headers
	misdirected    uint64 // frames that this rank had sent and that came back to it
	transit        uint64 // frames for others, sent on
	transitBytes   uint64 // of those, with Ethernet headers
	transitUDP     uint64 // UDP frames among them
	transitPayload uint64 // bytes of UDP payload in those
	strayed        uint64 // frames for other ranks that were not forwarded
	offered        uint64 // UDP frames that entered the port's queues, of this rank and forwarded
	transitOp      uint64 // see tally.go
	_              [6]uint64
}

// Sent returns the number of UDP frames that the switch has taken from this port, delivered or dropped: the rank's own
// frames and frames that it forwarded. The port is drained when Sent reaches the number of frames that the rank's
// sockets have sent plus [Counters.Transit].
func (c *Counters) Sent() uint64 { return atomic.LoadUint64(&c.sw.udp) }

// Dropped returns the number of data frames sent at this port that were lost: on a dark circuit, or on a circuit to
// another rank than the frame's. Frames that returned to this port count, too.
func (c *Counters) Dropped() (dark, misdirected uint64) {
	return atomic.LoadUint64(&c.sw.dark), atomic.LoadUint64(&c.sw.misdirected) + atomic.LoadUint64(&c.rank.misdirected)
}

// Transit returns the number of UDP frames for other ranks that this rank's kernel has forwarded, and their UDP payload
// in bytes. A frame is counted before it is queued.
func (c *Counters) Transit() (frames, payload uint64) {
	// The program adds the payload first, so it includes every counted frame.
	frames = atomic.LoadUint64(&c.rank.transitUDP)
	return frames, atomic.LoadUint64(&c.rank.transitPayload)
}

// Offered returns the number of UDP frames that have entered the port's queues: the rank's own frames and frames that
// it forwarded. The port is drained if [Counters.Sent], read before, is equal.
func (c *Counters) Offered() uint64 { return atomic.LoadUint64(&c.rank.offered) }

// TransitOp returns the payload that was forwarded for the last operation: its tag in the high 24 bits, bytes in the
// low 40; see tally.go. A frame is counted in Offered first.
func (c *Counters) TransitOp() uint64 { return atomic.LoadUint64(&c.rank.transitOp) }

// Stats is a copy of all counters of a port. Frames are counted with their Ethernet headers.
type Stats struct {
	UDP            uint64 `json:"udp"`
	Forwarded      uint64 `json:"forwarded"`
	ForwardedBytes uint64 `json:"forwarded_bytes"`
	Dark           uint64 `json:"dropped_dark"`
	Misdirected    uint64 `json:"dropped_misdirected"`
	Returned       uint64 `json:"returned"`
	Other          uint64 `json:"other"`
	Tokens         uint64 `json:"tokens"`
	Delivered      uint64 `json:"delivered"`
	DeliveredBytes uint64 `json:"delivered_bytes"`
	CameBack       uint64 `json:"came_back"`
	Transit        uint64 `json:"transit"`
	TransitBytes   uint64 `json:"transit_bytes"`
	TransitUDP     uint64 `json:"transit_udp"`
	TransitPayload uint64 `json:"transit_payload"`
	Strayed        uint64 `json:"strayed"`
}

// Stats reads all counters, one after another.
func (c *Counters) Stats() Stats {
	s, r := &c.sw, &c.rank
	return Stats{
		UDP: atomic.LoadUint64(&s.udp), Forwarded: atomic.LoadUint64(&s.forwarded),
		ForwardedBytes: atomic.LoadUint64(&s.bytes),
		Dark:           atomic.LoadUint64(&s.dark), Misdirected: atomic.LoadUint64(&s.misdirected),
		Returned: atomic.LoadUint64(&s.returned),
		Other:    atomic.LoadUint64(&s.other), Tokens: atomic.LoadUint64(&s.tokens),
		Delivered: atomic.LoadUint64(&r.delivered), DeliveredBytes: atomic.LoadUint64(&r.deliveredBytes),
		CameBack: atomic.LoadUint64(&r.misdirected),
		Transit:  atomic.LoadUint64(&r.transit), TransitBytes: atomic.LoadUint64(&r.transitBytes),
		TransitUDP:     atomic.LoadUint64(&r.transitUDP),
		TransitPayload: atomic.LoadUint64(&r.transitPayload), Strayed: atomic.LoadUint64(&r.strayed),
	}
}
