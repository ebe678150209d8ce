package rpc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"lightpath/ocsctl"
	"lightpath/ocsctl/controller"
	"lightpath/ocsctl/controller/rpc/ocspb"
	"lightpath/plans/circuit"
)

// Dial attaches port to the controller in charge at one of the endpoints (host:port). During a takeover, or if an
// endpoint answers too late, it tries again for Options.Takeover or until ctx ends. If every endpoint refuses the
// connection, it returns an error at once.
// ctx has no effect after Dial has returned.
func Dial(ctx context.Context, endpoints []string, port int, o Options) (*Client, error) {
	if port < 0 || port >= controller.MaxPorts {
		return nil, fmt.Errorf("rpc: port %d", port)
	}
	o.Takeover, o.Silence = cmp.Or(o.Takeover, defaultTakeover), cmp.Or(o.Silence, defaultSilence)
	all, err := newEndpoints(endpoints, &o)
	if err != nil {
		return nil, err
	}
	c := &Client{port: port, endpoints: all, o: o, ended: make(chan struct{}), requests: map[uint64]*pendingAcquire{},
		held: map[uint64]heldLease{}}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	stop := context.AfterFunc(ctx, c.cancel)
	l, w, err := c.find(ctx, true)
	if err == nil && !stop() {
		l.close()
		err = fmt.Errorf("rpc: port %d: %w", port, ctx.Err())
	}
	if err == nil {
		if err = c.begin(w); err != nil {
			l.close()
			err = fmt.Errorf("rpc: port %d: controller at %s: %w", port, l.endpoint.address, err)
		}
	}
	if err != nil {
		c.cancel()
		return nil, err
	}
	c.link = l
	go c.run(l)
	return c, nil
}

// begin takes over what the first welcome says.
func (c *Client) begin(w *ocspb.Welcome) error {
	ports, planes := int(w.GetPorts()), len(w.GetPlanes())
	if ports < 1 || ports > controller.MaxPorts || planes < 1 || planes > controller.MaxPlanes {
		return fmt.Errorf("welcome: %d ports, %d planes: %w", ports, planes, ErrProtocol)
	}
	c.numPorts, c.dataPlane = ports, oneLine(w.GetDataPlane())
	for _, p := range w.GetPlanes() {
		c.infos = append(c.infos, fromPlaneInfo(p))
	}
	c.planes, c.refused = make([]atomic.Pointer[planeView], planes), make([]ocsctl.Refusals, planes)
	for j := range c.planes {
		c.planes[j].Store(&planeView{PlaneState: ocsctl.PlaneState{Map: circuit.AllDark(ports)}})
	}
	c.posts = make([][]post, planes)
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.welcome(w)
}

// welcome takes over where the planes are; the caller holds mu.
func (c *Client) welcome(w *ocspb.Welcome) error {
	if int(w.GetPorts()) != c.numPorts || len(w.GetPlanes()) != len(c.planes) || len(w.GetState()) != len(c.planes) {
		return fmt.Errorf("welcome: %d ports and %d planes, not %d and %d: %w", w.GetPorts(), len(w.GetPlanes()), c.numPorts,
			len(c.planes), ErrProtocol)
	}
	for j, s := range w.GetState() {
		if int(s.GetPlane()) != j || len(s.GetMap()) == 0 {
			return fmt.Errorf("welcome: state of plane %d: %w", j, ErrProtocol)
		}
		if err := c.apply(s); err != nil {
			return fmt.Errorf("welcome: %w", err)
		}
	}
	c.session, c.token = append(c.session[:0], w.GetSession()...), w.GetToken()
	return nil
}

// apply takes over where a plane is; the caller holds mu.
func (c *Client) apply(s *ocspb.Changed) error {
	v, err := c.view(s)
	if err != nil {
		return err
	}
	next := v.Epoch
	if v.fault != nil {
		next = math.MaxUint32 // a fault voids what was asked for
	}
	c.forget(int(s.GetPlane()), next)
	c.planes[s.GetPlane()].Store(v)
	return nil
}

