package local

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"lightpath/internal/shmring"
	"lightpath/ocsctl"
	"lightpath/plans/circuit"
)

// requestTimeout bounds writes and the answers to questions; only Acquire waits longer.
const requestTimeout = 5 * time.Second

// Client is a rank's connection to the controller of its host. Poll and State read shared memory, so they see a switch
// at once. Post writes to shared memory. Safe for concurrent use.
type Client struct {
	conn    *conn
	socket  string // of the controller
	port    int
	version string // of the controller
	fabric  fabricInfo
	status  statusPage
	view    *portView
	rings   []byte
	planes  []clientPlane
	maps    []*shmring.Memory // what Close unmaps
	bell    *shmring.Bell
	core    *shmring.Doorbell // the controller's

	lost atomic.Pointer[error] // why the connection is gone
	done chan struct{}         // closed when the reader has ended

	write    sync.Mutex // of the socket
	onChange atomic.Pointer[func()]
	onWanted atomic.Pointer[func(holder, mask uint64)]

	mu      sync.Mutex
	nextID  uint64
	answers map[uint64]chan *message
	held    map[uint64]uint64 // holder -> planes
	once    sync.Once

	// users counts the calls that use mapped memory. Close sets closed, and waits for these calls before it unmaps.
	users  atomic.Int32
	closed atomic.Bool
}

// clientPlane is a client's state of a plane: its end of the ring of posts, and caches of values read from shared
// memory.
type clientPlane struct {
	post    sync.Mutex // the ring has one producer
	state   atomic.Pointer[cachedState]
	fault   atomic.Pointer[cachedFault]
	refused ocsctl.Refusals
}

type cachedState struct {
	ocsctl.PlaneState
	seq uint32
}

type cachedFault struct {
	err error
	seq uint32
}

var _ ocsctl.Client = (*Client)(nil)

// Port returns this client's port.
func (c *Client) Port() int { return c.port }

// NumPorts returns the number of ports of every plane.
func (c *Client) NumPorts() int { return c.fabric.Ports }

// Planes returns the descriptions of the planes; read-only.
func (c *Client) Planes() []ocsctl.PlaneInfo { return c.fabric.Planes }

// DataPlane returns one of the ocsctl.Data constants.
func (c *Client) DataPlane() string { return c.fabric.DataPlane }

// Version returns the version of the controller's software, "" if the controller does not send it.
func (c *Client) Version() string { return c.version }

// Bell returns the doorbell that the controller rings after every change of state, and that a data path rings if it
// shares memory with this rank.
func (c *Client) Bell() *shmring.Doorbell { return c.bell.Doorbell }

// CoreBell returns the doorbell that wakes the controller to look at Rings.
func (c *Client) CoreBell() *shmring.Doorbell { return c.core }

// Rings returns the memory that the data path shares with this rank, valid until Close, and its description; nil if
// there is none.
func (c *Client) Rings() ([]byte, *RingsInfo) { return c.rings, c.fabric.Rings }

// State returns the state that the controller has published last. It does not allocate unless the plane has changed
// since the last call.
func (c *Client) State(plane int) ocsctl.PlaneState {
	p := &c.planes[plane]
	have := p.state.Load()
	if c.Use() {
		defer c.Unuse()
		if have != nil && have.seq == c.status.seq(plane) {
			return have.PlaneState
		}
		if st, _, seq, ok := c.status.read(plane, c.ended); ok {
			p.state.Store(&cachedState{st, seq})
			return st
		}
	}
	if have == nil {
		return ocsctl.PlaneState{Map: circuit.AllDark(c.fabric.Ports)}
	}
	return have.PlaneState
}

// ended reports whether the connection has ended.
func (c *Client) ended() bool { return c.lost.Load() != nil }

// Use keeps shared memory mapped until Unuse. It returns false after Close.
func (c *Client) Use() bool {
	c.users.Add(1)
	if c.closed.Load() {
		c.users.Add(-1)
		return false
	}
	return true
}

// Unuse ends a Use that has returned true.
func (c *Client) Unuse() { c.users.Add(-1) }

