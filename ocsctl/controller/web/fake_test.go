package web

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"lightpath/ocsctl/controller"
	"lightpath/plans/circuit"
)

// fake is a controller whose state is what a test says.
type fake struct {
	controller.Controller // nil: calls that the page must not make panic

	mu       sync.Mutex
	snap     controller.Snapshot
	err      error
	hang     chan struct{} // Snapshot waits for it
	waiting  map[int]string
	ports    map[int][]controller.PortState // by plane
	watchers map[int]func(controller.Event)
	next     int
	seq      uint64
}

// newFake returns a controller in charge of planes p0, p1, ... with all ports attached.
func newFake(ports, planes int) *fake {
	f := &fake{waiting: map[int]string{}, ports: map[int][]controller.PortState{},
		watchers: map[int]func(controller.Event){}}
	f.snap = controller.Snapshot{Time: time.Now(), Name: "ocs1", Leader: true, Token: 41,
		Queue: []controller.LeaseSnapshot{}}
	for j := range planes {
		f.snap.Planes = append(f.snap.Planes, controller.PlaneSnapshot{
			Name: fmt.Sprintf("p%d", j), State: controller.Resident, Epoch: uint32(12 + j), Map: circuit.Shift(ports, j+1),
			Switches: uint64(10 + j),
		})
	}
	for r := range ports {
		f.snap.Ports = append(f.snap.Ports, controller.PortSnapshot{
			Port: r, Attached: true, Who: fmt.Sprintf("grpc 10.0.0.%d:5123 CN=node%d", r, r), Since: time.Now().Add(-time.Hour),
		})
	}
	return f
}

// set changes the state.
func (f *fake) set(change func(*controller.Snapshot)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.snap
	s.Planes, s.Ports, s.Queue = slices.Clone(s.Planes), slices.Clone(s.Ports), slices.Clone(s.Queue)
	change(&s)
	f.snap = s
}

// emit has an event happen.
func (f *fake) emit(e controller.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seq++
	e.Seq = f.seq
	if e.Time.IsZero() {
		e.Time = time.Now()
	}
	for _, w := range f.watchers {
		w(e)
	}
}

func (f *fake) Snapshot() (controller.Snapshot, error) {
	f.mu.Lock()
	hang := f.hang
	f.mu.Unlock()
	if hang != nil {
		<-hang
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.snap
	s.Time, s.Planes = time.Now(), slices.Clone(s.Planes)
	for j := range s.Planes {
		s.Planes[j].Waiting = f.waiting[j]
	}
	return s, f.err
}

func (f *fake) Ports(plane int) ([]controller.PortState, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.ports[plane], nil
}

func (f *fake) Watch(w func(controller.Event)) func() {
	f.mu.Lock()
	defer f.mu.Unlock()
	id := f.next
	f.next++
	f.watchers[id] = w
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.watchers, id)
	}
}

func (f *fake) watched() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.watchers)
}

// charge names the controller in charge; a test may change it.
type charge struct {
	mu     sync.Mutex
	c      controller.Controller
	leader string
}

func (c *charge) get() (controller.Controller, string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.c, c.leader
}

func (c *charge) set(now controller.Controller, leader string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.c, c.leader = now, leader
}

func wellSwitches(context.Context) ([]SwitchHealth, error) {
	return []SwitchHealth{{Name: "sw", Driver: "gnmi", Planes: []string{"p0"}}}, nil
}
