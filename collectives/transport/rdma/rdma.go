// Package rdma is the transport over RDMA: one queue pair per peer and plane, over which
// frames are written straight into a ring in the peer's memory, each with an immediate that
// says which one it is.
//
// Layer: inside collectives/transport. It defines what it needs of verbs ([Verbs] and below)
// and is given an implementation; it holds no C and starts no goroutines.
//
// # Frames
//
// A slot of a ring holds a header (package wire) and payload, sent from a staging ring of the
// same shape: frame number i is in slot i mod slots at both ends. The payload is in the
// receiver's memory before anybody has looked at it, so the header in the slot, with its epoch,
// is what decides: nothing of a frame is used before that has been checked. The immediate is
// the frame's number, and one that is not due is an error.
//
// # Flow control
//
// A sender is never further ahead of what its peer has released than there are slots, so no
// slot is overwritten before it is free, and no write waits for a receive. The counts of
// released frames travel the other way as writes of no bytes: a plane needs a way back. Where it
// has none, or none that stays, counts travel over the control network: see counts.go.
//
// # Without acknowledgements
//
// On circuits that lead one way nothing can acknowledge a packet. Queue pairs are UC there, and
// what RC does is done with counts: the numbers in immediates show what is lost before a frame that
// arrives, and the sender's count of frames that have left it shows what is lost at the end. Either is
// [transport.ErrDark], at both ends. Drained means that the receiver has said that all are there.
//
// # Completions
//
// Every n-th request is signalled, where n is a quarter of the slots. [transport.Plane.Drained]
// means that all are known to be complete; where the last was not signalled it sends a write of
// no bytes that is. A completion with a status ends the flow to and from that peer: see [QPError].
package rdma

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"lightpath/collectives/transport/internal/counts"
	"lightpath/collectives/wire"
)

// Bounds of the rings. Slots are a power of two.
const (
	minSlots, maxSlots     = 2, 1 << 10
	minPayload, maxPayload = 1 << 9, 1 << 20
	defaultSlots           = 8
	defaultPayload         = 64 << 10
	leastPayload           = 1 << 10 // that is chosen for lack of memory
	// budget bounds the registered memory of a rank, as far as minSlots and leastPayload let it.
	budget = 128 << 20
	// inline is asked for: a header and the payload of a small message.
	inline = 256
)

// PlaneOptions are a rank's end of one plane.
type PlaneOptions struct {
	// Device stays the caller's and outlives the endpoint. Planes may share one.
	Device Device
	Port   int
	// GIDIndex is the entry of the port's table that names this rank; -1: see [ChooseGID].
	GIDIndex int
}

// ListenOptions describe a rank. All ranks of a communicator give the same, but for Rank and
// Planes, of which they have equally many.
type ListenOptions struct {
	Rank, Ranks int
	Planes      []PlaneOptions
	// Slots and Payload are the shape of a ring; 0: chosen by the number of ranks and planes. Where
	// a port is soft-RoCE a frame is then one packet. Its requester works out where to go on after
	// a loss from a counter that its completer may move meanwhile (Linux 6.1), and of a write of
	// several packets sends the wrong ones, which the peer refuses (REM_INV_REQ_ERR). A write of one
	// has no middle to be wrong about.
	Slots, Payload int
	// Timeout and Retries say when a peer is lost: see [Path].
	Timeout, Retries uint8
	// TrafficClass and ServiceLevel are the packets' priority.
	TrafficClass, ServiceLevel uint8
	// Unacknowledged makes the queue pairs UC. It needs Control.
	Unacknowledged bool
	// Control is "host:port" on the control network (port 0 picks a free one), over which counts travel then, so that
	// nothing but frames does on the planes; "": they travel backwards on the planes.
	Control string
}

// Addrs is what other ranks must know of one; the bootstrap carries it.
type Addrs struct {
	Slots          int            `json:"slots"`
	Payload        int            `json:"payload"`
	Unacknowledged bool           `json:"unacknowledged"`
	Control        netip.AddrPort `json:"control"` // not valid where counts travel on the planes
	Planes         []PlaneAddr    `json:"planes"`
}

// PlaneAddr is a rank's end of one plane as others see it.
type PlaneAddr struct {
	GID      netip.Addr `json:"gid"`
	LID      uint16     `json:"lid"`
	Ethernet bool       `json:"ethernet"`
	MTU      int        `json:"mtu"`
	PSN      uint32     `json:"psn"`  // of the first packet on each of its queue pairs
	Base     uint64     `json:"base"` // address of its rings; that of rank r is the r-th
	Key      uint32     `json:"key"`
	QPs      []uint32   `json:"qps"` // by rank
}

// Listener holds a rank's queue pairs until it is connected. Not safe for concurrent use.
type Listener struct {
	o       ListenOptions
	planes  []*plane // nil once an endpoint has them
	control int      // socket, -1 where there is none or an endpoint has it
	addrs   Addrs
}

// Listen makes a rank's rings and queue pairs.
func Listen(o ListenOptions) (_ *Listener, err error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	l := &Listener{o: o, control: -1, addrs: Addrs{Slots: o.Slots, Payload: o.Payload, Unacknowledged: o.Unacknowledged}}
	defer func() {
		if err != nil {
			_ = l.Close()
		}
	}()
	for id := range o.Planes {
		p, a, err := newPlane(&l.o, id)
		if err != nil {
			return nil, fmt.Errorf("rdma: rank %d, plane %d: %w", o.Rank, id, err)
		}
		l.planes = append(l.planes, p)
		l.addrs.Planes = append(l.addrs.Planes, a)
	}
	if o.Control != "" {
		if l.control, l.addrs.Control, err = counts.Listen(o.Control); err != nil {
			return nil, fmt.Errorf("rdma: rank %d: %w", o.Rank, err)
		}
	}
	return l, nil
}

