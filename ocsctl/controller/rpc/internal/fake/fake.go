// Package fake is a controller for tests of front ends: it keeps the rules of
// controller.Controller with a lock, moves planes at once, and does what a test tells it.
//
// Layer: tests of ocsctl/controller/rpc.
package fake

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"lightpath/ocsctl"
	"lightpath/ocsctl/controller"
	"lightpath/plans/circuit"
)

// Controller implements controller.Controller. Its sinks are called with its lock held, as a core
// calls them from its one goroutine.
type Controller struct {
	mu       sync.Mutex
	name     string
	token    uint64
	ports    int
	planes   []plane
	attached map[int]*attachment
	queue    []ask
	watchers map[int]func(controller.Event)
	nextID   int
	seq      uint64
	stopped  error
	frozen   bool // moves wait
	// expect is how many ranks the predecessor had. Until they are back, only ranks that claim to hold
	// a plane get it.
	expect   int
	Detached chan Detachment
}

// Detachment says how an attachment ended.
type Detachment struct {
	Port  int
	Clean bool
}

type plane struct {
	epoch  uint32
	maps   circuit.Permutation
	fault  error
	down   string
	holder *controller.LeaseSnapshot
	posts  map[int]post
}

type post struct {
	epoch  uint32
	target circuit.Permutation
}

type attachment struct {
	c    *Controller
	sink controller.Sink
	o    controller.AttachOptions
	at   time.Time
	gone bool
}

type ask struct {
	a                *attachment
	id, mask, holder uint64
}

// New returns a controller of dark planes.
func New(name string, token uint64, ports, planes int) *Controller {
	c := &Controller{
		name: name, token: token, ports: ports, planes: make([]plane, planes), attached: map[int]*attachment{},
		watchers: map[int]func(controller.Event){}, Detached: make(chan Detachment, 1024),
	}
	for j := range c.planes {
		c.planes[j] = plane{maps: circuit.AllDark(ports), posts: map[int]post{}}
	}
	return c
}

// moved puts a plane at a map and the next epoch.
func (p *plane) moved(m circuit.Permutation) {
	p.maps = m
	p.epoch++
}

// TakeOver returns the next controller: it has the planes as they are now, and gives claims back.
func (c *Controller) TakeOver(name string) *Controller {
	c.mu.Lock()
	defer c.mu.Unlock()
	next := New(name, c.token+1, c.ports, len(c.planes))
	next.expect = max(len(c.attached), c.expect)
	for j := range c.planes {
		next.planes[j].epoch, next.planes[j].maps = c.planes[j].epoch, c.planes[j].maps
	}
	return next
}

// Stop ends the rule of the controller.
func (c *Controller) Stop(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopped, c.expect = err, max(len(c.attached), c.expect)
	for _, a := range c.attached {
		a.gone = true
		a.sink.Closed(err)
	}
	clear(c.attached)
}

// Freeze keeps planes from moving until they are thawed; a move that is due meanwhile is not made at all.
func (c *Controller) Freeze(frozen bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.frozen = frozen
	for j := range c.planes {
		c.step(j)
	}
}

// Fault fails a plane, or restores it.
func (c *Controller) Fault(j int, fault error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.planes[j].fault = fault
	c.publish(j)
}

// Posted returns how many posts wait at a plane.
func (c *Controller) Posted(j int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.planes[j].posts)
}

// Attached reports whether a rank has a port.
func (c *Controller) Attached(port int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.attached[port] != nil
}

func (c *Controller) publish(j int) {
	for _, a := range c.attached {
		c.tell(a.sink, j)
	}
}

// tell passes a plane's state to a sink. All ports are at one epoch.
func (c *Controller) tell(s controller.Sink, j int) {
	p := &c.planes[j]
	s.Changed(j, slices.Repeat([]uint32{p.epoch}, c.ports), p.maps, p.fault)
}

func (c *Controller) event(e controller.Event) {
	c.seq++
	e.Seq, e.Time = c.seq, time.Now()
	for _, f := range c.watchers {
		f(e)
	}
}

