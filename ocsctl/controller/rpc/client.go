package rpc

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"lightpath/ocsctl"
	"lightpath/ocsctl/controller/rpc/ocspb"
	"lightpath/plans/circuit"
)

// Options of the end of a rank or an operator. The zero value is for a controller on this host.
type Options struct {
	// CA, Cert and Key are PEM files: the trusted authority, and this end's certificate. Required for endpoints on
	// other hosts.
	CA, Cert, Key string
	// Version is that of this end's software; see ocsctl.CheckVersions.
	Version string
	// Takeover is how long a rank looks for a controller before it gives up; 0: 30 s.
	Takeover time.Duration
	// Silence is the time without a message after which a rank looks for another controller; 0: 6 s. A controller
	// sends a message every second.
	Silence time.Duration
}

// Client is a rank's attachment to the controller in charge: an ocsctl.Client. When its stream breaks or its
// controller ends, it finds the next controller at its endpoints, claims the planes that it holds, and repeats pending
// requests. Callers only notice the time that this takes, unless it fails. Safe for concurrent use.
type Client struct {
	port      int
	endpoints []*endpoint
	o         Options
	numPorts  int
	infos     []ocsctl.PlaneInfo
	dataPlane string

	planes   []atomic.Pointer[planeView]
	refused  []ocsctl.Refusals     // by plane
	gone     atomic.Pointer[error] // given up, or closed
	onChange atomic.Pointer[func()]
	onWanted atomic.Pointer[func(holder, mask uint64)]

	ctx    context.Context // of everything; canceled by the end of Close
	cancel context.CancelFunc
	ended  chan struct{} // closed: the client's goroutine is gone
	once   sync.Once

	mu       sync.Mutex // of what follows, and of writes to the stream
	link     *link      // nil while there is none
	session  []byte
	token    uint64
	closing  bool
	nextID   uint64
	posts    [][]post                   // by plane: not known to have happened
	requests map[uint64]*pendingAcquire // not answered
	held     map[uint64]heldLease       // by holder
	up       ocspb.Up                   // reused, as are the next two
	upPost   ocspb.Up_Post
	post     ocspb.Post
}

// planeView is all that Poll and State look at. It is never changed.
type planeView struct {
	ocsctl.PlaneState
	fault error // that the controller reports
}

type post struct {
	epoch  uint32
	holder uint64
	target circuit.Permutation
}

// pendingAcquire is an Acquire without an answer.
type pendingAcquire struct {
	lease  ocsctl.Lease
	answer chan grant
}

type grant struct {
	mask uint64
	err  error
}

// heldLease is a granted lease; its mask has the planes that are held.
type heldLease struct {
	ocsctl.Lease
	since time.Time
}

var _ ocsctl.Client = (*Client)(nil)

// Port is this client's port.
func (c *Client) Port() int { return c.port }

// NumPorts is the number of ports of every plane.
func (c *Client) NumPorts() int { return c.numPorts }

// Planes describes the planes; read-only.
func (c *Client) Planes() []ocsctl.PlaneInfo { return c.infos }

// DataPlane is an ocsctl.Data constant.
func (c *Client) DataPlane() string { return c.dataPlane }

// State returns where the controller has said that a plane is.
// Hot path: no allocation, no locks, no logging.
func (c *Client) State(plane int) ocsctl.PlaneState { return c.planes[plane].Load().PlaneState }

// Poll returns the plane's epoch, and the fault of the plane for as long as it has one. The end
// of the client is a fault of every plane; a controller that is being replaced is not.
// Hot path: no allocation, no locks, no logging.
func (c *Client) Poll(plane int) (uint32, error) {
	v := c.planes[plane].Load()
	if err := c.gone.Load(); err != nil {
		return v.Epoch, *err
	}
	return v.Epoch, v.fault
}

// Refused returns why a post of this port for a holder was refused; it stays.
// Hot path: no allocation, no locks, no logging.
func (c *Client) Refused(plane int, holder uint64) error { return c.refused[plane].Get(holder) }

