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

// leastPatience is for hosts that stand still for a moment.
const leastPatience = 100 * time.Millisecond

// linger bounds how long Close waits for what has been sent to be acknowledged.
const linger = time.Second

// SecretSize is that of a communicator's secret.
const SecretSize = counts.SecretSize

// Options connect a rank to the others. All ranks give the same.
type Options struct {
	Addrs []Addrs // of every rank's Listener
	// Comm and Secret name and authenticate what travels over the control network, if anything does.
	Comm   uint64
	Secret [SecretSize]byte
}

// Endpoint is one rank's attachment to all planes; it implements [transport.Endpoint].
type Endpoint struct {
	rank    int
	planes  []*plane
	faces   []transport.Plane // what Planes returns
	devices []Device          // each once
	poll    *poller.Set

	registering sync.Mutex // held by Register and what it returns, and by Close; before mu
	known       []*known   // memory of the caller that devices know; mu

	mu sync.Mutex // held by every call of the driving goroutine but Arm and Wait's sleep, by Close, and by attend

	// Of counts over the control network; nil where they travel on the planes.
	control   *counts.Socket
	file      *os.File // its descriptor
	attention syscall.RawConn
	attended  chan struct{} // closed when attend has returned
	patience  time.Duration // with frames that have left a port and do not arrive
	askNext   time.Duration
	askAt     time.Time
}

// Connect makes a rank's endpoint. It talks to nobody, but no rank may send before all have
// connected. With counts over the control network it starts a goroutine, which Close ends. The listener's queue pairs are the endpoint's from now on; after an error they are
// still the listener's.
func Connect(l *Listener, o Options) (*Endpoint, error) {
	if l.planes == nil {
		return nil, fmt.Errorf("rdma: rank %d: listener is closed or connected: %w", l.o.Rank, transport.ErrClosed)
	}
	if err := l.agree(o.Addrs); err != nil {
		return nil, err
	}
	e := &Endpoint{rank: l.o.Rank, planes: l.planes, patience: patience(&l.o), askNext: askFirst}
	for id, p := range e.planes {
		for r := range p.peers {
			if r == e.rank {
				continue
			}
			if err := l.connect(p, &o.Addrs[r].Planes[id], r); err != nil {
				return nil, fmt.Errorf("rdma: rank %d, plane %d: connect QP %#x to rank %d: %w", e.rank, id, p.peers[r].qp.Number(), r, err)
			}
		}
	}
	if err := e.open(l, &o); err != nil {
		return nil, fmt.Errorf("rdma: rank %d: %w", e.rank, err)
	}
	for _, p := range e.planes {
		p.e = e
		e.faces = append(e.faces, p)
	}
	l.planes, l.control = nil, -1
	if e.control != nil {
		go e.attend()
	}
	return e, nil
}

// patience is for how long a device with these options tries to get a packet through.
func patience(o *ListenOptions) time.Duration {
	return max(4096*time.Nanosecond<<o.Timeout*time.Duration(max(o.Retries, 1)), leastPatience)
}

// agree checks that all ranks' ends fit together.
func (l *Listener) agree(all []Addrs) error {
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
		for id := range a.Planes {
			switch p, mine := &a.Planes[id], &l.addrs.Planes[id]; {
			case a.Unacknowledged != l.addrs.Unacknowledged || a.Control.IsValid() != l.addrs.Control.IsValid():
				return fmt.Errorf("rdma: plane %d: ranks %d and %d differ in whether there are acknowledgements, or in where counts travel", id, r, rank)
			case len(p.QPs) != l.o.Ranks:
				return fmt.Errorf("rdma: plane %d: rank %d has %d queue pairs, want %d", id, r, len(p.QPs), l.o.Ranks)
			case p.Ethernet != mine.Ethernet:
				return fmt.Errorf("rdma: plane %d: ranks %d and %d are not both on Ethernet or both on InfiniBand", id, r, rank)
			case !p.GID.IsValid() || p.MTU < 256:
				return fmt.Errorf("rdma: plane %d: rank %d is at GID %v with an MTU of %d bytes", id, r, p.GID, p.MTU)
			}
		}
	}
	return nil
}

// connect connects the queue pair to rank r, whose end of the plane is at a.
func (l *Listener) connect(p *plane, a *PlaneAddr, r int) error {
	q, mine, po := &p.peers[r], &l.addrs.Planes[p.id], &l.o.Planes[p.id]
	q.remote, q.remoteKey = a.Base+uint64(l.o.Rank*p.slots*p.slot), a.Key
	return q.qp.Connect(&Path{
		Port: po.Port, GIDIndex: po.GIDIndex, Ethernet: a.Ethernet,
		PeerGID: a.GID.As16(), PeerLID: a.LID, PeerQPN: a.QPs[l.o.Rank], PeerPSN: a.PSN, PSN: mine.PSN, MTU: min(a.MTU, mine.MTU),
		TrafficClass: l.o.TrafficClass, ServiceLevel: l.o.ServiceLevel, Timeout: l.o.Timeout, Retries: l.o.Retries,
	})
}