// Poll returns the plane's epoch and, while the plane is out of service, the reason.
func (c *Client) Poll(plane int) (uint32, error) {
	if err := c.lost.Load(); err != nil || !c.Use() {
		return c.State(plane).Epoch, c.lostError()
	}
	defer c.Unuse()
	epoch := c.status.epoch(plane)
	if !c.status.faulted(plane) {
		return epoch, nil
	}
	return epoch, c.diagnose(plane)
}

// diagnose converts a fault in shared memory to an error. It returns the same error until the state changes.
func (c *Client) diagnose(plane int) error {
	p := &c.planes[plane]
	have := p.fault.Load()
	if have == nil || have.seq != c.status.seq(plane) {
		_, f, seq, ok := c.status.read(plane, c.ended)
		if !ok {
			return c.lostError()
		}
		have = &cachedFault{seq: seq}
		if f.kind != faultNone {
			have.err = f.err()
		}
		p.fault.Store(have)
	}
	return have.err
}

// Refused returns why a post of this port for a holder was refused. The result does not change back. Hot path: no
// allocation, no locks, no logging.
func (c *Client) Refused(plane int, holder uint64) error { return c.planes[plane].refused.Get(holder) }

// Post asks to move plane from epoch to target, which is copied. Hot path: no allocation, and no
// system call unless the controller sleeps; only a port that is many epochs ahead uses the socket.
func (c *Client) Post(plane int, epoch uint32, holder uint64, target circuit.Permutation) error {
	if plane < 0 || plane >= len(c.planes) {
		return fmt.Errorf("ocs: post: plane %d of %d", plane, len(c.planes))
	}
	if len(target) != c.fabric.Ports {
		return fmt.Errorf("ocs: post: plane %d: target %w", plane, target.Validate(c.fabric.Ports))
	}
	if err := c.lost.Load(); err != nil {
		return *err
	}
	if !c.Use() {
		return c.lostError()
	}
	p := &c.planes[plane]
	p.post.Lock()
	done := c.view.post(plane, epoch, holder, target)
	p.post.Unlock()
	if done {
		c.core.Ring()
	}
	c.Unuse()
	if done {
		return nil
	}
	return c.send(&message{Type: msgPost, Plane: plane, Epoch: epoch, Holder: holder, Target: target})
}

func (c *Client) send(m *message) error {
	b, err := m.encode()
	if err != nil {
		return err
	}
	c.write.Lock()
	defer c.write.Unlock()
	if err := c.lost.Load(); err != nil {
		return *err
	}
	_ = c.conn.SetWriteDeadline(time.Now().Add(requestTimeout))
	if _, err := c.conn.Write(b); err != nil {
		return fmt.Errorf("ocs: port %d: %w: %w", c.port, ocsctl.ErrControlLost, err)
	}
	return nil
}

// request sends m under a new id and waits for the answer, at most for limit. 0 means until the connection ends.
func (c *Client) request(m *message, limit time.Duration) (*message, error) {
	answer := make(chan *message, 1)
	c.mu.Lock()
	c.nextID++
	m.ID = c.nextID
	c.answers[m.ID] = answer
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		delete(c.answers, m.ID)
		c.mu.Unlock()
	}()
	if err := c.send(m); err != nil {
		return nil, err
	}
	var expired <-chan time.Time
	if limit > 0 {
		t := time.NewTimer(limit)
		defer t.Stop()
		expired = t.C
	}
	select {
	case a := <-answer:
		if a.Type == msgError {
			return nil, remoteError(a)
		}
		return a, nil
	case <-c.done:
		return nil, c.lostError()
	case <-expired:
		return nil, fmt.Errorf("ocs: %s: no answer in %v: %w", m.Type, limit, ocsctl.ErrControlLost)
	}
}

