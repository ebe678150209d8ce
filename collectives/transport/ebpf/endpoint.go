package ebpf

import (
	"fmt"
	"math/bits"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"lightpath/collectives/transport"
	"lightpath/collectives/transport/internal/counts"
	"lightpath/collectives/transport/internal/frames"
	"lightpath/collectives/transport/internal/nic"
	"lightpath/collectives/transport/internal/poller"
)

const (
	// maxWindow is the largest number of frames in flight from one rank to another on a plane. A window is as large as
	// the receive buffer allows, so that the wire stays busy while the receiver waits for a CPU.
	maxWindow = 256
	// minWindow allows one frame in flight while the receiver reads another.
	minWindow = 2
	// SecretSize is the size of a communicator's secret in bytes.
	SecretSize = counts.SecretSize
	// A frame occupies at most frameCost * MTU + frameExtra bytes of a receive buffer, because the kernel allocates
	// memory in powers of two.
	frameCost, frameExtra = 2, 2048
	// controlID is the event id of the control socket. The event id of a plane is its number.
	controlID = -2
)

// Options of [Connect]. All fields except Rank are the same at all ranks of the communicator.
type Options struct {
	Rank  int
	Addrs []Addrs // of every rank's Listener
	Comm  uint64
	// Secret authenticates credits.
	Secret [SecretSize]byte
	// Window is the largest number of frames in flight from one rank to another; 0 is 256.
	Window int
}

// Endpoint is one rank's attachment to all planes; it implements [transport.Endpoint]. A plane with counters implements
// [transport.Steerer].
//
// No event reports that a counter has moved. So while the driving goroutine waits for a counter, Wait returns when
// the counter is likely to have moved.
type Endpoint struct {
	rank     int
	planes   []*plane
	exported []transport.Plane // the result of Planes
	control  *counts.Socket
	poll     *poller.Set

	// mu is held by Close and by every call of the driving goroutine, except Arm and the sleep in Wait.
	mu   sync.Mutex
	wait waitState
}

// Connect returns a rank's endpoint. It does not communicate, so ranks may call it in any order and at any time. The
// endpoint takes ownership of the listener's sockets, except on an error.
func Connect(l *Listener, o Options) (*Endpoint, error) {
	if err := o.check(l); err != nil {
		return nil, err
	}
	e := &Endpoint{rank: o.Rank}
	e.wait.creditArrived()
	for id := range l.planes {
		p, err := newPlane(e, id, &l.planes[id], &o)
		if err != nil {
			return nil, err
		}
		e.planes = append(e.planes, p)
		if p.counters != nil {
			e.exported = append(e.exported, steered{p})
		} else {
			e.exported = append(e.exported, p)
		}
	}
	e.control = newControl(l.control, &o)
	if err := e.open(); err != nil {
		return nil, fmt.Errorf("ebpf: rank %d: %w", o.Rank, err)
	}
	for i := range l.planes {
		l.planes[i].FD = -1
	}
	l.control = -1
	return e, nil
}

func (o *Options) check(l *Listener) error {
	if o.Rank < 0 || o.Rank >= len(o.Addrs) || len(o.Addrs) > 1<<16 {
		return fmt.Errorf("ebpf: rank %d of %d", o.Rank, len(o.Addrs))
	}
	if l.control < 0 {
		return fmt.Errorf("ebpf: rank %d: listener is closed or connected: %w", o.Rank, transport.ErrClosed)
	}
	if o.Window != 0 && (o.Window < minWindow || o.Window > maxWindow) {
		return fmt.Errorf("ebpf: window of %d frames is outside %d..%d", o.Window, minWindow, maxWindow)
	}
	for r, a := range o.Addrs {
		if len(a.Planes) != len(l.planes) {
			return fmt.Errorf("ebpf: rank %d has %d planes, rank %d has %d", r, len(a.Planes), o.Rank, len(l.planes))
		}
		if !a.Control.IsValid() {
			return fmt.Errorf("ebpf: rank %d has no control address", r)
		}
		for id, pa := range a.Planes {
			if !pa.Addr.IsValid() || pa.MTU != l.planes[id].MTU {
				return fmt.Errorf("ebpf: plane %d: rank %d is at %v with MTU %d, rank %d has MTU %d",
					id, r, pa.Addr, pa.MTU, o.Rank, l.planes[id].MTU)
			}
			if o.windowOf(r, id) < minWindow {
				return fmt.Errorf("ebpf: plane %d: the receive buffer of rank %d, %d bytes, has no room for %d frames of "+
					"each of %d ranks (net.core.rmem_max)", id, r, pa.Buffer, minWindow, len(o.Addrs)-1)
			}
		}
	}
	return nil
}

// windowOf returns the number of frames that each rank may have in flight to rank r on a plane. Every rank computes the
// same number.
func (o *Options) windowOf(r, plane int) uint64 {
	a := &o.Addrs[r].Planes[plane]
	limit := o.Window
	if limit == 0 {
		limit = maxWindow
	}
	return uint64(max(0, min(limit, a.Buffer/max(len(o.Addrs)-1, 1)/(frameCost*a.MTU+frameExtra))))
}

