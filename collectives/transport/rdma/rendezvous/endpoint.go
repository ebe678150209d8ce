package rendezvous

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"lightpath/collectives/transport"
	"lightpath/collectives/transport/internal/poller"
	"lightpath/collectives/transport/messages"
	"lightpath/collectives/transport/rdma"
)

// Endpoint implements [messages.Endpoint].
type Endpoint struct {
	messages.Progress
	o       Options
	planes  []plane
	devices []rdma.Device // each device once
	poll    *poller.Set

	err error // of a device; sticky

	mu      sync.Mutex
	regions []*region
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
		if err := e.poll.Add(e.planes[id].CQ.FD(), unix.EPOLLIN, int32(id)); err != nil {
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

// region is memory that is registered with all devices of an endpoint.
type region struct {
	messages.Span
	e       *Endpoint
	regions []rdma.Region // by device
}

// Register implements [messages.Endpoint], for dma-bufs only.
func (e *Endpoint) Register(fd int, offset uint64, at unsafe.Pointer, size int) (messages.Region, error) {
	r := &region{Span: messages.SpanOf(at, size), e: e}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, transport.ErrClosed
	}
	for _, d := range e.devices {
		known, err := d.RegisterBuf(fd, offset, size, uint64(uintptr(at)))
		if err != nil {
			err = fmt.Errorf("rendezvous: rank %d: register %d bytes: %w", e.o.Rank, size, err)
			return nil, errors.Join(err, r.unregister())
		}
		r.regions = append(r.regions, known)
	}
	e.regions = append(e.regions, r)
	return r, nil
}

// Close implements [messages.Region].
func (r *region) Close() error {
	r.e.mu.Lock()
	defer r.e.mu.Unlock()
	if i := slices.Index(r.e.regions, r); i >= 0 {
		r.e.regions = slices.Delete(r.e.regions, i, i+1)
		return r.unregister()
	}
	return nil
}

func (r *region) unregister() (err error) {
	for _, known := range r.regions {
		err = errors.Join(err, known.Close())
	}
	r.regions = nil
	return err
}

// Begin implements [messages.Endpoint]. Hot path: no allocation, no logging.
func (e *Endpoint) Begin(g *messages.Group) error {
	if err := g.Check(e.o.Rank, e.o.Ranks, len(e.planes)); err != nil {
		return err
	}
	e.Begun(g)
	for i := range g.Transfers {
		t := &g.Transfers[i]
		q := &e.planes[t.Plane].pairs[t.Peer]
		it := item{at: uint64(uintptr(t.At)), bytes: uint64(t.Bytes), tag: t.Tag, group: g}
		if t.Bytes > 0 {
			local, remote := t.Region.(*region).regions[q.plane.device].Keys()
			if it.key = remote; t.Send {
				it.key = local
			}
		}
		if t.Send {
			q.sends.Push(it)
		} else {
			q.recvs.Push(it)
		}
		q.schedule()
	}
	e.Done(g)
	return nil
}

// Poll implements [messages.Endpoint]. Hot path: no allocation, no logging.
func (e *Endpoint) Poll() (over []*messages.Group, err error) {
	for id := range e.planes {
		if err := e.planes[id].poll(); err != nil {
			return nil, err
		}
	}
	if e.err != nil {
		return nil, e.err
	}
	return e.Completed(), nil
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
	n, err := p.CQ.Poll(p.wc[:])
	if err != nil {
		return 0, fmt.Errorf("rendezvous: rank %d, plane %d: completion queue: %w", p.e.o.Rank, p.id, err)
	}
	for i := range n {
		p.pairs[p.wc[i].Rank()].complete(&p.wc[i])
	}
	if n > 0 {
		p.e.Steps += uint64(n)
		p.e.poll.SetReady()
	}
	return n, nil
}

// Arm implements [messages.Endpoint].
func (e *Endpoint) Arm() uint32 { return e.poll.Arm() }

// Wait implements [messages.Endpoint].
func (e *Endpoint) Wait(armed uint32, d time.Duration) {
	e.poll.Enter()
	defer e.poll.Leave()
	for id := range e.planes {
		p := &e.planes[id]
		if !p.armed {
			if p.CQ.Arm() != nil {
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
		if some, err := p.CQ.Quiet(); some || err != nil {
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

// Waiting implements [messages.Endpoint].
func (e *Endpoint) Waiting() (w messages.Wait, ok bool) {
	for id := range e.planes {
		for r := range e.planes[id].pairs {
			q := &e.planes[id].pairs[r]
			switch {
			case q.recvs.Len() > 0:
				return messages.Wait{Plane: id, Peer: r, Number: q.received, Bytes: int64(q.recvs.At(0).bytes)}, true
			case q.inFlight.Len() > 0:
				it := q.inFlight.At(0)
				return messages.Wait{Plane: id, Peer: r, Send: it.send, Number: it.number, Bytes: int64(it.bytes),
					Offered: it.send}, true
			case q.sends.Len() > 0:
				bytes := int64(q.sends.At(0).bytes)
				w, ok = messages.Wait{Plane: id, Peer: r, Send: true, Number: q.sent, Bytes: bytes,
					Offered: q.offered > q.sent}, true
			}
		}
	}
	return w, ok
}

// Wake implements [messages.Endpoint].
func (e *Endpoint) Wake() { e.poll.Wake() }

// Close implements [messages.Endpoint]: it closes the queue pairs first.
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
