package rpc_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"lightpath/ocsctl"
	"lightpath/ocsctl/controller"
	"lightpath/ocsctl/controller/rpc"
	"lightpath/ocsctl/controller/rpc/internal/fake"
	"lightpath/plans/circuit"
)

// pair is a controller and its standby.
func pair(t *testing.T, ports, planes int) (core *fake.Controller, first, second *site) {
	t.Helper()
	core = fake.New("a", 1, ports, planes)
	first = serve(t, core, options("a", ports, planes))
	second = serve(t, nil, options("b", ports, planes))
	second.standby.Store("a at " + first.address + " is")
	return core, first, second
}

// TestTakeover ends the controller during a barrier, while planes are held and requested. The next controller finishes
// the barrier, and no rank sees an error.
func TestTakeover(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(core *fake.Controller, s *site){
		"stops":   func(_ *fake.Controller, s *site) { s.Close() },
		"deposed": func(core *fake.Controller, _ *site) { core.Stop(controller.ErrNotLeader) },
	} {
		t.Run(name, func(t *testing.T) {
			core, first, second := pair(t, 4, 2)
			var all []*rpc.Client
			for p := range 4 {
				all = append(all, dial(t, p, rpc.Options{}, second.address, first.address))
			}
			move(t, 0, 1, all...)
			granted, err := all[0].Acquire(ocsctl.Lease{Mask: 3, Holder: 77})
			if granted != 3 {
				t.Fatalf("granted %#x: %v", granted, err)
			}
			core.Freeze(true)
			for _, c := range all[:3] {
				must(t, c.Post(0, 1, holder, circuit.Shift(4, 2)))
			}
			asked := make(chan error, 1)
			go func() {
				_, err := all[1].Acquire(ocsctl.Lease{Mask: 2, Holder: 88})
				asked <- err
			}()
			until(t, "posts and queue", func() bool { s, _ := core.Snapshot(); return core.Posted(0) == 3 && len(s.Queue) == 1 })

			first.core.Store(nil)
			end(core, first)
			next := core.TakeOver("b")
			must(t, all[3].Post(0, 1, holder, circuit.Shift(4, 2))) // while no controller is in charge
			second.core.Store(next)
			for _, c := range all {
				reach(t, c, 0, 2)
			}
			s, err := next.Snapshot()
			must(t, err)
			if h := s.Planes[1].Holders; len(h) != 1 || h[0].Holder != 77 || h[0].Port != 0 {
				t.Errorf("plane 1 is held by %+v", h)
			}
			must(t, all[0].Release(3, 77))
			must(t, <-asked)
			move(t, 0, 3, all...)
		})
	}
}

// TestTakeoverFinds checks that a client compares the state after a takeover with its requests.
func TestTakeoverFinds(t *testing.T) {
	t.Parallel()
	target, others := circuit.Shift(3, 1), circuit.Permutation{1, 0, 2} // port 0 has the same circuit in both
	type maps = []circuit.Permutation
	for _, c := range []struct {
		name   string
		found  maps // of the next controller, from epoch 1 on
		wanted error
	}{
		{"the move has happened", maps{target}, nil},
		{"another map", maps{circuit.Shift(3, 0)}, ocsctl.ErrUnknownMap},
		{"other ports have moved since", maps{target, others}, nil},
		{"the circuit of the port has moved since", maps{target, circuit.Shift(3, 2)}, ocsctl.ErrUnknownMap},
	} {
		t.Run(c.name, func(t *testing.T) {
			core, first, second := pair(t, 3, 1)
			a := dial(t, 0, rpc.Options{}, first.address, second.address)
			dial(t, 1, rpc.Options{}, first.address, second.address)
			must(t, a.Post(0, 0, holder, target))
			until(t, "post", func() bool { return core.Posted(0) == 1 })
			first.core.Store(nil)
			next := core.TakeOver("b")
			for _, m := range c.found {
				must(t, next.Set(0, m, "test"))
			}
			first.Close()
			second.core.Store(next)
			until(t, "epoch", func() bool { return a.State(0).Epoch == uint32(len(c.found)) })
			if c.wanted == nil {
				_, err := a.Poll(0)
				must(t, err)
				must(t, a.Refused(0, holder))
				return
			}
			wants(t, a.Refused(0, holder), c.wanted, "port 0 plane 0", "epoch 0", fmt.Sprint("epoch ", len(c.found)))
		})
	}
}