func newPlane(e *Endpoint, id int, po *PlaneOptions, o *Options) (*plane, error) {
	headers := ipHeaders4
	if !o.Addrs[o.Rank].Planes[id].Addr.Addr().Is4() {
		headers = ipHeaders6
	}
	room := po.MTU - headers
	p := &plane{
		e: e, id: id, fd: po.FD, counters: po.Counters, readable: true,
		payload: (room - headSize) &^ 7, // so that a frame splits no element
		pool:    frames.Pool{Size: room},
		peers:   make([]peer, len(o.Addrs)),
	}
	if po.BitsPerSecond > 0 {
		p.perByte = 8e9 / po.BitsPerSecond
	}
	if err := unix.SetNonblock(p.fd, true); err != nil {
		return nil, fmt.Errorf("ebpf: plane %d: non-blocking: %w", id, err)
	}
	recvWindow := o.windowOf(o.Rank, id)
	for r := range p.peers {
		if r == o.Rank {
			continue
		}
		p.peers[r] = peer{
			addr: counts.NewRawAddr(o.Addrs[r].Planes[id].Addr), sendWindow: o.windowOf(r, id),
			ring: make([]*frames.Frame, 1<<bits.Len64(recvWindow-1)),
		}
	}
	p.recvWindow = recvWindow
	p.tx.init()
	p.rx.init(&p.pool)
	if p.counters != nil {
		p.dark, p.misdirected = p.counters.Dropped()
	}
	p.overflow = overflows(p.fd)
	return p, nil
}

// open adds all sockets to a poller.
func (e *Endpoint) open() (err error) {
	if e.poll, err = poller.New(len(e.planes) + 1); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			e.poll.Close(func() {})
		}
	}()
	if err := e.poll.Add(e.control.FD(), unix.EPOLLIN, controlID); err != nil {
		return err
	}
	for id, p := range e.planes {
		if err := e.poll.Add(p.fd, unix.EPOLLIN, int32(id)); err != nil {
			return fmt.Errorf("plane %d: %w", id, err)
		}
	}
	return nil
}

// waitForRoom marks a plane as full and asks for an event when its socket accepts frames again. The endpoint asks only
// while the socket is full, because otherwise every frame that leaves would be an event.
func (e *Endpoint) waitForRoom(p *plane) error {
	p.full = true
	if err := e.poll.Modify(p.fd, unix.EPOLLIN|unix.EPOLLOUT, int32(p.id)); err != nil {
		return fmt.Errorf("transport: rank %d, plane %d: %w", e.rank, p.id, err)
	}
	return nil
}

// pollReady marks the planes that have become ready and reads the credits that have arrived. It polls at most once for
// all planes; see [poller.Set.PollOnce] for seen. The caller holds mu.
func (e *Endpoint) pollReady(seen *uint64) {
	events := e.poll.PollOnce(seen)
	for i := range events {
		ev := &events[i]
		if ev.Fd == controlID {
			e.readCredits()
			continue
		}
		p := e.planes[ev.Fd]
		p.readable = true
		if p.full && ev.Events&unix.EPOLLOUT != 0 {
			p.full = false
			// If this fails, the endpoint only gets needless events.
			_ = e.poll.Modify(p.fd, unix.EPOLLIN, int32(p.id))
		}
	}
}

// Planes implements [transport.Endpoint].
func (e *Endpoint) Planes() []transport.Plane { return e.exported }

// Arm implements [transport.Endpoint].
func (e *Endpoint) Arm() uint32 {
	e.wait.arm()
	return e.poll.Arm()
}

// Wait implements [transport.Endpoint].
func (e *Endpoint) Wait(armed uint32, d time.Duration) {
	if d <= 0 {
		return
	}
	e.poll.Enter()
	defer e.poll.Leave()
	for until := time.Now().Add(d); !e.poll.Pending(armed); {
		sleep, final := e.wait.sleepTime(d)
		ready := e.poll.Sleep(sleep)
		now := time.Now()
		e.checkTimers(now)
		if d = until.Sub(now); final || ready || d <= 0 {
			return
		}
	}
}

// Wake implements [transport.Endpoint].
func (e *Endpoint) Wake() { e.poll.Wake() }

// Faults implements [transport.FaultFinder]. It knows only this rank's own interfaces: a plane has no connection that
// could be silent.
func (e *Endpoint) Faults() (all []transport.Fault) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.poll.Closed() {
		return nil
	}
	for _, p := range e.planes {
		if seen := nic.FaultOfSocket(p.fd); seen != "" {
			all = append(all, transport.Fault{Plane: p.id, Peer: transport.Itself, Seen: seen})
		}
	}
	return all
}

// Close implements [transport.Endpoint]. Peers still receive the frames that this rank has sent.
func (e *Endpoint) Close() error {
	e.poll.Close(func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		for _, p := range e.planes {
			_ = unix.Close(p.fd)
		}
		_ = unix.Close(e.control.FD())
	})
	return nil
}
