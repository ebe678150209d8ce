package rdma

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"lightpath/collectives/transport"
	"lightpath/collectives/transport/internal/counts"
	"lightpath/collectives/transport/internal/poller"
)

const (
	// minLossTimeout covers short pauses of a host.
	minLossTimeout = 100 * time.Millisecond
	// closeTimeout is the longest time that Close waits until the sent frames are acknowledged.
	closeTimeout = time.Second
	// watchEvery is the pause between looks for errors of requests whose sender may be in no call.
	watchEvery = time.Second
	// SecretSize is the size of a communicator's secret in bytes.
	SecretSize = counts.SecretSize
)

// Options of [Connect], the same at all ranks of the communicator.
type Options struct {
	Addrs []Addrs // of every rank's Listener
	// Comm and Secret identify and authenticate out-of-band counts.
	Comm   uint64
	Secret [SecretSize]byte
	// Lost is called, once at most, when a device has reported an error of a plane. It may be nil.
	Lost func(error)
}

// Endpoint is one rank's attachment to all planes; it implements [transport.Endpoint] and [transport.Registrar].
type Endpoint struct {
	rank     int
	planes   []*plane
	exported []transport.Plane // the result of Planes
	devices  []Device          // each device once
	poll     *poller.Set

	registerMu sync.Mutex      // held by Register, its release function and Close; locked before mu
	registered []*registration // guarded by mu

	closing chan struct{} // closed by Close

	// mu is held by Close, by answerRequests, by watch and by every call of the driving goroutine, except Arm and the
	// sleep in Wait.
	mu sync.Mutex

	// For out-of-band counts; zero otherwise.
	control      *counts.Socket
	file         *os.File // owns the socket's descriptor
	controlConn  syscall.RawConn
	answererDone chan struct{} // closed when answerRequests has returned
	lossTimeout  time.Duration // a frame that has left a port and has not arrived by then is lost
	requestWait  time.Duration
	requestAt    time.Time
}

// Connect returns a rank's endpoint. It does not communicate, but no rank may send before all ranks have connected. It
// starts goroutines, which Close ends. The endpoint takes ownership of the listener's queue pairs, except on an error.
func Connect(l *Listener, o Options) (*Endpoint, error) {
	if l.planes == nil {
		return nil, fmt.Errorf("rdma: rank %d: listener is closed or connected: %w", l.o.Rank, transport.ErrClosed)
	}
	if err := l.checkAddrs(o.Addrs); err != nil {
		return nil, err
	}
	e := &Endpoint{rank: l.o.Rank, planes: l.planes, lossTimeout: lossTimeout(&l.o.Service), requestWait: requestMin,
		closing: make(chan struct{})}
	for id, p := range e.planes {
		for r := range p.peers {
			if r == e.rank {
				continue
			}
			if err := l.connect(p, &o.Addrs[r].Planes[id], r); err != nil {
				return nil, fmt.Errorf("rdma: rank %d, plane %d: connect QP %#x to rank %d: %w",
					e.rank, id, p.peers[r].qp.Number(), r, err)
			}
		}
	}
	if err := e.open(l, &o); err != nil {
		return nil, fmt.Errorf("rdma: rank %d: %w", e.rank, err)
	}
	for _, p := range e.planes {
		p.e = e
		e.exported = append(e.exported, p)
	}
	l.planes, l.control = nil, -1
	if e.control != nil {
		go e.answerRequests()
	}
	if o.Lost != nil {
		go e.watch(o.Lost)
	}
	return e, nil
}

// watch reports the first error of a plane, until the endpoint is closed. A device reports a lost request seconds after
// it was posted. The sender may be in no call by then, and the receiver waits.
func (e *Endpoint) watch(lost func(error)) {
	for {
		select {
		case <-e.closing:
			return
		case <-time.After(watchEvery):
		}
		moved, err := e.look()
		if moved {
			e.poll.Wake()
		}
		if err != nil {
			lost(err)
			return
		}
	}
}

