package rendezvous

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"lightpath/collectives/transport"
	"lightpath/collectives/transport/internal/poller"
	"lightpath/collectives/transport/rdma"
)

// ErrMismatch reports that a message's ends are of different calls or sizes.
var ErrMismatch = errors.New("ranks have called something else")

// Transfer is one end of a message: bytes from here to a peer, or from there to here.
type Transfer struct {
	Plane, Peer int
	Send        bool
	At          uintptr
	Bytes       int64
	Region      *Region // that the bytes are in; nil only where there are none
	Tag         uint32  // equal at both ends
}

// Group is messages that are begun together, in the order of Transfers. It is the caller's again when Poll has returned
// it.
type Group struct {
	Transfers []Transfer
	Owner     any // the caller's

	left int
	e    *Endpoint
}

// less counts a message that is over.
func (g *Group) less() {
	if g.left--; g.left == 0 {
		g.e.over = append(g.e.over, g)
	}
}

// Endpoint is one rank's attachment to all planes.
//
// Concurrency: one goroutine calls Begin, Poll, Waiting, Arm and Wait, and none does any more when Close is called.
// Register, a region's Close, Wake and Traffic are for any.
type Endpoint struct {
	o       Options
	planes  []plane
	devices []rdma.Device // each once
	poll    *poller.Set
	err     error    // of a device: everything ends
	over    []*Group // since the last Poll
	given   []*Group // which that has returned
	traffic int64
	moves   uint64

	mu      sync.Mutex
	regions []*Region
	closed  bool
}

func newEndpoint(o *Options) (*Endpoint, error) {
	e := &Endpoint{o: *o, planes: make([]plane, len(o.Planes))}
	for id := range e.planes {
		p := &e.planes[id]
		p.e, p.id, p.port = e, id, o.Planes[id].Port
		if p.device = slices.Index(e.devices, o.Planes[id].Device); p.device < 0 {
			p.device = len(e.devices)
			e.devices = append(e.devices, o.Planes[id].Device)
		}
	}
	var err error
	e.poll, err = poller.New(2 * len(e.planes))
	return e, err
}

// deviceID marks the events of device i as deviceID - i; those of completion queues are the planes' numbers.
const deviceID = -3

// watch makes the set of what is waited for.
func (e *Endpoint) watch() error {
	for id := range e.planes {
		if err := e.poll.Add(e.planes[id].cq.FD(), unix.EPOLLIN, int32(id)); err != nil {
			return err
		}
	}
	for i, d := range e.devices {
		if err := e.poll.Add(d.EventFD(), unix.EPOLLIN, int32(deviceID-i)); err != nil {
			return err
		}
	}
	return nil
}

// Region is memory that all devices of an endpoint know.
type Region struct {
	e        *Endpoint
	from, to uintptr
	regions  []rdma.Region // by device
}

// Holds reports whether bytes are in the region.
func (r *Region) Holds(at uintptr, bytes int64) bool {
	return r.from <= at && at <= r.to && uintptr(bytes) <= r.to-at
}

// Register makes a dma-buf known: size bytes from an offset, which transfers name as those at an address. The
// descriptor stays the caller's, who may close it.
func (e *Endpoint) Register(fd int, offset uint64, at uintptr, size int) (*Region, error) {
	r := &Region{e: e, from: at, to: at + uintptr(size)}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, transport.ErrClosed
	}
	for _, d := range e.devices {
		known, err := d.RegisterBuf(fd, offset, size, uint64(at))
		if err != nil {
			return nil, errors.Join(fmt.Errorf("rendezvous: rank %d: register %d bytes: %w", e.o.Rank, size, err), r.forget())
		}
		r.regions = append(r.regions, known)
	}
	e.regions = append(e.regions, r)
	return r, nil
}

// Close has the devices forget the memory, which no message is to be in. The endpoint's Close does it for all that is
// left.
func (r *Region) Close() error {
	r.e.mu.Lock()
	defer r.e.mu.Unlock()
	if i := slices.Index(r.e.regions, r); i >= 0 {
		r.e.regions = slices.Delete(r.e.regions, i, i+1)
		return r.forget()
	}
	return nil
}

func (r *Region) forget() (err error) {
	for _, known := range r.regions {
		err = errors.Join(err, known.Close())
	}
	r.regions = nil
	return err
}

// Begin begins the messages of a group. One that cannot be right fails it before anything has begun.
// Hot path: no allocation, no logging.
func (e *Endpoint) Begin(g *Group) error {
	for i := range g.Transfers {
		t := &g.Transfers[i]
		switch {
		case t.Plane < 0 || t.Plane >= len(e.planes) || t.Peer < 0 || t.Peer >= e.o.Ranks || t.Peer == e.o.Rank:
			return fmt.Errorf("rendezvous: rank %d has no rank %d on plane %d", e.o.Rank, t.Peer, t.Plane)
		case t.Bytes < 0 || t.Bytes > 0 && (t.Region == nil || !t.Region.Holds(t.At, t.Bytes)):
			return fmt.Errorf("rendezvous: rank %d: %d bytes at %#x are not in registered memory", e.o.Rank, t.Bytes, t.At)
		}
	}
	g.e, g.left = e, len(g.Transfers)+1
	for i := range g.Transfers {
		t := &g.Transfers[i]
		q := &e.planes[t.Plane].pairs[t.Peer]
		it := item{at: uint64(t.At), bytes: uint64(t.Bytes), tag: t.Tag, group: g}
		if t.Bytes > 0 {
			local, remote := t.Region.regions[q.plane.device].Keys()
			if it.key = remote; t.Send {
				it.key = local
			}
		}
		if t.Send {
			q.sends.push(it)
		} else {
			q.recvs.push(it)
		}
		q.touch()
	}
	g.less()
	return nil
}