// open makes the set of what is waited for.
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
		if err := e.poll.Add(p.cq.FD(), unix.EPOLLIN, int32(id)); err != nil {
			return fmt.Errorf("plane %d: %w", id, err)
		}
		if p.at.number = slices.Index(e.devices, p.at.device); p.at.number >= 0 {
			continue
		}
		p.at.number = len(e.devices)
		if err := e.poll.Add(p.at.device.EventFD(), unix.EPOLLIN, int32(eventID-len(e.devices))); err != nil {
			return fmt.Errorf("plane %d: events of its device: %w", id, err)
		}
		e.devices = append(e.devices, p.at.device)
	}
	if l.control < 0 {
		return nil
	}
	if err := e.poll.Add(l.control, unix.EPOLLIN, controlID); err != nil {
		return err
	}
	co := counts.Options{Rank: e.rank, Comm: o.Comm, Counts: planeCounts * len(e.planes), Secret: o.Secret, Addrs: make([]netip.AddrPort, len(o.Addrs))}
	for r := range o.Addrs {
		co.Addrs[r] = o.Addrs[r].Control
	}
	e.control, e.file, e.attended = counts.New(l.control, co), os.NewFile(uintptr(l.control), "control"), make(chan struct{})
	e.attention, err = e.file.SyscallConn()
	return err
}

// Planes implements [transport.Endpoint].
func (e *Endpoint) Planes() []transport.Plane { return e.faces }

// Arm implements [transport.Endpoint].
func (e *Endpoint) Arm() uint32 { return e.poll.Arm() }

// Wait implements [transport.Endpoint]. Completion queues are armed here and looked at once more:
// what came before shows in that look, what comes after as an event.
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
			e.quiet()
		}
		return
	}
	for until := time.Now().Add(d); !e.poll.Pending(armed); {
		ready := e.poll.Sleep(e.nap(d))
		if ready {
			e.quiet()
		}
		now := time.Now()
		if d = until.Sub(now); e.upkeep(now) || ready || d <= 0 {
			return
		}
	}
}

// arm asks for events, and reports false where the planes must be looked at instead: they know
// what is wrong.
func (e *Endpoint) arm() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.poll.Closed() {
		return false
	}
	for _, p := range e.planes {
		if !p.armed {
			if p.cq.Arm() != nil {
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

// quiet takes the events that have come.
func (e *Endpoint) quiet() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.poll.Closed() {
		return
	}
	events := e.poll.Poll()
	for i := range events {
		switch id := events[i].Fd; {
		case id == controlID:
			e.listen()
		case id <= eventID:
			e.events(int(eventID - id))
		default:
			p := e.planes[id]
			if some, err := p.cq.Quiet(); some || err != nil {
				p.armed = false
			}
		}
	}
}

// Wake implements [transport.Endpoint].
func (e *Endpoint) Wake() { e.poll.Wake() }

// Close implements [transport.Endpoint]. What this rank has sent is delivered, unless that takes
// longer than a second; then peers see that it has closed.
func (e *Endpoint) Close() (err error) {
	e.poll.Close(func() {
		if err = e.depart(); e.control != nil {
			err = errors.Join(err, e.file.Close()) // which ends attend
			<-e.attended
		}
	})
	return err
}

// depart takes leave and closes the planes.
func (e *Endpoint) depart() (err error) {
	e.registering.Lock()
	defer e.registering.Unlock()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.leave()
	for _, p := range e.planes {
		if cerr := p.close(); cerr != nil && err == nil {
			err = fmt.Errorf("rdma: rank %d, plane %d: close: %w", e.rank, p.id, cerr)
		}
	}
	for _, k := range e.known {
		err = errors.Join(err, k.close())
	}
	e.known = nil
	return err
}

// leave says farewell to all peers and waits, with a bound, until what has been sent has arrived.
func (e *Endpoint) leave() {
	for _, p := range e.planes {
		for r := range p.peers {
			if q := &p.peers[r]; q.qp != nil {
				p.bye(q)
			}
		}
	}
	if e.control != nil {
		defer func() { // with what has left by then
			for rank := range e.planes[0].peers {
				if rank != e.rank {
					e.tell(rank, counts.Closing)
				}
			}
		}()
	}
	for deadline := time.Now().Add(linger); ; time.Sleep(100 * time.Microsecond) {
		settled := true
		for _, p := range e.planes {
			if p.progress() != nil {
				continue // nothing more will be known of this plane
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