// Attach implements controller.Controller.
func (c *Controller) Attach(s controller.Sink, o controller.AttachOptions) (controller.Attachment, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped != nil {
		return nil, c.stopped
	}
	if c.attached[o.Port] != nil {
		return nil, fmt.Errorf("port %d: %w", o.Port, controller.ErrPortBusy)
	}
	a := &attachment{c: c, sink: s, o: o, at: time.Now()}
	c.attached[o.Port] = a
	for j := range c.planes {
		c.tell(s, j)
	}
	for _, l := range o.Held {
		if c.expect == 0 {
			break
		}
		for j := range c.planes {
			if l.Mask&(1<<j) != 0 && c.planes[j].holder == nil {
				c.planes[j].holder = &controller.LeaseSnapshot{Port: o.Port, Holder: l.Holder, Mask: l.Mask}
			}
		}
	}
	c.grant()
	c.event(controller.Event{Kind: controller.Attached, Plane: -1, Port: o.Port, Who: o.Who})
	return a, nil
}

// Post implements controller.Attachment.
func (a *attachment) Post(j int, epoch uint32, holder uint64, target circuit.Permutation) error {
	c := a.c
	c.mu.Lock()
	defer c.mu.Unlock()
	p := &c.planes[j]
	if epoch < p.epoch {
		if !target.Equal(p.maps) {
			a.sink.Refused(j, holder, fmt.Errorf("post of port %d for epoch %d, plane is at %d: %w", a.o.Port, epoch, p.epoch,
				ocsctl.ErrStaleEpoch))
		}
		return nil
	}
	for port, other := range p.posts {
		if other.epoch == epoch && !other.target.Equal(target) {
			for _, told := range c.attached {
				told.sink.Refused(j, holder, fmt.Errorf("port %d plane %d epoch %d: ports %d and %d posted different maps: %w",
					told.o.Port, j, epoch, port, a.o.Port, ocsctl.ErrConflict))
			}
			return nil
		}
	}
	p.posts[a.o.Port] = post{epoch, target}
	c.step(j)
	return nil
}

// step moves a plane if all ports that change have posted.
func (c *Controller) step(j int) {
	p := &c.planes[j]
	if c.frozen || p.fault != nil {
		return
	}
	var target circuit.Permutation
	for _, q := range p.posts {
		if q.epoch == p.epoch {
			target = q.target
		}
	}
	if target == nil {
		return
	}
	for port := range target {
		q, posted := p.posts[port]
		if target[port] != p.maps[port] && c.attached[port] != nil && (!posted || q.epoch != p.epoch) {
			return
		}
	}
	c.event(controller.Event{Kind: controller.Switched, Plane: j, Epoch: p.epoch + 1, From: p.maps, To: target, Port: -1})
	p.moved(target)
	for port, q := range p.posts {
		if q.epoch < p.epoch {
			delete(p.posts, port)
		}
	}
	c.publish(j)
}

// Acquire implements controller.Attachment. The planes of a fake are never shared.
func (a *attachment) Acquire(id uint64, l ocsctl.Lease) error {
	a.c.mu.Lock()
	defer a.c.mu.Unlock()
	a.c.queue = append(a.c.queue, ask{a, id, l.Mask, l.Holder})
	a.c.grant()
	return nil
}

func (c *Controller) grant() {
	if len(c.attached) < c.expect {
		return
	}
	c.expect = 0
	var busy uint64
	for j := range c.planes {
		if c.planes[j].holder != nil {
			busy |= 1 << j
		}
	}
	c.queue = slices.DeleteFunc(c.queue, func(q ask) bool {
		mask := q.mask
		for j := range c.planes {
			if c.planes[j].down != "" {
				mask &^= 1 << j
			}
		}
		switch {
		case q.a.gone:
			return true
		case mask == 0:
			q.a.sink.Granted(q.id, 0, fmt.Errorf("planes %#x: %w", q.mask, ocsctl.ErrPlaneDown))
			return true
		case mask&busy != 0:
			busy |= mask
			return false
		}
		busy |= mask
		for j := range c.planes {
			if mask&(1<<j) != 0 {
				c.planes[j].holder = &controller.LeaseSnapshot{Port: q.a.o.Port, Holder: q.holder, Mask: mask, Since: time.Now()}
			}
		}
		q.a.sink.Granted(q.id, mask, nil)
		return true
	})
}

// Release implements controller.Attachment.
func (a *attachment) Release(mask, holder uint64) error {
	a.c.mu.Lock()
	defer a.c.mu.Unlock()
	for j := range a.c.planes {
		if p := &a.c.planes[j]; mask&(1<<j) != 0 && p.holder != nil && p.holder.Holder == holder {
			p.holder = nil
		}
	}
	a.c.grant()
	return nil
}

