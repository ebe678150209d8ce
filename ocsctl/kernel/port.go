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
	Name string // of the plane
	// FD is a nonblocking UDP socket in the rank's namespace, bound to Local and to the plane's
	// interface. The caller may use it from any thread; [Port.Close] closes it.
	FD    int
	Local netip.AddrPort
	// Addrs are the addresses of all ranks on this plane, by rank. Their ports are those of the
	// sockets that the ranks have opened, which they have to tell each other.
	Addrs []netip.Addr
	// MTU is the size of the largest IP packet: a datagram carries 28 bytes less.
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

// Counters is what the kernel counts of one port of one plane. It lies in memory that the kernel's
// programs write: reading it costs no system call, and every field is read atomically, by any
// goroutine. Counters rise from 0 when the fabric is built and are shared by all who use the port.
//
// A frame is counted by the switch when it has left the rank's wire, whatever becomes of it then.
type Counters struct {
	sw   switchCounters
	rank rankCounters
}

// switchCounters is what the switch has counted of the frames that entered it at this port. The
// layout is that of the programs (package-level offsets in program.go).
type switchCounters struct {
	udp         uint64 // UDP frames, whatever became of them
	forwarded   uint64 // frames of data that followed a circuit
	bytes       uint64 // of those, with Ethernet headers
	dark        uint64 // frames of data on no circuit
	misdirected uint64 // frames of data for another rank than their circuit's
	returned    uint64 // TCP segments without payload, and ARP, which may travel backwards
	other       uint64 // anything else; dropped
	tokens      uint64 // frames of a prober
}

// rankCounters is what the rank's end has counted of the frames that came to it.
type rankCounters struct {
	delivered      uint64 // frames for this rank
	deliveredBytes uint64 // of those, with Ethernet headers
	misdirected    uint64 // frames that this rank had sent and that came back to it
	transit        uint64 // frames for others, sent on
	transitBytes   uint64 // of those, with Ethernet headers
	transitUDP     uint64 // UDP frames among them
	transitPayload uint64 // bytes of UDP payload in those
	strayed        uint64 // frames for others that were not sent on
	offered        uint64 // UDP frames given to the port's queues, its own and those for others
	transitOp      uint64 // see tally.go
	_              [6]uint64
}

// Sent returns how many UDP frames the switch has taken from this port, forwarded or dropped: the rank's own frames and
// the frames that it has steered on. The port is drained when Sent reaches the number of frames that the rank's sockets
// have sent plus [Counters.Transit].
func (c *Counters) Sent() uint64 { return atomic.LoadUint64(&c.sw.udp) }

// Dropped returns how many data frames that left at this port were lost: on a dark circuit, or on a circuit to another
// rank than the frame's. Frames that came back to this port count too.
func (c *Counters) Dropped() (dark, misdirected uint64) {
	return atomic.LoadUint64(&c.sw.dark), atomic.LoadUint64(&c.sw.misdirected) + atomic.LoadUint64(&c.rank.misdirected)
}

// Transit returns how many UDP frames for other ranks this rank's kernel has sent on, and the bytes
// of UDP payload in them. A frame is counted before it is queued.
func (c *Counters) Transit() (frames, payload uint64) {
	// The program adds the payload first, so the bytes of every frame that shows are in.
	frames = atomic.LoadUint64(&c.rank.transitUDP)
	return frames, atomic.LoadUint64(&c.rank.transitPayload)
}

// Offered returns how many UDP frames the port's queues have got: the rank's own frames, and the frames that it has
// steered on. The port is drained when [Counters.Sent], read before, is equal.
func (c *Counters) Offered() uint64 { return atomic.LoadUint64(&c.rank.offered) }

// TransitOp returns how much has been steered on of the last operation that was seen: its tag in the
// high 24 bits, bytes in the low 40; see tally.go. A frame is in Offered before it is in here.
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

// Stats reads all counters, one after the other.
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