// Acquire blocks until those planes of the lease that are in service are granted, all at once.
func (c *Client) Acquire(l ocsctl.Lease) (uint64, error) {
	if err := ocsctl.CheckMask(l.Mask, len(c.planes)); err != nil {
		return 0, fmt.Errorf("ocs: acquire: %w", err)
	}
	a, err := c.request(&message{Type: msgAcquire, Lease: &l}, 0)
	if err != nil {
		return 0, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held[l.Holder] |= a.Mask
	return a.Mask, nil
}

// Release gives planes back without waiting for an answer.
func (c *Client) Release(mask, holder uint64) error {
	c.mu.Lock()
	held := c.held[holder]
	if mask == 0 || mask&^held != 0 {
		c.mu.Unlock()
		return fmt.Errorf("ocs: release: holder %s has planes %#x, not %#x", ocsctl.HolderName(holder), held, mask)
	}
	if held &^= mask; held == 0 {
		delete(c.held, holder)
	} else {
		c.held[holder] = held
	}
	c.mu.Unlock()
	return c.send(&message{Type: msgRelease, Mask: mask, Holder: holder})
}

// OnChange registers f to be called, from the client's goroutine, after state changes. A
// rank that sleeps on its bell does not need it.
func (c *Client) OnChange(f func()) {
	if c.onChange.Swap(&f) == nil {
		_ = c.send(&message{Type: msgWatch})
	}
}

// OnWanted registers f to be called, from the client's goroutine, when others want planes that a holder has.
func (c *Client) OnWanted(f func(holder, mask uint64)) { c.onWanted.Store(&f) }

// Waiting asks the controller what the next switch of a plane waits for: "plane p1 epoch 17: waiting for ports 2,5". It
// returns an error after some seconds without an answer.
func (c *Client) Waiting(plane int) (string, error) {
	a, err := c.request(&message{Type: msgWaiting, Plane: plane}, requestTimeout)
	if err != nil {
		return "", err
	}
	return a.Text, nil
}

// read is the client's goroutine.
func (c *Client) read() {
	for {
		m, err := c.conn.recv()
		if err == nil && m.Type == msgError && m.ID == 0 {
			err = remoteError(m)
		}
		if err != nil {
			c.fail(err)
			return
		}
		switch {
		case m.Type == msgRefused && m.Plane >= 0 && m.Plane < len(c.planes):
			c.planes[m.Plane].refused.Add(m.Holder, fmt.Errorf("ocs: %w", remoteError(m)))
			c.bell.Ring() // wake a rank that sleeps: the state has changed
			c.notify()
			continue
		case m.Type == msgState:
			c.notify()
			continue
		case m.Type == msgWanted:
			if f := c.onWanted.Load(); f != nil {
				(*f)(m.Holder, m.Mask)
			}
			continue
		}
		c.mu.Lock()
		answer := c.answers[m.ID]
		delete(c.answers, m.ID)
		c.mu.Unlock()
		if answer != nil {
			answer <- m
		}
	}
}

func (c *Client) notify() {
	if f := c.onChange.Load(); f != nil {
		(*f)()
	}
}

// fail ends the connection for all callers that use it or wait for it. It closes done last, since Close then unmaps the
// memory that fail uses.
func (c *Client) fail(cause error) {
	err := fmt.Errorf("ocs: port %d: %w: controller at %s: %w", c.port, ocsctl.ErrControlLost, c.socket, cause)
	c.lost.CompareAndSwap(nil, &err)
	if c.bell != nil {
		c.bell.Ring()
	}
	c.notify()
	close(c.done)
}

// Close says goodbye and unmaps the port's memory, so the rings must not be in use any more.
// Earlier posts stay valid. When Close returns, the port is free. Idempotent.
func (c *Client) Close() error {
	c.once.Do(func() {
		err := c.send(&message{Type: msgGoodbye})
		c.closed.Store(true)
		// The controller answers by closing. Read until then: closing a socket with unread data resets the connection,
		// and the goodbye would be lost.
		if err == nil {
			_ = c.conn.CloseWrite()
			_ = c.conn.SetReadDeadline(time.Now().Add(requestTimeout))
			<-c.done
		}
		c.conn.shut()
		<-c.done
		c.conn.close()
		for c.users.Load() != 0 {
			runtime.Gosched()
		}
		c.unmap()
	})
	return nil
}

func (c *Client) unmap() {
	for _, m := range c.maps {
		m.Close()
	}
	if c.bell != nil {
		c.bell.Close()
	}
}

var errClosed = errors.New("closed")

// lostError returns the error with which the connection ended.
func (c *Client) lostError() error {
	if err := c.lost.Load(); err != nil {
		return *err
	}
	return fmt.Errorf("ocs: port %d: %w: %w", c.port, ocsctl.ErrControlLost, errClosed)
}