// Poll moves everything on, and returns the groups that are over, until the next Poll. After an error nothing more
// moves. Hot path: no allocation, no logging.
func (e *Endpoint) Poll() (over []*Group, err error) {
	for id := range e.planes {
		if err := e.planes[id].poll(); err != nil {
			return nil, err
		}
	}
	if e.err != nil {
		return nil, e.err
	}
	e.over, e.given = e.given[:0], e.over
	return e.given, nil
}

// poll takes what the completion queue has, and posts what can be posted now.
func (p *plane) poll() error {
	for {
		n, err := p.take()
		if err != nil {
			return err
		}
		for len(p.busy) > 0 {
			q := p.busy[len(p.busy)-1]
			p.busy = p.busy[:len(p.busy)-1]
			q.busy = false
			if err := q.advance(); err != nil {
				return err
			}
		}
		if n < len(p.wc) {
			return nil
		}
	}
}

// take takes completions.
func (p *plane) take() (int, error) {
	n, err := p.cq.Poll(p.wc[:])
	if err != nil {
		return 0, fmt.Errorf("rendezvous: rank %d, plane %d: completion queue: %w", p.e.o.Rank, p.id, err)
	}
	for i := range n {
		p.pairs[p.wc[i].ID&^recvBit>>rankShift].complete(&p.wc[i])
	}
	if n > 0 {
		p.e.moves += uint64(n)
		p.e.poll.SetReady()
	}
	return n, nil
}

// Arm comes before a last Poll, and that before Wait: see [transport.Endpoint].
func (e *Endpoint) Arm() uint32 { return e.poll.Arm() }

// Wait waits until there may be something to do, at most d.
func (e *Endpoint) Wait(armed uint32, d time.Duration) {
	e.poll.Enter()
	defer e.poll.Leave()
	for id := range e.planes {
		p := &e.planes[id]
		if !p.armed {
			if p.cq.Arm() != nil {
				return // the next Poll says what is wrong
			}
			p.armed = true
		}
		// What came before it was armed shows now.
		if n, err := p.take(); n > 0 || err != nil {
			return
		}
	}
	if e.poll.Pending(armed) || !e.poll.Sleep(d) {
		return
	}
	for _, ev := range e.poll.Poll() {
		if ev.Fd <= deviceID {
			e.befall(int(deviceID - ev.Fd))
			continue
		}
		p := &e.planes[ev.Fd]
		if some, err := p.cq.Quiet(); some || err != nil {
			p.armed = false
		}
	}
}

// befall acts on what has befallen a device. What retransmission may mend is noted: an error that comes of it says so.
func (e *Endpoint) befall(i int) {
	for {
		ev, some, err := e.devices[i].Event()
		if !some && err == nil {
			return
		}
		for id := range e.planes {
			p := &e.planes[id]
			switch {
			case p.device != i:
			case err != nil:
				e.err = fmt.Errorf("rendezvous: rank %d, plane %d: %w: its events: %w", e.o.Rank, id, rdma.ErrDevice, err)
			case ev.Kind == rdma.DeviceFatal || ev.Kind == rdma.CQFailed:
				e.err = fmt.Errorf("rendezvous: rank %d, plane %d: %w: %s", e.o.Rank, id, rdma.ErrDevice, ev.Kind)
			case ev.Kind == rdma.PortDown && ev.Port == p.port:
				p.note = ev.Kind.String()
			case ev.Kind == rdma.PortUp && ev.Port == p.port:
				p.note = ""
			}
		}
		if err != nil {
			return
		}
	}
}

// Wait is what an endpoint waits for: a message that has not moved.
type Wait struct {
	Plane, Peer int
	Send        bool
	Number      uint64
	Bytes       int64
	Offered     bool // of a send: the peer waits for it
}

// Waiting returns the first message that is not over; ok is false where all are.
func (e *Endpoint) Waiting() (w Wait, ok bool) {
	for id := range e.planes {
		for r := range e.planes[id].pairs {
			q := &e.planes[id].pairs[r]
			switch {
			case q.recvs.n > 0:
				return Wait{Plane: id, Peer: r, Number: q.received, Bytes: int64(q.recvs.at(0).bytes)}, true
			case q.flying.n > 0:
				it := q.flying.at(0)
				return Wait{Plane: id, Peer: r, Send: it.send, Number: it.number, Bytes: int64(it.bytes), Offered: it.send}, true
			case q.sends.n > 0:
				w = Wait{Plane: id, Peer: r, Send: true, Number: q.sent, Bytes: int64(q.sends.at(0).bytes), Offered: q.offered > q.sent}
				ok = true
			}
		}
	}
	return w, ok
}

// Moves rises whenever something has moved.
func (e *Endpoint) Moves() uint64 { return e.moves }

// Traffic is how many bytes of messages have been written to peers. It is for who calls Poll, or when nobody does any
// more.
func (e *Endpoint) Traffic() int64 { return e.traffic }

// Wake makes a Wait return.
func (e *Endpoint) Wake() { e.poll.Wake() }

// Close gives everything back: first the queue pairs, so that nothing is written any more, and then what was
// registered.
func (e *Endpoint) Close() (err error) {
	e.poll.Close(func() {
		for id := range e.planes {
			err = errors.Join(err, e.planes[id].close())
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		e.closed = true
		for _, r := range e.regions {
			err = errors.Join(err, r.forget())
		}
		e.regions = nil
	})
	return err
}