// Post asks to move plane from epoch to target, which is copied. It waits for the network only
// where that takes nothing any more, and then not for long; without a controller it is sent when
// there is one.
func (c *Client) Post(plane int, epoch uint32, holder uint64, target circuit.Permutation) error {
	if plane < 0 || plane >= len(c.planes) {
		return fmt.Errorf("rpc: post: plane %d of %d", plane, len(c.planes))
	}
	if err := target.Validate(c.numPorts); err != nil {
		return fmt.Errorf("rpc: post: plane %d: target %w", plane, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.gone.Load(); err != nil {
		return *err
	}
	waiting := c.posts[plane]
	known := slices.ContainsFunc(waiting, func(p post) bool {
		return p.epoch == epoch && p.holder == holder && p.target.Equal(target)
	})
	switch {
	case known || epoch < c.planes[plane].Load().Epoch: // the controller judges it
	case len(waiting) >= maxAhead:
		return fmt.Errorf("rpc: post: port %d plane %d epoch %d: %d posts wait already: %w", c.port, plane, epoch,
			len(waiting), ocsctl.ErrStaleEpoch)
	default:
		c.posts[plane] = append(waiting, post{epoch, holder, target.Clone()})
	}
	c.post.Plane, c.post.Epoch, c.post.Holder, c.post.Target = uint32(plane), epoch, holder, c.post.Target[:0]
	for _, s := range target {
		c.post.Target = append(c.post.Target, int32(s))
	}
	c.upPost.Post = &c.post
	c.up.Message = &c.upPost
	c.send(&c.up)
	return nil
}

// send writes to the stream, if there is one; the caller holds mu. An error needs no answer: the
// stream is broken, and what was not confirmed goes out on the next one.
func (c *Client) send(up *ocspb.Up) {
	if c.link != nil {
		_ = c.link.stream.Send(up)
	}
}

// Acquire blocks until planes of the lease are granted, or the client has given up.
func (c *Client) Acquire(l ocsctl.Lease) (uint64, error) {
	if err := checkMask(l.Mask, len(c.planes)); err != nil {
		return 0, fmt.Errorf("rpc: acquire: %w", err)
	}
	a := &pendingAcquire{l, make(chan grant, 1)}
	c.mu.Lock()
	if len(c.requests) >= maxAcquires {
		c.mu.Unlock()
		return 0, fmt.Errorf("rpc: acquire: port %d: %d requests wait already", c.port, maxAcquires)
	}
	c.nextID++
	id := c.nextID
	c.requests[id] = a
	c.send(a.message(id))
	c.mu.Unlock()
	select {
	case g := <-a.answer:
		return g.mask, g.err
	case <-c.ended:
		return 0, *c.gone.Load()
	}
}

func (a *pendingAcquire) message(id uint64) *ocspb.Up {
	return &ocspb.Up{Message: &ocspb.Up_Acquire{Acquire: &ocspb.Acquire{Id: id, Lease: toLease(&a.lease)}}}
}

// Release gives planes back without waiting for an answer.
func (c *Client) Release(mask, holder uint64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	have := c.held[holder]
	if mask == 0 || mask&^have.Mask != 0 {
		return fmt.Errorf("rpc: release: holder %s has planes %#x, not %#x", ocsctl.HolderName(holder), have.Mask, mask)
	}
	if have.Mask &^= mask; have.Mask == 0 {
		delete(c.held, holder)
	} else {
		c.held[holder] = have
	}
	c.send(&ocspb.Up{Message: &ocspb.Up_Release{Release: &ocspb.Release{Mask: mask, Holder: holder}}})
	return nil
}

// OnChange registers f to be called, from the client's goroutine, after state changes.
func (c *Client) OnChange(f func()) { c.onChange.Store(&f) }

// OnWanted registers f to be called, from the client's goroutine, when others want planes that a holder has.
func (c *Client) OnWanted(f func(holder, mask uint64)) { c.onWanted.Store(&f) }

func (c *Client) notify() {
	if f := c.onChange.Load(); f != nil && *f != nil {
		(*f)()
	}
}

// errNoLink means that the client looks for a controller.
var errNoLink = errors.New("no controller at the moment")

// Waiting asks the controller what the next switch of a plane waits for: "plane p1 epoch 17: waiting for ports 2,5". It
// returns an error after some seconds without an answer.
func (c *Client) Waiting(plane int) (string, error) {
	c.mu.Lock()
	l := c.link
	c.mu.Unlock()
	if l == nil {
		return "", errNoLink
	}
	ctx, cancel := context.WithTimeout(c.ctx, requestTimeout)
	defer cancel()
	reply, err := ocspb.NewRanksClient(l.conn).Waiting(ctx, &ocspb.WaitingRequest{Plane: uint32(plane)})
	if err != nil {
		return "", fromStatus(err)
	}
	return oneLine(reply.GetText()), nil
}

// errClosed is why a closed client does nothing.
var errClosed = errors.New("closed")

// Close says goodbye. When it returns, the port is free if a controller could be reached.
// Posts that have been made stay valid. Idempotent.
func (c *Client) Close() error {
	c.once.Do(func() {
		c.mu.Lock()
		c.closing = true
		l := c.link
		if l == nil {
			c.cancel()
		} else {
			c.send(&ocspb.Up{Message: &ocspb.Up_Goodbye{Goodbye: &ocspb.Goodbye{}}})
			_ = l.stream.CloseSend()
		}
		c.mu.Unlock()
		limit := time.AfterFunc(requestTimeout, c.cancel)
		<-c.ended
		limit.Stop()
		c.cancel()
	})
	return nil
}