// TestFaultVoidsPosts checks that the next controller does not get a request made before a fault.
func TestFaultVoidsPosts(t *testing.T) {
	core, first, second := pair(t, 2, 1)
	a, b := dial(t, 0, rpc.Options{}, first.address, second.address),
		dial(t, 1, rpc.Options{}, first.address, second.address)
	must(t, a.Post(0, 0, holder, circuit.Shift(2, 1)))
	until(t, "post", func() bool { return core.Posted(0) == 1 })
	core.Fault(0, ocsctl.ErrReconfFailed)
	until(t, "fault", func() bool { _, err := a.Poll(0); return err != nil })
	first.core.Store(nil)
	next := core.TakeOver("b")
	core.Stop(controller.ErrNotLeader)
	second.core.Store(next)
	for _, c := range []*rpc.Client{a, b} {
		until(t, "back", func() bool { _, err := c.Poll(0); return err == nil && next.Attached(c.Port()) })
	}
	move(t, 0, 0, a, b) // would be a conflict
}

// TestGivesUp leaves a client without a controller for longer than Options.Takeover. Then every plane fails, and the
// error names every endpoint with its last answer. No plane fails earlier.
func TestGivesUp(t *testing.T) {
	t.Parallel()
	core, first, second := pair(t, 2, 1)
	const takeover = 8 * time.Second // a host that stands still for some seconds leaves time for answers
	c := dial(t, 0, rpc.Options{Takeover: takeover}, first.address, second.address)
	ended := make(chan error, 1)
	must(t, core.Set(0, circuit.Shift(2, 1), "test"))
	if _, err := c.Acquire(ocsctl.Lease{Mask: 1, Holder: 5}); err != nil {
		t.Fatal(err)
	}
	go func() {
		_, err := c.Acquire(ocsctl.Lease{Mask: 1, Holder: 6})
		ended <- err
	}()
	until(t, "request", func() bool { s, _ := core.Snapshot(); return len(s.Queue) == 1 })
	began := time.Now()
	first.core.Store(nil)
	first.Close()
	if _, err := c.Poll(0); err != nil && time.Since(began) < takeover {
		t.Errorf("failed at once: %v", err)
	}
	err := <-ended
	wants(t, err, ocsctl.ErrControlLost, "port 0", first.address, "refused", second.address,
		"controller b is not the controller in charge")
	wants(t, err, controller.ErrNotLeader)
	_, err = c.Poll(0)
	wants(t, err, ocsctl.ErrControlLost)
	wants(t, c.Post(0, 0, holder, circuit.Shift(2, 1)), ocsctl.ErrControlLost)
	if c.State(0).Epoch != 1 {
		t.Error("the last state is gone")
	}
}

// TestDialWaitsForTakeover checks that a rank waits, within bounds, while no controller is in charge, and does not wait
// if no endpoint answers.
func TestDialWaitsForTakeover(t *testing.T) {
	s := serve(t, nil, options("a", 2, 1))
	s.standby.Store("10.1.2.3:7443 is")
	_, err := rpc.Dial(context.Background(), []string{s.address}, 0, rpc.Options{Takeover: 50 * time.Millisecond})
	wants(t, err, controller.ErrNotLeader, "10.1.2.3:7443 is")
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	_, err = rpc.Dial(ctx, []string{s.address}, 0, rpc.Options{})
	wants(t, err, context.DeadlineExceeded)
	done := make(chan error, 1)
	go func() {
		c, err := rpc.Dial(context.Background(), []string{s.address}, 0, rpc.Options{})
		if err == nil {
			_ = c.Close()
		}
		done <- err
	}()
	s.core.Store(fake.New("a", 1, 2, 1))
	must(t, <-done)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	l.Close()
	_, err = rpc.Dial(context.Background(), []string{l.Addr().String()}, 0, rpc.Options{})
	wants(t, err, ocsctl.ErrControlLost, l.Addr().String(), "connection refused")
}