// look polls all completion queues. It reports whether the driving goroutine can make progress, and the first error.
func (e *Endpoint) look() (moved bool, first error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.poll.Closed() {
		return false, nil
	}
	for _, p := range e.planes {
		some, err := p.pollCQ()
		if err == nil {
			err = p.failed
		}
		if moved = moved || some; first == nil {
			first = err
		}
	}
	return moved, first
}

// lossTimeout returns the time for which a device retransmits a packet.
func lossTimeout(s *Service) time.Duration {
	return max(4096*time.Nanosecond<<s.Timeout*time.Duration(max(s.Retries, 1)), minLossTimeout)
}

// checkAddrs returns an error if the addresses of two ranks are incompatible.
func (l *Listener) checkAddrs(all []Addrs) error {
	rank := l.o.Rank
	if len(all) != l.o.Ranks {
		return fmt.Errorf("rdma: addresses of %d ranks, want %d", len(all), l.o.Ranks)
	}
	for r := range all {
		a := &all[r]
		if a.Slots != l.addrs.Slots || a.Payload != l.addrs.Payload || len(a.Planes) != len(l.addrs.Planes) {
			return fmt.Errorf("rdma: rank %d has %d planes of %d slots of %d bytes, rank %d has %d of %d of %d",
				r, len(a.Planes), a.Slots, a.Payload, rank, len(l.addrs.Planes), l.addrs.Slots, l.addrs.Payload)
		}
		if a.Unacknowledged != l.addrs.Unacknowledged || a.Control.IsValid() != l.addrs.Control.IsValid() {
			return fmt.Errorf("rdma: ranks %d and %d differ in the use of acknowledgements or of the control network", r, rank)
		}
	}
	return nil
}

// connect connects the queue pair to rank r, whose address on the plane is a.
func (l *Listener) connect(p *plane, a *PlaneAddr, r int) error {
	q := &p.peers[r]
	q.remote, q.remoteKey = a.Base+uint64(l.o.Rank*p.slots*p.slot), a.Key
	return l.o.Planes[p.id].Connect(q.qp, l.o.Rank, &l.addrs.Planes[p.id], a, l.o.Service)
}

// open adds all completion queues, devices and the control socket to a poller.
func (e *Endpoint) open(l *Listener, o *Options) (err error) {
	if e.poll, err = poller.New(2*len(e.planes) + 1); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			e.poll.Close(func() {})
		}
	}()
	for id, p := range e.planes {
		if err := e.poll.Add(p.CQ.FD(), unix.EPOLLIN, int32(id)); err != nil {
			return fmt.Errorf("plane %d: %w", id, err)
		}
		if p.dev.number = slices.Index(e.devices, p.dev.device); p.dev.number >= 0 {
			continue
		}
		p.dev.number = len(e.devices)
		if err := e.poll.Add(p.dev.device.EventFD(), unix.EPOLLIN, int32(eventID-len(e.devices))); err != nil {
			return fmt.Errorf("plane %d: events of its device: %w", id, err)
		}
		e.devices = append(e.devices, p.dev.device)
	}
	if l.control < 0 {
		return nil
	}
	if err := e.poll.Add(l.control, unix.EPOLLIN, controlID); err != nil {
		return err
	}
	co := counts.Options{
		Rank: e.rank, Comm: o.Comm, Counts: planeCounts * len(e.planes), Secret: o.Secret,
		Addrs: make([]netip.AddrPort, len(o.Addrs)),
	}
	for r := range o.Addrs {
		co.Addrs[r] = o.Addrs[r].Control
	}
	e.control, e.answererDone = counts.New(l.control, co), make(chan struct{})
	e.file = os.NewFile(uintptr(l.control), "control")
	e.controlConn, err = e.file.SyscallConn()
	return err
}

// Planes implements [transport.Endpoint].
func (e *Endpoint) Planes() []transport.Plane { return e.exported }

