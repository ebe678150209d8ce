package ebpf

import (
	"fmt"
	"math/bits"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"lightpath/collectives/transport"
	"lightpath/collectives/transport/internal/counts"
	"lightpath/collectives/transport/internal/poller"
)

const (
	// MaxWindow is how many frames of one rank are under way to another on a plane at most.
	// Windows are as large as receive buffers allow: they are what keeps a wire busy while its
	// receiver waits for a CPU.
	MaxWindow = 256
	// minWindow lets one frame be under way while another is looked at.
	minWindow = 2
	// SecretSize is that of a communicator's secret.
	SecretSize = counts.SecretSize
	// frameCost is what a receive buffer is charged for a frame, as a multiple of the MTU, and
	// beside it: memory comes in powers of two.
	frameCost, frameExtra = 2, 2048
	// controlID marks the control socket among the events; those of planes have their numbers.
	controlID = -2
)

// Options connect a rank to the others. All ranks of a communicator give the same, but for Rank.
type Options struct {
	Rank  int
	Addrs []Addrs // of every rank's Listener
	Comm  uint64
	// Secret authenticates credits.
	Secret [SecretSize]byte
	// Window bounds the frames of one rank that may be under way to another; 0 is MaxWindow.
	Window int
}

// Endpoint is one rank's attachment to all planes; it implements [transport.Endpoint]. Those of
// its planes that have counters implement [transport.Steerer].
//
// Nothing signals counters: while one is waited for, Wait returns as soon as a look may pay.
type Endpoint struct {
	rank    int
	planes  []*plane
	faces   []transport.Plane // what Planes returns
	control *counts.Socket
	poll    *poller.Set

	mu   sync.Mutex // held by every call of the driving goroutine but Arm and Wait's sleep, and by Close
	pace pace
}

// Connect makes a rank's endpoint. It talks to nobody: other ranks may be connected sooner or
// later. The listener's sockets are the endpoint's from now on; after an error they are still the
// listener's.
func Connect(l *Listener, o Options) (*Endpoint, error) {
	if err := o.check(l); err != nil {
		return nil, err
	}
	e := &Endpoint{rank: o.Rank}
	e.pace.reset()
	for id := range l.planes {
		p, err := newPlane(e, id, &l.planes[id], &o)
		if err != nil {
			return nil, err
		}
		e.planes = append(e.planes, p)
		if p.counters != nil {
			e.faces = append(e.faces, steered{p})
		} else {
			e.faces = append(e.faces, p)
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
	if o.Window != 0 && (o.Window < minWindow || o.Window > MaxWindow) {
		return fmt.Errorf("ebpf: window of %d frames is outside %d..%d", o.Window, minWindow, MaxWindow)
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
				return fmt.Errorf("ebpf: plane %d: the receive buffer of rank %d, %d bytes, has no room for %d frames of each of %d ranks (net.core.rmem_max)",
					id, r, pa.Buffer, minWindow, len(o.Addrs)-1)
			}
		}
	}
	return nil
}

// windowOf is how many frames each rank may have under way to rank r on a plane. Every rank
// computes the same.
func (o *Options) windowOf(r, plane int) uint64 {
	a := &o.Addrs[r].Planes[plane]
	limit := o.Window
	if limit == 0 {
		limit = MaxWindow
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
		payload: (room - headSize) &^ 7, // frames hold whole elements
		pool:    pool{size: room},
		peers:   make([]peer, len(o.Addrs)),
	}
	if po.BitsPerSecond > 0 {
		p.perByte = 8e9 / po.BitsPerSecond
	}
	if err := unix.SetNonblock(p.fd, true); err != nil {
		return nil, fmt.Errorf("ebpf: plane %d: non-blocking: %w", id, err)
	}
	mine := o.windowOf(o.Rank, id)
	for r := range p.peers {
		if r == o.Rank {
			continue
		}
		p.peers[r] = peer{
			name: counts.NewRawAddr(o.Addrs[r].Planes[id].Addr), window: o.windowOf(r, id),
			ring: make([]*frame, 1<<bits.Len64(mine-1)),
		}
	}
	p.mine = mine
	p.tx.init()
	p.rx.init(&p.pool)
	if p.counters != nil {
		p.dark, p.misdirected = p.counters.Dropped()
	}
	p.overflow = overflows(p.fd)
	return p, nil
}

// open makes the set of what is waited for.
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

// waitForRoom has the endpoint told when a plane's socket takes frames again. It is told only
// then: every frame that leaves would be an event otherwise.
func (e *Endpoint) waitForRoom(p *plane) error {
	p.full = true
	if err := e.poll.Modify(p.fd, unix.EPOLLIN|unix.EPOLLOUT, int32(p.id)); err != nil {
		return fmt.Errorf("transport: rank %d, plane %d: %w", e.rank, p.id, err)
	}
	return nil
}

// ask notes what has become ready, and reads the credits that have come, if seen says that nobody
// has asked since. The caller holds mu.
func (e *Endpoint) ask(seen *uint64) {
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
			// Should this fail, there are more events than needed.
			_ = e.poll.Modify(p.fd, unix.EPOLLIN, int32(p.id))
		}
	}
}

// Planes implements [transport.Endpoint].
func (e *Endpoint) Planes() []transport.Plane { return e.faces }

// Arm implements [transport.Endpoint].
func (e *Endpoint) Arm() uint32 {
	e.pace.arm()
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
		nap, final := e.pace.nap(d)
		ready := e.poll.Sleep(nap)
		now := time.Now()
		e.upkeep(now)
		if d = until.Sub(now); final || ready || d <= 0 {
			return
		}
	}
}

// Wake implements [transport.Endpoint].
func (e *Endpoint) Wake() { e.poll.Wake() }

// Close implements [transport.Endpoint]. What this rank has sent is still delivered.
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