// TestDialSlowController: a controller whose host stands still when a rank dials does not fail the rank.
func TestDialSlowController(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	dialed := make(chan error, 1)
	go func() {
		c, err := rpc.Dial(t.Context(), []string{l.Addr().String()}, 0, rpc.Options{})
		if err == nil {
			err = c.Close()
		}
		dialed <- err
	}()
	silent, err := l.Accept()
	must(t, err)
	defer silent.Close()
	core, o := fake.New("a", 1, 2, 1), options("a", 2, 1)
	o.Controller = func() (controller.Controller, string) { return core, "" }
	s, err := rpc.Serve(l, o)
	must(t, err)
	defer s.Close()
	must(t, <-dialed)
}

// relay is a network that a test can break.
type relay struct {
	net.Listener
	mu    sync.Mutex
	conns []net.Conn
	down  bool
	holes int // connections that swallow everything, from the first on
}

func newRelay(t *testing.T, to string) *relay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	r := &relay{Listener: l}
	t.Cleanup(func() { l.Close(); r.cut(true) })
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", to)
			r.mu.Lock()
			if err != nil || r.down {
				in.Close()
				if out != nil {
					out.Close()
				}
			} else {
				r.conns = append(r.conns, in, out)
				go r.copy(in, out)
				go r.copy(out, in)
			}
			r.mu.Unlock()
		}
	}()
	return r
}

// copy carries bytes one way.
func (r *relay) copy(to, from net.Conn) {
	defer to.Close()
	b := make([]byte, 4096)
	for {
		n, err := from.Read(b)
		if err != nil {
			return
		}
		r.mu.Lock()
		hole := slices.Contains(r.conns[:r.holes], to)
		r.mu.Unlock()
		if !hole {
			if _, err := to.Write(b[:n]); err != nil {
				return
			}
		}
	}
}

// swallow makes all current connections lose their data without breaking.
func (r *relay) swallow() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.holes = len(r.conns)
}

// cut breaks every connection, and refuses new ones while down.
func (r *relay) cut(down bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.down = down
	for _, c := range r.conns {
		c.Close()
	}
	r.conns, r.holes = nil, 0
}

// TestBrokenStream breaks a connection again and again under load. The rank keeps its place, its planes and its posts,
// and every barrier ends.
func TestBrokenStream(t *testing.T) {
	t.Parallel()
	core := fake.New("a", 1, 3, 2)
	o := options("a", 3, 2)
	o.Linger = patience
	s := serve(t, core, o)
	r := newRelay(t, s.address)
	all := []*rpc.Client{dial(t, 0, rpc.Options{}, r.Addr().String()), dial(t, 1, rpc.Options{}, s.address),
		dial(t, 2, rpc.Options{}, s.address)}
	stop := make(chan struct{})
	var cutter sync.WaitGroup
	cutter.Add(1)
	go func() {
		defer cutter.Done()
		for {
			select {
			case <-stop:
				return
			case <-time.After(7 * time.Millisecond):
				r.cut(false)
			}
		}
	}()
	for i := range 40 {
		granted, err := all[0].Acquire(ocsctl.Lease{Mask: 3, Holder: uint64(i)})
		if granted != 3 {
			t.Fatalf("round %d: granted %#x: %v", i, granted, err)
		}
		move(t, i%2, 1+i/2%2, all...)
		must(t, all[0].Release(3, uint64(i)))
	}
	close(stop)
	cutter.Wait()
	if len(core.Detached) > 0 {
		t.Errorf("a rank was taken for dead: %+v", <-core.Detached)
	}
	until(t, "releases", func() bool {
		s, _ := core.Snapshot()
		return len(s.Planes[0].Holders)+len(s.Planes[1].Holders) == 0
	})
}