// Arm implements [transport.Endpoint].
func (e *Endpoint) Arm() uint32 { return e.poll.Arm() }

// Wait implements [transport.Endpoint]. It arms the completion queues and polls them once more. The poll finds earlier
// completions, and later ones are events.
func (e *Endpoint) Wait(armed uint32, d time.Duration) {
	if d <= 0 {
		return
	}
	e.poll.Enter()
	defer e.poll.Leave()
	if e.poll.Pending(armed) || !e.arm() || e.poll.Pending(armed) {
		return
	}
	if e.control == nil {
		if e.poll.Sleep(d) {
			e.readEvents()
		}
		return
	}
	for until := time.Now().Add(d); !e.poll.Pending(armed); {
		ready := e.poll.Sleep(e.sleepTime(d))
		if ready {
			e.readEvents()
		}
		now := time.Now()
		if d = until.Sub(now); e.checkTimers(now) || ready || d <= 0 {
			return
		}
	}
}

// arm arms all completion queues. It returns false if Wait must not sleep, because a plane has an error to return.
func (e *Endpoint) arm() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.poll.Closed() {
		return false
	}
	for _, p := range e.planes {
		if !p.armed {
			if p.CQ.Arm() != nil {
				return false
			}
			p.armed = true
		}
		if p.progress() != nil {
			return false
		}
	}
	return true
}

// readEvents handles the events that have arrived.
func (e *Endpoint) readEvents() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.poll.Closed() {
		return
	}
	events := e.poll.Poll()
	for i := range events {
		switch id := events[i].Fd; {
		case id == controlID:
			e.readCounts()
		case id <= eventID:
			e.readDeviceEvents(int(eventID - id))
		default:
			p := e.planes[id]
			if some, err := p.CQ.Quiet(); some || err != nil {
				p.armed = false
			}
		}
	}
}

// Wake implements [transport.Endpoint].
func (e *Endpoint) Wake() { e.poll.Wake() }

// Close implements [transport.Endpoint]. Peers still receive the frames that this rank has sent, unless that takes
// longer than a second, and then [transport.ErrPeerLost].
func (e *Endpoint) Close() (err error) {
	e.poll.Close(func() {
		close(e.closing)
		if err = e.closePlanes(); e.control != nil {
			err = errors.Join(err, e.file.Close()) // makes answerRequests return
			<-e.answererDone
		}
	})
	return err
}

// closePlanes notifies the peers and closes the planes and registrations.
func (e *Endpoint) closePlanes() (err error) {
	e.registerMu.Lock()
	defer e.registerMu.Unlock()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.flushAndLeave()
	for _, p := range e.planes {
		if cerr := p.close(); cerr != nil && err == nil {
			err = fmt.Errorf("rdma: rank %d, plane %d: close: %w", e.rank, p.id, cerr)
		}
	}
	for _, k := range e.registered {
		err = errors.Join(err, k.close())
	}
	e.registered = nil
	return err
}

// flushAndLeave notifies all peers that this rank closes. It waits until the sent frames have arrived, at most for
// closeTimeout.
func (e *Endpoint) flushAndLeave() {
	for _, p := range e.planes {
		for r := range p.peers {
			if q := &p.peers[r]; q.qp != nil {
				p.sendClosing(q)
			}
		}
	}
	if e.control != nil {
		defer func() { // last, because the message carries the final counts
			for rank := range e.planes[0].peers {
				if rank != e.rank {
					e.sendCounts(rank, counts.Closing)
				}
			}
		}()
	}
	for deadline := time.Now().Add(closeTimeout); ; time.Sleep(100 * time.Microsecond) {
		settled := true
		for _, p := range e.planes {
			if p.progress() != nil {
				continue // the plane has failed and reports no more completions
			}
			for r := range p.peers {
				settled = settled && p.peers[r].settled()
			}
		}
		if settled || time.Now().After(deadline) {
			return
		}
	}
}