// Detach implements controller.Attachment.
func (a *attachment) Detach(clean bool) {
	c := a.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if a.gone {
		return
	}
	a.gone = true
	delete(c.attached, a.o.Port)
	for j := range c.planes {
		p := &c.planes[j]
		if p.holder != nil && p.holder.Port == a.o.Port {
			p.holder = nil
		}
		if !clean {
			delete(p.posts, a.o.Port)
		}
	}
	c.grant()
	c.Detached <- Detachment{a.o.Port, clean}
}

// Snapshot implements controller.Controller.
func (c *Controller) Snapshot() (controller.Snapshot, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped != nil {
		return controller.Snapshot{}, c.stopped
	}
	s := controller.Snapshot{Time: time.Now(), Name: c.name, Leader: true, Token: c.token}
	for j := range c.planes {
		p := &c.planes[j]
		ps := controller.PlaneSnapshot{Name: fmt.Sprintf("p%d", j), State: controller.Resident, Epoch: p.epoch,
			Map: p.maps}
		if p.holder != nil {
			ps.Holders = []controller.LeaseSnapshot{*p.holder}
		}
		if p.down != "" {
			ps.State, ps.Reason = controller.Down, p.down
		}
		s.Planes = append(s.Planes, ps)
	}
	for port := range c.ports {
		ps := controller.PortSnapshot{Port: port}
		if a := c.attached[port]; a != nil {
			ps.Attached, ps.Who, ps.Since = true, a.o.Who, a.at
		}
		s.Ports = append(s.Ports, ps)
	}
	for _, q := range c.queue {
		s.Queue = append(s.Queue, controller.LeaseSnapshot{Port: q.a.o.Port, Holder: q.holder, Mask: q.mask})
	}
	return s, nil
}

// Watch implements controller.Controller.
func (c *Controller) Watch(f func(controller.Event)) (cancel func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	id := c.nextID
	c.nextID++
	c.watchers[id] = f
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.watchers, id)
	}
}

// Waiting implements controller.Controller.
func (c *Controller) Waiting(j int) string { return fmt.Sprintf("plane %d: waiting", j) }

// Set implements controller.Controller.
func (c *Controller) Set(j int, target circuit.Permutation, who string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := &c.planes[j]
	if p.holder != nil {
		return fmt.Errorf("plane %d: %w: by port %d", j, controller.ErrHeld, p.holder.Port)
	}
	p.moved(target)
	p.down, p.fault = "", nil
	c.event(controller.Event{Kind: controller.Commanded, Plane: j, Epoch: p.epoch, To: target, Port: -1, Who: who})
	c.publish(j)
	return nil
}

// Disable implements controller.Controller.
func (c *Controller) Disable(j int, reason, who string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.planes[j].down = reason
	c.event(controller.Event{Kind: controller.Failed, Plane: j, Port: -1, Err: reason, Who: who})
	return nil
}

// Enable implements controller.Controller.
func (c *Controller) Enable(j int, who string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.planes[j].down == "drift" {
		return fmt.Errorf("plane %d: circuits are not as desired: %w", j, ocsctl.ErrUnknownMap)
	}
	c.planes[j].down = ""
	c.event(controller.Event{Kind: controller.Restored, Plane: j, Port: -1, Who: who})
	return nil
}

// Onlooker returns an attachment that takes no port.
func (c *Controller) Onlooker(s controller.Sink) controller.Attachment {
	return &attachment{c: c, sink: s, at: time.Now()}
}

// Ports implements controller.Controller. A fake has no switch.
func (*Controller) Ports(int) ([]controller.PortState, error) { return nil, nil }

// Change implements controller.Controller, one plane after the other.
func (c *Controller) Change(change controller.Change, who string) error {
	for _, p := range change.Planes {
		if err := c.Set(p.Plane, p.Target, who); err != nil {
			return err
		}
	}
	return nil
}

// Confirm implements controller.Controller.
func (*Controller) Confirm(int, string) error { return nil }

// Remap implements controller.Controller.
func (*Controller) Remap(int, int, string, string) error { return nil }

// SetBaseline implements controller.Controller.
func (*Controller) SetBaseline(int, []int, float64, string) error { return nil }

// BeginJob implements controller.Controller. A fake has no jobs.
func (*Controller) BeginJob(controller.Job, []circuit.Permutation) error { return nil }

// EndJob implements controller.Controller.
func (*Controller) EndJob(string, string) error { return nil }
