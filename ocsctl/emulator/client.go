package emulator

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"lightpath/ocsctl"
	"lightpath/plans/circuit"
)

// requestTimeout bounds writes and the answers to questions; only Acquire waits longer.
const requestTimeout = 5 * time.Second

// Client is a rank's connection to a switch: an ocsctl.Client and the rings of its port.
// Poll and State read shared memory, so they see a switch as soon as it has happened.
// Safe for concurrent use, except for the rings.
type Client struct {
	conn   *conn
	port   int
	fabric fabricInfo
	status statusPage
	view   *portView
	ports  []PortMemory
	planes []clientPlane
	maps   []*memory // what Close unmaps
	bell   *Bell

	lost atomic.Pointer[error] // why the connection is gone
	done chan struct{}         // closed when the reader has ended

	write    sync.Mutex // of the socket; guards post
	post     []byte     // reused
	onChange atomic.Pointer[func()]

	acquire sync.Mutex // one Acquire at a time
	mu      sync.Mutex
	nextID  uint64
	answers map[uint64]chan *message
	held    map[uint64]uint64 // holder -> planes
	once    sync.Once

	// users counts the calls that look at mapped memory right now; Close, which sets closed,
	// waits for them before it unmaps.
	users  atomic.Int32
	closed atomic.Bool
}

// clientPlane caches what is built from shared memory.
type clientPlane struct {
	state atomic.Pointer[cachedState]
	err   atomic.Pointer[error]
}

type cachedState struct {
	ocsctl.PlaneState
	seq uint32
}

var _ ocsctl.Client = (*Client)(nil)

// Port is this client's port.
func (c *Client) Port() int { return c.port }

// Ports returns the rings of the port, one entry per plane, valid until Close.
func (c *Client) Ports() []PortMemory { return c.ports }

// MTU is the most bytes of a frame, its label included.
func (c *Client) MTU() int { return c.fabric.MTU }

// NumPorts is the number of ports of every plane.
func (c *Client) NumPorts() int { return c.fabric.Ports }

// Planes describes the planes of the switch; read-only.
func (c *Client) Planes() []PlaneInfo { return c.fabric.Planes }

// State returns what the switch has published last. It does not allocate unless the plane
// has changed since the last call.
func (c *Client) State(plane int) ocsctl.PlaneState {
	p := &c.planes[plane]
	have := p.state.Load()
	if !c.use() {
		if have == nil {
			return ocsctl.PlaneState{Map: circuit.AllDark(c.fabric.Ports)}
		}
		return have.PlaneState
	}
	defer c.users.Add(-1)
	if have != nil && have.seq == c.status.seq(plane) {
		return have.PlaneState
	}
	st, _, seq := c.status.read(plane)
	p.state.Store(&cachedState{st, seq})
	return st
}

// use keeps the memory mapped until users is decremented again; false after Close.
func (c *Client) use() bool {
	c.users.Add(1)
	if c.closed.Load() {
		c.users.Add(-1)
		return false
	}
	return true
}

// Poll returns the plane's epoch and, from then on, the first failure of the plane that
// this port learns of.
func (c *Client) Poll(plane int) (uint32, error) {
	p := &c.planes[plane]
	if err := p.err.Load(); err != nil {
		return c.State(plane).Epoch, *err
	}
	if err := c.lost.Load(); err != nil || !c.use() {
		return c.State(plane).Epoch, c.lostError()
	}
	defer c.users.Add(-1)
	epoch := c.status.epoch(plane)
	a := &c.view.alarms[plane]
	if a.total() == 0 && a.refused.Load() == 0 && !c.status.faulted(plane) {
		return epoch, nil
	}
	err := c.diagnose(plane, a)
	if err == nil {
		return epoch, nil
	}
	p.err.CompareAndSwap(nil, &err)
	return epoch, *p.err.Load()
}

// diagnose turns what shared memory says into an error. Lost frames come first: they are
// often why the rest went wrong.
func (c *Client) diagnose(plane int, a *alarms) error {
	if n := a.total(); n > 0 {
		var why []string
		for v := range a.lost {
			if k := a.lost[v].Load(); k > 0 {
				text := fmt.Sprintf("%d %v", k, Verdict(v))
				if Verdict(v) == LostVacant {
					text += fmt.Sprintf(": the rank of port %d is gone", a.gone.Load())
				}
				why = append(why, text)
			}
		}
		return fmt.Errorf("emulator: port %d plane %d epoch %d: %d frames (%s): %w", c.port, plane, a.epoch.Load(), n, strings.Join(why, ", "), ocsctl.ErrFramesLost)
	}
	if _, f, _ := c.status.read(plane); f.kind != faultNone {
		return f.err()
	}
	if a.refused.Load() > 0 {
		return fmt.Errorf("emulator: port %d plane %d: posted for epoch %d at epoch %d: %w", c.port, plane, a.refusedEpoch.Load(), a.planeEpoch.Load(), ocsctl.ErrStaleEpoch)
	}
	return nil
}

