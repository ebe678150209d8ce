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

// ErrMismatch reports a message that has different sizes, or belongs to different calls, at its two ranks.
var ErrMismatch = errors.New("ranks made different calls")

// Transfer is a message at its sender or at its receiver.
type Transfer struct {
	Plane, Peer int
	Send        bool
	At          uintptr
	Bytes       int64
	Region      *Region // that contains the bytes; may be nil if Bytes is 0
	Tag         uint32  // of the call, equal at both ranks
}

// Group is a set of messages that begin together, in the order of Transfers. The caller must not change it until Poll
// has returned it.
type Group struct {
	Transfers []Transfer
	Owner     any // for the caller

	left int // messages that are not complete
	e    *Endpoint
}

// messageDone counts a completed message.
func (g *Group) messageDone() {
	if g.left--; g.left == 0 {
		g.e.completed = append(g.e.completed, g)
	}
}

// Endpoint is one rank's attachment to all planes.
//
// One goroutine at a time calls Begin, Poll, Waiting, Moves, Arm and Wait, and stops before Close. Register,
// Region.Close and Wake are safe for concurrent use.
type Endpoint struct {
	o       Options
	planes  []plane
	devices []rdma.Device // each device once
	poll    *poller.Set

	err       error    // of a device; sticky
	completed []*Group // since the last Poll
	returned  []*Group // result of the last Poll
	traffic   int64
	moves     uint64

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

// deviceID - i is the event id of device i. The event id of a completion queue is the number of its plane.
const deviceID = -3

// openPoller adds all completion queues and devices to the poller.
func (e *Endpoint) openPoller() error {
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

// Region is memory that is registered with all devices of an endpoint.
type Region struct {
	e        *Endpoint
	from, to uintptr
	regions  []rdma.Region // by device
}

// Holds reports whether the region contains all bytes from at.
func (r *Region) Holds(at uintptr, bytes int64) bool {
	return r.from <= at && at <= r.to && uintptr(bytes) <= r.to-at
}

// Register registers size bytes of a dma-buf from an offset. Transfers refer to them by the address at. The caller
// still owns the descriptor and may close it afterwards.
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
			err = fmt.Errorf("rendezvous: rank %d: register %d bytes: %w", e.o.Rank, size, err)
			return nil, errors.Join(err, r.unregister())
		}
		r.regions = append(r.regions, known)
	}
	e.regions = append(e.regions, r)
	return r, nil
}

// Close deregisters the memory, which no message may use any more. Endpoint.Close closes the remaining regions.
func (r *Region) Close() error {
	r.e.mu.Lock()
	defer r.e.mu.Unlock()
	if i := slices.Index(r.e.regions, r); i >= 0 {
		r.e.regions = slices.Delete(r.e.regions, i, i+1)
		return r.unregister()
	}
	return nil
}

func (r *Region) unregister() (err error) {
	for _, known := range r.regions {
		err = errors.Join(err, known.Close())
	}
	r.regions = nil
	return err
}

// Begin begins the messages of a group. If one of them is invalid, Begin returns an error and begins none.
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
		q.schedule()
	}
	g.messageDone()
	return nil
}

// Poll makes progress and returns the groups that have completed. The result is valid until the next Poll. After an
// error no message makes progress. Hot path: no allocation, no logging.
func (e *Endpoint) Poll() (over []*Group, err error) {
	for id := range e.planes {
		if err := e.planes[id].poll(); err != nil {
			return nil, err
		}
	}
	if e.err != nil {
		return nil, e.err
	}
	e.completed, e.returned = e.returned[:0], e.completed
	return e.returned, nil
}

// poll handles completions and posts requests until there is no more progress.
func (p *plane) poll() error {
	for {
		n, err := p.pollCQ()
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

// pollCQ handles one batch of completions and returns their number.
func (p *plane) pollCQ() (int, error) {
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

// Arm begins a wait: the caller calls Arm, then Poll, then Wait. See [transport.Endpoint].
func (e *Endpoint) Arm() uint32 { return e.poll.Arm() }

// Wait returns when Poll may make progress, at the latest after d.
func (e *Endpoint) Wait(armed uint32, d time.Duration) {
	e.poll.Enter()
	defer e.poll.Leave()
	for id := range e.planes {
		p := &e.planes[id]
		if !p.armed {
			if p.cq.Arm() != nil {
				return // the next Poll returns the error
			}
			p.armed = true
		}
		// Completions before Arm cause no event.
		if n, err := p.pollCQ(); n > 0 || err != nil {
			return
		}
	}
	if e.poll.Pending(armed) || !e.poll.Sleep(d) {
		return
	}
	for _, ev := range e.poll.Poll() {
		if ev.Fd <= deviceID {
			e.readDeviceEvents(int(deviceID - ev.Fd))
			continue
		}
		p := &e.planes[ev.Fd]
		if some, err := p.cq.Quiet(); some || err != nil {
			p.armed = false
		}
	}
}

// readDeviceEvents handles all pending events of device i. If retransmission may recover from an event, it only stores
// a note, which later errors include.
func (e *Endpoint) readDeviceEvents(i int) {
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
				e.err = fmt.Errorf("rendezvous: rank %d, plane %d: %w: read its events: %w", e.o.Rank, id, rdma.ErrDevice, err)
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

// Wait describes a message that is not complete.
type Wait struct {
	Plane, Peer int
	Send        bool
	Number      uint64
	Bytes       int64
	Offered     bool // the peer has offered memory for a message to be sent
}

// Waiting returns the first message that is not complete; ok is false if all are complete.
func (e *Endpoint) Waiting() (w Wait, ok bool) {
	for id := range e.planes {
		for r := range e.planes[id].pairs {
			q := &e.planes[id].pairs[r]
			switch {
			case q.recvs.n > 0:
				return Wait{Plane: id, Peer: r, Number: q.received, Bytes: int64(q.recvs.at(0).bytes)}, true
			case q.inFlight.n > 0:
				it := q.inFlight.at(0)
				return Wait{Plane: id, Peer: r, Send: it.send, Number: it.number, Bytes: int64(it.bytes), Offered: it.send}, true
			case q.sends.n > 0:
				bytes := int64(q.sends.at(0).bytes)
				w, ok = Wait{Plane: id, Peer: r, Send: true, Number: q.sent, Bytes: bytes, Offered: q.offered > q.sent}, true
			}
		}
	}
	return w, ok
}

// Moves returns the number of completions so far. It rises whenever a message makes progress.
func (e *Endpoint) Moves() uint64 { return e.moves }

// Traffic returns the number of message bytes written to peers. Only the goroutine that calls Poll may call it.
func (e *Endpoint) Traffic() int64 { return e.traffic }

// Wake makes a Wait return.
func (e *Endpoint) Wake() { e.poll.Wake() }

// Close closes the queue pairs first, so that devices write no more, and then the regions.
func (e *Endpoint) Close() (err error) {
	e.poll.Close(func() {
		for id := range e.planes {
			err = errors.Join(err, e.planes[id].close())
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		e.closed = true
		for _, r := range e.regions {
			err = errors.Join(err, r.unregister())
		}
		e.regions = nil
	})
	return err
}