// view reads where a plane is.
func (c *Client) view(s *ocspb.Changed) (*planeView, error) {
	if int64(s.GetPlane()) >= int64(len(c.planes)) {
		return nil, fmt.Errorf("plane %d of %d: %w", s.GetPlane(), len(c.planes), ErrProtocol)
	}
	m := c.planes[s.GetPlane()].Load().Map
	switch {
	case len(s.GetMap()) > 0:
		var err error
		if m, err = fromMap(s.GetMap(), c.numPorts); err != nil {
			return nil, fmt.Errorf("plane %d: %w", s.GetPlane(), err)
		}
	case len(s.GetPort()) != len(s.GetTo()):
		return nil, fmt.Errorf("plane %d: %d ports, %d circuits: %w", s.GetPlane(), len(s.GetPort()), len(s.GetTo()),
			ErrProtocol)
	case len(s.GetPort()) > 0:
		m = m.Clone()
		for i, r := range s.GetPort() {
			if int64(r) >= int64(len(m)) {
				return nil, fmt.Errorf("plane %d: port %d of %d: %w", s.GetPlane(), r, len(m), ErrProtocol)
			}
			m[r] = int(s.GetTo()[i])
		}
		if err := m.Validate(c.numPorts); err != nil {
			return nil, fmt.Errorf("plane %d: map %w: %w", s.GetPlane(), err, ErrProtocol)
		}
	}
	v := &planeView{PlaneState: ocsctl.PlaneState{Epoch: s.GetEpoch(), Map: m}}
	if s.GetFault() != nil {
		v.fault = fmt.Errorf("rpc: port %d: %w", c.port, fromFault(s.GetFault()))
	}
	return v, nil
}

// forget drops what was asked for before an epoch from what is repeated to the next controller; the
// caller holds mu.
func (c *Client) forget(plane int, epoch uint32) {
	c.posts[plane] = slices.DeleteFunc(c.posts[plane], func(p post) bool { return p.epoch < epoch })
}

// run is the client's goroutine: it receives, and finds the next controller.
func (c *Client) run(l *link) {
	defer close(c.ended)
	for pause := firstBackoff; ; pause = min(2*pause, maxRetry) {
		since := time.Now()
		err := c.receive(l)
		if time.Since(since) > heartbeat {
			pause = firstBackoff
		}
		c.mu.Lock()
		c.link = nil
		closing := c.closing
		c.mu.Unlock()
		l.close()
		l.endpoint.last = err
		if !closing {
			c.sleep(c.ctx, pause)
			l, err = c.again(err)
		}
		if closing || c.ctx.Err() != nil {
			err = fmt.Errorf("rpc: port %d: %w: %w", c.port, ocsctl.ErrControlLost, errClosed)
		}
		if closing || err != nil {
			c.end(err)
			return
		}
		c.notify()
	}
}

// end is for everyone who uses the client or waits for it.
func (c *Client) end(err error) {
	c.gone.Store(&err)
	c.notify()
}

// receive takes over what the controller says until the stream ends.
func (c *Client) receive(l *link) error {
	for {
		d, err := l.recv()
		if err != nil {
			return err
		}
		if len(d.GetChanged())+len(d.GetRefused())+len(d.GetGranted())+len(d.GetWanted()) == 0 {
			continue // a heartbeat
		}
		c.mu.Lock()
		err = c.takeOver(d)
		c.mu.Unlock()
		if err != nil {
			return err
		}
		if f := c.onWanted.Load(); f != nil {
			for _, w := range d.GetWanted() {
				(*f)(w.GetHolder(), w.GetMask())
			}
		}
		c.notify()
	}
}