// Post asks to move plane from epoch to target. The target is checked here and copied.
func (c *Client) Post(plane int, epoch uint32, target circuit.Permutation) error {
	if plane < 0 || plane >= len(c.planes) {
		return fmt.Errorf("emulator: post: plane %d of %d", plane, len(c.planes))
	}
	if len(target) != c.fabric.Ports {
		return fmt.Errorf("emulator: post: plane %d: target %w", plane, target.Validate(c.fabric.Ports))
	}
	c.write.Lock()
	defer c.write.Unlock()
	c.post = appendPost(c.post[:0], plane, epoch, target)
	return c.put(c.post)
}

// put writes framed bytes; the caller holds write.
func (c *Client) put(b []byte) error {
	if err := c.lost.Load(); err != nil {
		return *err
	}
	_ = c.conn.SetWriteDeadline(time.Now().Add(requestTimeout))
	if _, err := c.conn.Write(b); err != nil {
		return fmt.Errorf("emulator: port %d: %w: %w", c.port, ocsctl.ErrControlLost, err)
	}
	return nil
}

func (c *Client) send(m *message) error {
	b, err := m.encode()
	if err != nil {
		return err
	}
	c.write.Lock()
	defer c.write.Unlock()
	return c.put(b)
}

// request sends m under a fresh id and waits for the answer, at most for limit; 0: for as
// long as the connection lives.
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
			return nil, errors.New(a.Text)
		}
		return a, nil
	case <-c.done:
		return nil, c.lostError()
	case <-expired:
		return nil, fmt.Errorf("emulator: %s: no answer in %v: %w", m.Type, limit, ocsctl.ErrControlLost)
	}
}

// Acquire blocks until the planes of mask are granted, all at once.
func (c *Client) Acquire(mask, holder uint64) error {
	if mask == 0 || len(c.planes) < 64 && mask>>len(c.planes) != 0 {
		return fmt.Errorf("emulator: acquire: mask %#x of %d planes", mask, len(c.planes))
	}
	c.acquire.Lock()
	defer c.acquire.Unlock()
	if _, err := c.request(&message{Type: msgAcquire, Mask: mask, Holder: holder}, 0); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held[holder] |= mask
	return nil
}

// Release gives planes back without waiting for an answer.
func (c *Client) Release(mask, holder uint64) error {
	c.mu.Lock()
	held := c.held[holder]
	if mask == 0 || mask&^held != 0 {
		c.mu.Unlock()
		return fmt.Errorf("emulator: release: holder %d has planes %#x, not %#x", holder, held, mask)
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

// Waiting says in words what the next switch of a plane waits for, for error messages:
// "plane 1 epoch 17: waiting for ports 2,5". It asks the switch and may take a while.
func (c *Client) Waiting(plane int) string {
	a, err := c.request(&message{Type: msgWaiting, Plane: plane}, requestTimeout)
	if err != nil {
		return fmt.Sprintf("plane %d: unknown (%v)", plane, err)
	}
	return a.Text
}

// read is the client's goroutine.
func (c *Client) read() {
	for {
		m, err := c.conn.recv()
		if err == nil && m.Type == msgError && m.ID == 0 {
			err = errors.New(m.Text)
		}
		if err != nil {
			c.fail(err)
			return
		}
		if m.Type == msgState {
			c.notify()
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

// fail ends the connection for everyone who uses or waits for it. What it touches Close
// unmaps once done is closed, so that comes last.
func (c *Client) fail(cause error) {
	err := fmt.Errorf("emulator: port %d: %w: %w", c.port, ocsctl.ErrControlLost, cause)
	c.lost.CompareAndSwap(nil, &err)
	if len(c.ports) > 0 {
		c.ports[0].Bell.Ring()
	}
	c.notify()
	close(c.done)
}

// Close says goodbye and unmaps the port's memory, so the rings must not be in use any more.
// Posts that have been made stay valid; when it returns, the port is free. Idempotent.
func (c *Client) Close() error {
	c.once.Do(func() {
		err := c.send(&message{Type: msgGoodbye})
		c.closed.Store(true)
		// The switch answers by closing. Reading up to there matters: a socket that is closed
		// with unread data resets the connection and takes the goodbye with it.
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
		m.close()
	}
	if c.bell != nil {
		c.bell.Close()
	}
}

// lostError is why there is no connection.
func (c *Client) lostError() error {
	if err := c.lost.Load(); err != nil {
		return *err
	}
	return fmt.Errorf("emulator: port %d: %w: closed", c.port, ocsctl.ErrControlLost)
}