// complete checks the options and fills in what they leave open.
func (o *ListenOptions) complete() error {
	if o.Ranks < 1 || o.Ranks > 1<<15 || o.Rank < 0 || o.Rank >= o.Ranks {
		return fmt.Errorf("rdma: rank %d of %d", o.Rank, o.Ranks)
	}
	if len(o.Planes) == 0 {
		return fmt.Errorf("rdma: rank %d has no planes", o.Rank)
	}
	if o.Unacknowledged && o.Control == "" {
		return fmt.Errorf("rdma: rank %d: queue pairs without acknowledgements, and no control network for what they need", o.Rank)
	}
	slots, payload := defaultSlots, defaultPayload
	mtu, err := o.softMTU()
	if err != nil {
		return err
	}
	if mtu > 0 {
		payload = mtu - wire.HeaderSize
	}
	slots, payload = fit(o.Ranks, len(o.Planes), slots, payload)
	if o.Slots == 0 {
		o.Slots = slots
	}
	if o.Payload == 0 {
		o.Payload = payload
	}
	if o.Slots < minSlots || o.Slots > maxSlots || o.Slots&(o.Slots-1) != 0 {
		return fmt.Errorf("rdma: slots = %d, want a power of two from %d to %d", o.Slots, minSlots, maxSlots)
	}
	if o.Payload < minPayload || o.Payload > maxPayload || o.Payload%8 != 0 {
		return fmt.Errorf("rdma: payload = %d, want a multiple of 8 from %d to %d", o.Payload, minPayload, maxPayload)
	}
	return nil
}

// softMTU returns the least MTU of the ports that are soft-RoCE, 0 where none is.
func (o *ListenOptions) softMTU() (mtu int, err error) {
	for id, p := range o.Planes {
		info, err := p.Device.Port(p.Port)
		if err != nil {
			return 0, fmt.Errorf("rdma: rank %d, plane %d: %w", o.Rank, id, err)
		}
		if info.Soft && (mtu == 0 || info.MTU < mtu) {
			mtu = info.MTU
		}
	}
	return mtu, nil
}

// fit makes the rings' shape smaller until a rank's stay within budget, where that is possible.
func fit(ranks, planes, slots, payload int) (int, int) {
	size := func() int { return 2 * ranks * planes * slots * (wire.HeaderSize + payload) }
	for size() > budget && payload >= 2*leastPayload {
		payload /= 2
	}
	for size() > budget && slots > minSlots {
		slots /= 2
	}
	return slots, payload
}

// Addrs returns what the other ranks must know.
func (l *Listener) Addrs() Addrs { return l.addrs }

// Close releases what no endpoint has taken over. Idempotent.
func (l *Listener) Close() error {
	var err error
	for _, p := range l.planes {
		err = errors.Join(err, p.close())
	}
	l.planes = nil
	if l.control >= 0 {
		err = errors.Join(err, unix.Close(l.control))
		l.control = -1
	}
	return err
}

// ChooseGID picks the entry of a port's table that names it best: on Ethernet one of RoCEv2 with
// an IPv4 address, else with a global one, else any of RoCEv2, else any; on InfiniBand the first.
func ChooseGID(d Device, port int) (int, error) {
	info, err := d.Port(port)
	if err != nil {
		return 0, err
	}
	best, bestRank := -1, 0
	for i := range info.GIDs {
		e, err := d.GID(port, i)
		if err != nil {
			return 0, err
		}
		if rank := e.rank(info.Ethernet); rank > bestRank {
			best, bestRank = i, rank
		}
	}
	if best < 0 {
		return 0, fmt.Errorf("port %d has no GID: is the interface up, and has it an address?", port)
	}
	return best, nil
}

// rank says how well an entry names a port, 0 not at all.
func (e Entry) rank(ethernet bool) int {
	addr := netip.AddrFrom16(e.GID)
	switch {
	case e.Type == None || addr.IsUnspecified():
		return 0
	case !ethernet || e.Type != RoCEv2:
		return 1
	case addr.Is4In6():
		return 4
	case addr.IsLinkLocalUnicast():
		return 2
	}
	return 3
}

// randomPSN draws the number of a connection's first packet: one that stray packets of an
// earlier connection are unlikely to have.
func randomPSN() uint32 {
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails
	return binary.LittleEndian.Uint32(b[:]) & (1<<24 - 1)
}

// MapMemory returns memory apart from Go's heap. A forked child does not get it: the device goes
// on writing to these very pages, which copying on write would take from the parent.
func MapMemory(size int) ([]byte, error) {
	mem, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, fmt.Errorf("%d bytes for rings: %w", size, err)
	}
	if err := unix.Madvise(mem, unix.MADV_DONTFORK); err != nil {
		UnmapMemory(mem)
		return nil, fmt.Errorf("%d bytes for rings: keep from children: %w", size, err)
	}
	return mem, nil
}

// UnmapMemory gives it back.
func UnmapMemory(mem []byte) { _ = unix.Munmap(mem) }