// takeOver handles one message; the caller holds mu. It applies changes before grants, since the rank reads the map of
// a plane that it is granted.
func (c *Client) takeOver(d *ocspb.Down) error {
	for _, s := range d.GetChanged() {
		if err := c.apply(s); err != nil {
			return err
		}
	}
	for _, r := range d.GetRefused() {
		if int64(r.GetPlane()) >= int64(len(c.planes)) {
			return fmt.Errorf("refused: plane %d of %d: %w", r.GetPlane(), len(c.planes), ErrProtocol)
		}
		why := r.GetFault()
		if why == nil {
			return fmt.Errorf("refused: plane %d: no reason: %w", r.GetPlane(), ErrProtocol)
		}
		c.refused[r.GetPlane()].Add(r.GetHolder(), fmt.Errorf("rpc: %w", fromFault(why)))
	}
	for _, g := range d.GetGranted() {
		a := c.requests[g.GetId()]
		if a == nil {
			continue // told twice
		}
		var err error
		if g.GetFault() != nil {
			err = fmt.Errorf("rpc: port %d: %w", c.port, fromFault(g.GetFault()))
		} else if g.GetMask() == 0 || g.GetMask()&^a.lease.Mask != 0 {
			return fmt.Errorf("granted %#x of %#x: %w", g.GetMask(), a.lease.Mask, ErrProtocol)
		}
		delete(c.requests, g.GetId())
		if err == nil {
			l := a.lease
			l.Mask, l.Circuits = c.held[l.Holder].Mask|g.GetMask(), nil
			c.held[l.Holder] = heldLease{l, time.Now()}
		}
		a.answer <- grant{g.GetMask(), err}
	}
	return nil
}

// errLost means that a controller was found that cannot give this rank its place back.
var errLost = errors.New("this rank has lost its place")

// again finds a controller and takes up there what was going on. What broke the stream before
// matters where it says that the two ends do not understand each other: they would not the next
// time.
func (c *Client) again(broke error) (*link, error) {
	for {
		if errors.Is(broke, ErrProtocol) || errors.Is(broke, errLost) || errors.Is(broke, errClosed) {
			return nil, fmt.Errorf("rpc: port %d: %w: controller at %s: %w", c.port, ocsctl.ErrControlLost,
				c.endpoints[0].address, broke)
		}
		if errors.Is(broke, errSilent) {
			c.demote()
		}
		l, w, err := c.find(c.ctx, false)
		if err != nil {
			return nil, err
		}
		c.mu.Lock()
		if err = c.reclaim(l, w); err == nil {
			err = c.repeat(l, w)
		}
		if err == nil && c.closing {
			err = errClosed
		}
		if err == nil {
			c.link = l
			c.mu.Unlock()
			return l, nil
		}
		c.mu.Unlock()
		l.close()
		broke = err
	}
}

// sleep waits for about a duration, or the end of ctx.
func (c *Client) sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d/2 + rand.N(d)):
	case <-ctx.Done():
	}
}

// reclaim checks that this rank still holds its planes. It gives back planes that the rank released while
// no controller could be reached. The caller holds mu.
func (c *Client) reclaim(l *link, w *ocspb.Welcome) error {
	if w.GetToken() == c.token && !w.GetResumed() {
		busy := len(c.held) > 0
		for j := range c.posts {
			busy = busy || len(c.posts[j]) > 0
		}
		if busy {
			return fmt.Errorf("the controller took it for dead: %w", errLost)
		}
	}
	has := map[uint64]uint64{}
	for _, l := range w.GetHeld() {
		has[l.GetHolder()] |= l.GetMask()
	}
	for holder, h := range c.held {
		if lost := h.Mask &^ has[holder]; lost != 0 {
			return fmt.Errorf("planes %#x of %s are not its any more: %w", lost, ocsctl.HolderName(holder), errLost)
		}
	}
	for _, a := range c.requests {
		has[a.lease.Holder] &^= a.lease.Mask // granted, perhaps, and not told yet
	}
	for holder, mask := range has {
		if mask &^= c.held[holder].Mask; mask != 0 {
			_ = l.stream.Send(&ocspb.Up{Message: &ocspb.Up_Release{Release: &ocspb.Release{Mask: mask, Holder: holder}}})
		}
	}
	return nil
}

// repeat takes over where the planes are and sends again what is not confirmed; the caller holds
// mu.
func (c *Client) repeat(l *link, w *ocspb.Welcome) error {
	if w.GetToken() != c.token { // the same controller has judged posts itself
		if err := c.verify(w); err != nil {
			return err
		}
	}
	if err := c.welcome(w); err != nil {
		return err
	}
	for j := range c.posts {
		for _, p := range c.posts[j] {
			_ = l.stream.Send(&ocspb.Up{Message: &ocspb.Up_Post{Post: &ocspb.Post{Plane: uint32(j), Epoch: p.epoch,
				Holder: p.holder, Target: toMap(p.target)}}})
		}
	}
	for id, a := range c.requests {
		_ = l.stream.Send(a.message(id))
	}
	return nil
}

