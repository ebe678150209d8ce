package kernel

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"lightpath/ocsctl/device"
	"lightpath/plans/circuit"
)

// Cable joins the ports of a plane to those of a device model: rank r sends into Model's ingress
// port In[r] and receives from its egress port Out[r].
type Cable struct {
	Model   *device.Device // nil: the plane is not changed
	In, Out []int
}

// Straight cables a plane with a number of ranks to the ports of a model from first on.
func Straight(m *device.Device, first, ranks int) Cable {
	c := Cable{Model: m}
	for r := range ranks {
		c.In, c.Out = append(c.In, first+r), append(c.Out, first+r)
	}
	return c
}

// Mirror keeps the circuits of a Board as device models have them: a circuit carries frames while it carries light. So
// each change of a model moves packets: by a protocol, by a call in this process, or by a fault.
type Mirror struct {
	board Panel
	cable []Cable // by plane
	rank  []map[int]int

	mu        sync.Mutex
	stale     uint64    // planes that may differ from their models' light
	following bool      // a call of follow is at work
	idle      sync.Cond // following has become false
	dirty     uint64    // planes with changes that have not been reported
	notify    func(plane int)
	failed    []error // by plane: of its last Install

	cancel []func()
	wake   int // eventfd, -1 once closed
	stop   chan struct{}
	done   chan struct{}
}

// NewMirror sets the board to the circuits of the models, and keeps it equal until Close. There is one cable per plane
// of the board's fabric; several may end at one model. The caller keeps board and models open meanwhile.
func NewMirror(b Panel, cables []Cable) (*Mirror, error) {
	m := &Mirror{board: b, cable: cables, failed: make([]error, len(cables)), stop: make(chan struct{}),
		done: make(chan struct{})}
	m.idle.L = &m.mu
	if err := m.check(); err != nil {
		return nil, fmt.Errorf("kernel: fabric %s: %w", b.State().Name, err)
	}
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("kernel: fabric %s: eventfd: %w", b.State().Name, err)
	}
	m.wake = wake
	for _, model := range m.models() {
		m.cancel = append(m.cancel, model.Watch(func(device.Event) { m.follow(model, true) }))
		m.follow(model, false)
	}
	go m.clock()
	m.mu.Lock()
	err = errors.Join(m.failed...)
	m.mu.Unlock()
	if err != nil {
		return nil, m.Close()
	}
	return m, nil
}

// check returns an error for cables that do not fit.
func (m *Mirror) check() error {
	s := m.board.State()
	if len(m.cable) != len(s.Planes) {
		return fmt.Errorf("%d cables for %d planes", len(m.cable), len(s.Planes))
	}
	type end struct {
		model *device.Device
		side  device.Side
		port  int
	}
	used := make(map[end]bool)
	for j, c := range m.cable {
		if c.Model == nil {
			m.rank = append(m.rank, nil)
			continue
		}
		if len(c.In) != s.Ranks || len(c.Out) != s.Ranks {
			return fmt.Errorf("plane %s: %d ingress and %d egress ports for %d ranks", s.Planes[j].Name, len(c.In),
				len(c.Out), s.Ranks)
		}
		ranks := make(map[int]int, s.Ranks)
		for r := range s.Ranks {
			ranks[c.Out[r]] = r
			for _, e := range []end{{c.Model, device.Ingress, c.In[r]}, {c.Model, device.Egress, c.Out[r]}} {
				if e.port < 0 || e.port >= c.Model.Ports() {
					return fmt.Errorf("plane %s: rank %d: port[%d] is not one of the model's %d", s.Planes[j].Name, r,
						e.port, c.Model.Ports())
				}
				if used[e] {
					return fmt.Errorf("plane %s: rank %d: port %s has another cable", s.Planes[j].Name, r,
						c.Model.Label(e.port, e.side))
				}
				used[e] = true
			}
		}
		m.rank = append(m.rank, ranks)
	}
	return nil
}

// models returns every model once.
func (m *Mirror) models() []*device.Device {
	var all []*device.Device
	seen := make(map[*device.Device]bool)
	for _, c := range m.cable {
		if c.Model != nil && !seen[c.Model] {
			seen[c.Model] = true
			all = append(all, c.Model)
		}
	}
	return all
}