// TestSilence makes the network lose all data. The rank notices, and continues on another connection while the
// controller still has the old one.
func TestSilence(t *testing.T) {
	t.Parallel()
	core := fake.New("a", 1, 2, 1)
	s := serve(t, core, options("a", 2, 1))
	r := newRelay(t, s.address)
	all := []*rpc.Client{dial(t, 0, rpc.Options{Silence: 3 * time.Second / 2}, r.Addr().String()),
		dial(t, 1, rpc.Options{}, s.address)}
	if _, err := all[0].Acquire(ocsctl.Lease{Mask: 1, Holder: 5}); err != nil {
		t.Fatal(err)
	}
	r.swallow()
	move(t, 0, 1, all...)
	snapshot, err := core.Snapshot()
	must(t, err)
	if h := snapshot.Planes[0].Holders; len(h) != 1 || h[0].Holder != 5 || len(core.Detached) > 0 {
		t.Errorf("held by %+v, %d detached", h, len(core.Detached))
	}
	must(t, all[0].Release(1, 5))
}

// TestLostPlace checks that a client that returns too late to the same controller is told that it was taken for dead.
func TestLostPlace(t *testing.T) {
	t.Parallel()
	core := fake.New("a", 1, 2, 1)
	o := options("a", 2, 1)
	o.Linger = time.Millisecond
	s := serve(t, core, o)
	r := newRelay(t, s.address)
	c := dial(t, 0, rpc.Options{}, r.Addr().String())
	idle := dial(t, 1, rpc.Options{}, r.Addr().String())
	if _, err := c.Acquire(ocsctl.Lease{Mask: 1, Holder: 5}); err != nil {
		t.Fatal(err)
	}
	r.cut(true)
	for range 2 {
		if d := <-core.Detached; d.Clean {
			t.Errorf("detached %+v", d)
		}
	}
	r.cut(false)
	until(t, "end", func() bool { _, err := c.Poll(0); return err != nil })
	_, err := c.Poll(0)
	wants(t, err, ocsctl.ErrControlLost, "took it for dead")
	// A rank without planes and posts continues.
	until(t, "attached", func() bool { s, _ := core.Snapshot(); return s.Ports[1].Attached })
	must(t, core.Set(0, circuit.Shift(2, 1), "test"))
	reach(t, idle, 0, 1)
}

// TestDeadRank checks that a rank that dies without a goodbye loses its place at once if a new rank wants it.
func TestDeadRank(t *testing.T) {
	t.Parallel()
	core := fake.New("a", 1, 2, 1)
	o := options("a", 2, 1)
	o.Linger = patience
	s := serve(t, core, o)
	r := newRelay(t, s.address)
	dial(t, 0, rpc.Options{}, r.Addr().String())
	r.cut(true)
	dial(t, 0, rpc.Options{}, s.address)
	if d := <-core.Detached; d != (fake.Detachment{Port: 0}) {
		t.Errorf("detached %+v", d)
	}
}

// TestManyTakeovers replaces the controller again and again while ranks move planes.
func TestManyTakeovers(t *testing.T) {
	t.Parallel()
	const ports = 4
	core := fake.New("0", 1, ports, 1)
	sites := []*site{serve(t, core, options("x", ports, 1)), serve(t, nil, options("y", ports, 1)),
		serve(t, nil, options("z", ports, 1))}
	var all []*rpc.Client
	for p := range ports {
		all = append(all, dial(t, p, rpc.Options{}, sites[0].address, sites[1].address, sites[2].address))
	}
	for i := range 12 {
		from, to := sites[i%3], sites[(i+1)%3]
		epoch := all[0].State(0).Epoch
		target := circuit.Shift(ports, 1+i%3)
		for p, c := range all {
			if p == i%ports {
				from.core.Store(nil)
				next := core.TakeOver(fmt.Sprint(i))
				core.Stop(controller.ErrStopped)
				core = next
				to.core.Store(core)
			}
			must(t, c.Post(0, epoch, holder, target))
		}
		for _, c := range all {
			reach(t, c, 0, epoch+1)
		}
	}
}