// verify refuses posts for past epochs of a controller that has taken over, unless they have happened. They have if the
// port's circuit is the one of the last of them: only posts of the port change a circuit inside a lease. The caller
// holds mu, and ranks do not see the new epochs yet.
func (c *Client) verify(w *ocspb.Welcome) error {
	for _, s := range w.GetState() {
		v, err := c.view(s)
		if err != nil {
			return fmt.Errorf("welcome: %w", err)
		}
		posts := slices.Clone(c.posts[s.GetPlane()])
		posts = slices.DeleteFunc(posts, func(p post) bool { return p.epoch >= v.Epoch })
		if n := len(posts); n > 0 && v.Map[c.port] == posts[n-1].target[c.port] {
			continue
		}
		for _, p := range posts {
			c.refused[s.GetPlane()].Add(p.holder, fmt.Errorf(
				"rpc: port %d plane %d: asked to move from epoch %d, another controller has it at epoch %d: %w",
				c.port, s.GetPlane(), p.epoch, v.Epoch, ocsctl.ErrUnknownMap))
		}
	}
	return nil
}

// hello says who this rank is and what it has; the caller does not hold mu.
func (c *Client) hello() *ocspb.Hello {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := &ocspb.Hello{Protocol: ProtocolVersion, Version: c.o.Version, Port: uint32(c.port), Session: c.session}
	for _, l := range c.held {
		held := toLease(&l.Lease)
		held.SinceUnixNano = toNano(l.since)
		h.Held = append(h.Held, held)
	}
	for j := range c.planes {
		h.Known = append(h.Known, c.planes[j].Load().Epoch)
	}
	return h
}

// find tries the endpoints in turn until a controller welcomes this rank. The first time, it gives up at once if every
// endpoint refuses the rank.
func (c *Client) find(ctx context.Context, first bool) (*link, *ocspb.Welcome, error) {
	deadline := time.Now().Add(c.o.Takeover)
	for pause := firstBackoff; ; pause = min(2*pause, maxBackoff) {
		patience := !first
		for i := 0; i < len(c.endpoints); i++ {
			e := c.endpoints[i]
			l, w, err := e.open(c.ctx, c.hello(), c.o.Silence)
			if err == nil {
				c.prefer(i)
				return l, w, nil
			}
			e.last = err
			if errors.Is(err, controller.ErrHeld) {
				return nil, nil, fmt.Errorf("rpc: port %d: %w: controller at %s: %w: %w", c.port, ocsctl.ErrControlLost,
					e.address, errLost, err)
			}
			patience = patience || errors.Is(err, errSlow) || errors.Is(err, controller.ErrNotLeader) ||
				errors.Is(err, controller.ErrStopped)
			if ctx.Err() != nil {
				return nil, nil, fmt.Errorf("rpc: port %d: %w: %w", c.port, ocsctl.ErrControlLost, ctx.Err())
			}
		}
		if !patience || time.Now().After(deadline) {
			return nil, nil, c.noController()
		}
		c.sleep(ctx, pause)
	}
}

// prefer puts endpoint i first: its controller was in charge last, and probably still is. Only the goroutine that finds
// controllers reads the list.
func (c *Client) prefer(i int) {
	e := c.endpoints[i]
	copy(c.endpoints[1:i+1], c.endpoints[:i])
	c.endpoints[0] = e
}

// demote puts the first endpoint last: a controller that hangs would hold up finding the next one for
// longer than that one waits for its ranks.
func (c *Client) demote() {
	first := c.endpoints[0]
	c.endpoints[copy(c.endpoints, c.endpoints[1:])] = first
}

// noController returns the error if no endpoint has a controller. It names and wraps every endpoint's last error.
func (c *Client) noController() error {
	var why []string
	var wraps []error
	for _, e := range c.endpoints {
		why = append(why, fmt.Sprintf("%s: %v", e.address, e.last))
		wraps = append(wraps, e.last)
	}
	return &remoteError{fmt.Sprintf("rpc: port %d: %v: %s", c.port, ocsctl.ErrControlLost, strings.Join(why, "; ")),
		append(wraps, ocsctl.ErrControlLost)}
}
