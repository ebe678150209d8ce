package rdma

import (
	"cmp"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"lightpath/collectives/transport/internal/counts"
	"lightpath/collectives/wire"
)

// Bounds of the rings. The number of slots is a power of two.
const (
	minSlots, maxSlots     = 2, 1 << 10
	minPayload, maxPayload = 1 << 9, 1 << 20
	defaultSlots           = 8
	defaultPayload         = 64 << 10
	// smallPayload is the smallest payload that fit chooses to save memory.
	smallPayload = 1 << 10
	// budget is the limit of a rank's registered memory in bytes. The smallest rings may exceed it.
	budget = 128 << 20
	// inline is the requested limit of inlined requests in bytes: a header and the payload of a small message.
	inline = 256
)

// PlaneOptions describe one plane of a rank.
type PlaneOptions struct {
	// Device is owned by the caller, who closes it after the endpoint. Planes may share a device.
	Device Device
	Port   int
	// GIDIndex is the entry of the port's table that identifies this rank; -1 means that of [ChooseGID].
	GIDIndex int
}

// ListenOptions describe a rank. All fields except Rank and Planes are the same at all ranks of the communicator, and
// all ranks have the same number of planes.
type ListenOptions struct {
	Rank, Ranks int
	Planes      []PlaneOptions
	// Slots and Payload are the shape of a ring; 0 means a default for the number of ranks and planes.
	//
	// With soft-RoCE, the default payload makes a frame one packet. After a loss, the requester of Linux 6.1 may resend
	// wrong packets of a write of several packets, because its completer moves a counter meanwhile. The peer rejects
	// those packets (REM_INV_REQ_ERR). A write of one packet avoids this.
	Slots, Payload int
	Service
	// Unacknowledged selects UC queue pairs. It requires Control.
	Unacknowledged bool
	// Control is "host:port" on the control network (port 0 picks a free port). If it is set, counts are out-of-band
	// and the planes carry only frames. If it is "", the planes carry the counts back to the senders.
	Control string
}

// Addrs are a rank's addresses, which the bootstrap distributes to all ranks.
type Addrs struct {
	Slots          int            `json:"slots"`
	Payload        int            `json:"payload"`
	Unacknowledged bool           `json:"unacknowledged"`
	Control        netip.AddrPort `json:"control"` // valid with out-of-band counts
	Planes         []PlaneAddr    `json:"planes"`
}

// PlaneAddr is a rank's address on one plane.
type PlaneAddr struct {
	GID      netip.Addr `json:"gid"`
	LID      uint16     `json:"lid"`
	Ethernet bool       `json:"ethernet"`
	MTU      int        `json:"mtu"`
	PSN      uint32     `json:"psn"`  // number of the first packet on each queue pair
	Base     uint64     `json:"base"` // address of its receive rings, ordered by source rank
	Key      uint32     `json:"key"`
	QPs      []uint32   `json:"qps"` // by rank
}

// Listener owns a rank's queue pairs until Connect. It is not safe for concurrent use.
type Listener struct {
	o       ListenOptions
	planes  []*plane // nil after Connect
	control int      // socket; -1 if there is none, or after Connect
	addrs   Addrs
}

// Listen allocates a rank's rings and creates its queue pairs.
func Listen(o ListenOptions) (_ *Listener, err error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	l := &Listener{o: o, control: -1}
	l.addrs = Addrs{Slots: o.Slots, Payload: o.Payload, Unacknowledged: o.Unacknowledged}
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

// complete checks the options and sets the defaults.
func (o *ListenOptions) complete() error {
	if o.Ranks < 1 || o.Ranks > 1<<15 || o.Rank < 0 || o.Rank >= o.Ranks {
		return fmt.Errorf("rdma: rank %d of %d", o.Rank, o.Ranks)
	}
	if len(o.Planes) == 0 {
		return fmt.Errorf("rdma: rank %d has no planes", o.Rank)
	}
	if o.Unacknowledged && o.Control == "" {
		return fmt.Errorf("rdma: rank %d: queue pairs without acknowledgements need a control network", o.Rank)
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
	o.Slots = cmp.Or(o.Slots, slots)
	o.Payload = cmp.Or(o.Payload, payload)
	if o.Slots < minSlots || o.Slots > maxSlots || o.Slots&(o.Slots-1) != 0 {
		return fmt.Errorf("rdma: slots = %d, want a power of two from %d to %d", o.Slots, minSlots, maxSlots)
	}
	if o.Payload < minPayload || o.Payload > maxPayload || o.Payload%8 != 0 {
		return fmt.Errorf("rdma: payload = %d, want a multiple of 8 from %d to %d", o.Payload, minPayload, maxPayload)
	}
	return nil
}

// softMTU returns the smallest MTU of the soft-RoCE ports, 0 if there are none.
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

// fit reduces payload and slots until a rank's rings fit into the budget, or are the smallest.
func fit(ranks, planes, slots, payload int) (int, int) {
	size := func() int { return 2 * ranks * planes * slots * (wire.HeaderSize + payload) }
	for size() > budget && payload >= 2*smallPayload {
		payload /= 2
	}
	for size() > budget && slots > minSlots {
		slots /= 2
	}
	return slots, payload
}

// Addrs returns this rank's addresses.
func (l *Listener) Addrs() Addrs { return l.addrs }

// Close closes the queue pairs and the socket, unless Connect has passed them to an endpoint. Idempotent.
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

// ChooseGID returns the best entry of a port's table. On Ethernet it prefers RoCEv2 with an IPv4 address, then RoCEv2
// with a global address, then RoCEv2, then any entry. On InfiniBand it returns the first entry.
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

// rank returns the preference for an entry, 0 for an unusable one.
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

// randomPSN returns a random number for a connection's first packet, so that late packets of an earlier connection are
// unlikely to match.
func randomPSN() uint32 {
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails
	return binary.LittleEndian.Uint32(b[:]) & (1<<24 - 1)
}