// Close stops following the models. Circuits stay as they are.
func (m *Mirror) Close() error {
	for _, cancel := range m.cancel {
		cancel()
	}
	close(m.stop)
	m.mu.Lock()
	m.ring()
	m.mu.Unlock()
	<-m.done
	m.mu.Lock()
	defer m.mu.Unlock()
	wake := m.wake
	m.wake = -1 // a model may be reporting a change
	return errors.Join(unix.Close(wake), errors.Join(m.failed...))
}

// lit converts the light of a model to a map of a plane's ranks.
func (m *Mirror) lit(plane int, light circuit.Permutation) circuit.Permutation {
	c := m.cable[plane]
	p := circuit.AllDark(len(c.In))
	for r, in := range c.In {
		if out := light[in]; out != circuit.Dark {
			if to, ours := m.rank[plane][out]; ours {
				p[r] = to
			}
		}
	}
	return p
}

// follow gives the planes of a model the circuits that carry light. It reads the light after it is called. It notifies
// planes only of changes, because a notified caller asks for the map, which calls follow again. If another call is in
// progress, follow returns and leaves the work to it. Every change of a model calls follow, and so does a read of its
// light when a change is due.
func (m *Mirror) follow(model *device.Device, happened bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for j, c := range m.cable {
		if c.Model == model {
			m.stale |= 1 << j
			if happened {
				m.dirty |= 1 << j
			}
		}
	}
	if m.following {
		return
	}
	m.following = true
	for m.stale != 0 {
		stale := m.stale
		m.stale = 0
		for j := range m.cable {
			if stale>>j&1 != 0 {
				m.mu.Unlock()
				err := m.board.Install(j, m.lit(j, m.cable[j].Model.Lit()))
				m.mu.Lock()
				m.failed[j] = err
			}
		}
	}
	m.following = false
	m.idle.Broadcast()
	if m.dirty != 0 {
		m.ring()
	}
}

// settle returns when a plane has its model's light, or the error of the board. It tries again if the last call failed.
func (m *Mirror) settle(plane int) error {
	m.follow(m.cable[plane].Model, false)
	m.mu.Lock()
	defer m.mu.Unlock()
	for m.following {
		m.idle.Wait()
	}
	return m.failed[plane]
}

// listen makes the clock's goroutine call f for every plane with a change.
func (m *Mirror) listen(f func(plane int)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.notify = f
}

// touch makes listen's function be called for a plane, even without a change.
func (m *Mirror) touch(plane int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.dirty |= 1 << plane
	m.ring()
}

// ring wakes the clock, if it still runs; the caller holds the lock.
func (m *Mirror) ring() {
	if m.wake < 0 {
		return
	}
	one := [8]byte{1}
	// It can fail only after 2^64 unread writes.
	_, _ = unix.Write(m.wake, one[:])
}

// clock reads the models at the times of their changes, with the precision of the kernel's timers, and reports planes
// with changes.
func (m *Mirror) clock() {
	defer close(m.done)
	runtime.LockOSThread() // and not unlocked: the priority is the thread's
	// A real-time thread does not wait for a processor and has no timer slack. Without the right to be one, changes are
	// only later on a busy machine.
	_ = unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 1,
		Flags: unix.SCHED_FLAG_RESET_ON_FORK}, 0)
	models := m.models()
	for {
		var next time.Time
		for _, model := range models {
			if due := model.Due(); !due.IsZero() && (next.IsZero() || due.Before(next)) {
				next = due
			}
		}
		m.tell()
		select {
		case <-m.stop:
			return
		default:
		}
		m.sleep(next)
	}
}

// tell reports the planes with changes.
func (m *Mirror) tell() {
	m.mu.Lock()
	dirty, notify := m.dirty, m.notify
	m.dirty = 0
	m.mu.Unlock()
	for j := 0; dirty != 0 && notify != nil; j, dirty = j+1, dirty>>1 {
		if dirty&1 != 0 {
			notify(j)
		}
	}
}

// sleep waits until a time, or until the bell rings. The zero time is no limit.
func (m *Mirror) sleep(until time.Time) {
	var timeout *unix.Timespec
	if !until.IsZero() {
		ts := unix.NsecToTimespec(int64(max(time.Until(until), 0)))
		timeout = &ts
	}
	poll := []unix.PollFd{{Fd: int32(m.wake), Events: unix.POLLIN}}
	if n, err := unix.Ppoll(poll, timeout, nil); err == nil && n > 0 {
		var count [8]byte
		_, _ = unix.Read(m.wake, count[:]) // empties it
	}
}
