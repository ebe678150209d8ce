package rpc_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"lightpath/ocsctl"
	"lightpath/ocsctl/controller"
	"lightpath/ocsctl/controller/controllertest"
	"lightpath/ocsctl/controller/journal"
	"lightpath/ocsctl/controller/rpc"
	"lightpath/plans/circuit"
)

// ledger is a journal of one plane.
type ledger struct {
	mu    sync.Mutex
	state journal.State
}

func (l *ledger) Intend(i controller.Intent, done func(error)) {
	l.mu.Lock()
	l.state.Intend(i)
	l.mu.Unlock()
	done(nil)
}

func (l *ledger) Record(e controller.Event, done func(error)) {
	if done != nil {
		defer done(nil)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if e.Plane == 0 {
		l.state.Apply(&e)
	}
}

func (l *ledger) recovered() []controller.Recovered {
	l.mu.Lock()
	defer l.mu.Unlock()
	return []controller.Recovered{l.state.Next()}
}

func startCore(t testing.TB, c controller.Config) *controller.Core {
	t.Helper()
	c.Planes = []controller.PlaneConfig{{Name: "p0", BandwidthBitsPerSec: 2e9}}
	core, err := controller.Start(c)
	must(t, err)
	t.Cleanup(core.Close)
	return core
}

// serveCore is serve for a real controller; standby is called while there is none.
func serveCore(t testing.TB, o rpc.ServerOptions, inCharge func() *controller.Core) *site {
	o.Controller = func() (controller.Controller, string) {
		if c := inCharge(); c != nil {
			return c, ""
		}
		return nil, ""
	}
	return serve(t, nil, o)
}

// TestCore: barrier, leases and faults of the real controller.
func TestCore(t *testing.T) {
	device := controllertest.NewPanel(4, 1)
	core := startCore(t, controller.Config{Name: "a", Ports: 4, Device: device, SettleTimeout: time.Second})
	s := serveCore(t, options("a", 4, 1), func() *controller.Core { return core })
	var all []*rpc.Client
	for p := range 4 {
		all = append(all, dial(t, p, rpc.Options{}, s.address))
	}
	granted, err := all[0].Acquire(ocsctl.Lease{Mask: 1, Holder: 7})
	if granted != 1 {
		t.Fatalf("granted %#x: %v", granted, err)
	}
	for i := range 10 {
		move(t, 0, 1+i%3, all...)
	}
	move(t, 0, 2, all...)
	must(t, all[0].Post(0, 11, holder, circuit.Shift(4, 3)))
	until(t, "waiting", func() bool {
		text, _ := all[1].Waiting(0)
		return text == "plane p0 epoch 11: waiting for ports 1,2,3"
	})
	device.Stick(true)
	for _, c := range all[1:] {
		must(t, c.Post(0, 11, holder, circuit.Shift(4, 3)))
	}
	for _, c := range all {
		until(t, "fault", func() bool { _, err := c.Poll(0); return err != nil })
		_, err := c.Poll(0)
		wants(t, err, ocsctl.ErrReconfFailed, "plane p0 epoch 11")
	}
	must(t, all[0].Release(1, 7))
	_, err = all[1].Acquire(ocsctl.Lease{Mask: 1, Holder: 8})
	wants(t, err, ocsctl.ErrPlaneDown, "port 1")
}

// TestCoreRefuses: a rank that posts without the holder's lease is told, also when it reaches the controller anew,
// and the holder's barrier goes on.
func TestCoreRefuses(t *testing.T) {
	core := startCore(t, controller.Config{Name: "a", Ports: 4, Device: controllertest.NewPanel(4, 1)})
	s := serveCore(t, options("a", 4, 1), func() *controller.Core { return core })
	var all []*rpc.Client
	for p := range 4 {
		all = append(all, dial(t, p, rpc.Options{}, s.address))
	}
	const stranger = holder + 1
	must(t, all[3].Post(0, 0, holder, circuit.Shift(4, 2)))
	until(t, "refusal", func() bool { return all[3].Refused(0, holder) != nil })
	wants(t, all[3].Refused(0, holder), ocsctl.ErrNotHolder, "port 3 plane p0", "no holder has the plane")
	if got, err := all[0].Acquire(ocsctl.Lease{Mask: 1, Holder: holder}); got != 1 || err != nil {
		t.Fatal(got, err)
	}
	must(t, all[0].Post(0, 0, holder, circuit.Shift(4, 2)))
	must(t, all[1].Post(0, 0, stranger, circuit.Shift(4, 3)))
	until(t, "refusal", func() bool { return all[1].Refused(0, stranger) != nil })
	wants(t, all[1].Refused(0, stranger), ocsctl.ErrNotHolder, "port 1 plane p0", "holder 0x7 of port 0", "holder 0x8")
	must(t, all[1].Refused(0, holder))
	for _, c := range all[1:] {
		must(t, c.Post(0, 0, holder, circuit.Shift(4, 2)))
	}
	for _, c := range all {
		reach(t, c, 0, 1)
	}
}

// succession is a real controller of four ports and a plane, and its successor.
type succession struct {
	*testing.T
	device    *controllertest.Panel
	journal   ledger
	rulers    [2]atomic.Pointer[controller.Core]
	endpoints []string
}

func newSuccession(t *testing.T) *succession {
	d := &succession{T: t, device: controllertest.NewPanel(4, 1)}
	d.rulers[0].Store(startCore(t, controller.Config{Name: "a", Ports: 4, Device: d.device, Journal: &d.journal,
		Token: 1}))
	for i, name := range []string{"a", "b"} {
		o := options(name, 4, 1)
		o.Linger = patience
		d.endpoints = append(d.endpoints, serveCore(t, o, d.rulers[i].Load).address)
	}
	return d
}

// takeOver deposes the first controller for the second.
func (d *succession) takeOver() {
	d.rulers[0].Swap(nil).Resign(controller.ErrNotLeader)
	d.rulers[1].Store(startCore(d.T, controller.Config{Name: "b", Ports: 4, Device: d.device, Journal: &d.journal,
		Token: 2, Recovered: d.journal.recovered(), Grace: patience}))
}

// TestCoreTakeoverBehindARank: a rank has missed the end of its own move, and that of a move of others, when the next
// controller takes over.
func TestCoreTakeoverBehindARank(t *testing.T) {
	d := newSuccession(t)
	r := newRelay(t, d.endpoints[0])
	all := []*rpc.Client{dial(t, 0, rpc.Options{}, r.Addr().String(), d.endpoints[1])}
	for p := range 3 {
		all = append(all, dial(t, p+1, rpc.Options{}, d.endpoints...))
	}
	if _, err := all[1].Acquire(ocsctl.Lease{Mask: 1, Holder: holder}); err != nil {
		t.Fatal(err)
	}
	target, others := circuit.Shift(4, 1), circuit.Permutation{1, 3, 0, 2} // port 0 has the same circuit in both
	must(t, all[0].Post(0, 0, holder, target))
	until(t, "post", func() bool { s, _ := d.rulers[0].Load().Snapshot(); return len(s.Planes[0].Posted) == 1 })
	r.swallow()
	for epoch, m := range []circuit.Permutation{target, others} {
		for _, c := range all[1:] {
			must(t, c.Post(0, uint32(epoch), holder, m))
		}
		for _, c := range all[1:] {
			reach(t, c, 0, uint32(epoch)+1)
		}
	}
	d.takeOver()
	r.cut(true)
	reach(t, all[0], 0, 2)
	must(t, all[0].Refused(0, holder))
	move(t, 0, 3, all...)
}

// TestCoreTakeover: the real controller is deposed in the middle of a barrier; the next one
// finishes it, and gives the plane back to its holder. Neither waits for ports outside the lease.
func TestCoreTakeover(t *testing.T) {
	d := newSuccession(t)
	first, endpoints := d.rulers[0].Load(), d.endpoints
	var all []*rpc.Client
	for p := range 4 {
		all = append(all, dial(t, p, rpc.Options{}, endpoints...))
	}
	must(t, first.Set(0, circuit.Shift(4, 1), "test"))
	if _, err := all[2].Acquire(ocsctl.Lease{Mask: 1, Holder: 7, Ports: []int{0, 1, 2}}); err != nil {
		t.Fatal(err)
	}
	target := circuit.Permutation{1, 0, circuit.Dark, circuit.Dark} // port 2 led to port 3, and that to port 0
	must(t, all[0].Post(0, 1, holder, target))
	until(t, "posts", func() bool { s, _ := first.Snapshot(); return slices.Equal(s.Planes[0].Missing, []int{1}) })
	d.takeOver()
	must(t, all[1].Post(0, 1, holder, target))
	for _, c := range all[:3] {
		reach(t, c, 0, 2)
	}
	// Port 3 loses its circuit. Its epoch stays if the grace time has not ended: a holder might still claim it.
	until(t, "map at port 3", func() bool { return all[3].State(0).Map.Equal(target) })
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	s, err := operate(t, rpc.Options{}, endpoints...).Status(ctx)
	must(t, err)
	if h := s.Planes[0].Holders; s.Name != "b" || len(h) != 1 || h[0].Port != 2 || h[0].Holder != 7 {
		t.Errorf("controller %s, held by %+v", s.Name, h)
	}
	must(t, all[2].Release(1, 7))
	if _, err := all[1].Acquire(ocsctl.Lease{Mask: 1, Holder: 9}); err != nil {
		t.Fatal(err)
	}
}

// TestCoreSharedPlanes: two holders have a plane, and each moves its circuits and counts its moves alone, also after a
// takeover during a move. The next holder of all ports has them at one epoch.
func TestCoreSharedPlanes(t *testing.T) {
	d := newSuccession(t)
	first, endpoints := d.rulers[0].Load(), d.endpoints
	var all []*rpc.Client
	for p := range 4 {
		all = append(all, dial(t, p, rpc.Options{}, endpoints...))
	}
	dark, pairs := circuit.AllDark(4), circuit.Permutation{1, 0, 3, 2}
	post := func(port int, epoch uint32, target circuit.Permutation) {
		must(t, all[port].Post(0, epoch, uint64(20+port/2), target))
	}
	swap := func(port int, epoch uint32, target circuit.Permutation) {
		for _, p := range []int{port, port + 1} {
			post(p, epoch, target)
		}
		for _, p := range []int{port, port + 1} {
			reach(t, all[p], 0, epoch+1)
		}
	}
	for _, port := range []int{0, 2} {
		l := ocsctl.Lease{Mask: 1, Holder: uint64(20 + port/2), Ports: []int{port, port + 1}}
		if _, err := all[port].Acquire(l); err != nil {
			t.Fatal(err)
		}
	}
	swap(0, 0, pairs)
	swap(2, 0, pairs)
	swap(0, 1, dark)
	swap(0, 2, pairs)
	post(2, 1, dark)
	until(t, "posts", func() bool { s, _ := first.Snapshot(); return slices.Equal(s.Planes[0].Missing, []int{3}) })
	d.takeOver()
	post(3, 1, dark)
	for port, epoch := range []uint32{3, 3, 2, 2} {
		reach(t, all[port], 0, epoch)
	}
	swap(2, 2, pairs)
	swap(0, 3, dark)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	s, err := operate(t, rpc.Options{}, endpoints...).Status(ctx)
	must(t, err)
	want := circuit.Permutation{circuit.Dark, circuit.Dark, 3, 2}
	if p := s.Planes[0]; s.Name != "b" || len(p.Holders) != 2 || p.Epoch != 7 || !p.Map.Equal(want) {
		t.Errorf("controller %s, plane %+v", s.Name, p)
	}
	must(t, all[0].Release(1, 20))
	must(t, all[2].Release(1, 21))
	if _, err := all[1].Acquire(ocsctl.Lease{Mask: 1, Holder: 9}); err != nil {
		t.Fatal(err)
	}
	for _, c := range all {
		reach(t, c, 0, 5)
		must(t, c.Refused(0, 20))
		must(t, c.Refused(0, 21))
	}
}

// TestCoreTakeoverWithoutTheLastMoves: the journal of the next controller has lost moves that ranks know of, and its
// switch has lost them too. The plane goes out of service, and its next epoch is new to all ranks.
func TestCoreTakeoverWithoutTheLastMoves(t *testing.T) {
	var inCharge atomic.Pointer[controller.Core]
	start := func(token uint64, r []controller.Recovered) *controller.Core {
		return startCore(t, controller.Config{Name: "a", Ports: 2, Device: controllertest.NewPanel(2, 1), Token: token,
			Recovered: r, Grace: patience})
	}
	first := start(1, nil)
	inCharge.Store(first)
	s := serveCore(t, options("a", 2, 1), inCharge.Load)
	all := []*rpc.Client{dial(t, 0, rpc.Options{}, s.address), dial(t, 1, rpc.Options{}, s.address)}
	if _, err := all[0].Acquire(ocsctl.Lease{Mask: 1, Holder: holder}); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		move(t, 0, i, all...)
	}
	inCharge.Store(start(2, []controller.Recovered{{Map: circuit.AllDark(2)}}))
	first.Resign(controller.ErrNotLeader)
	for _, c := range all {
		until(t, "fault", func() bool { _, err := c.Poll(0); return err != nil })
		epoch, err := c.Poll(0)
		wants(t, err, ocsctl.ErrPlaneDown, "plane p0 epoch 3", "the journal has lost changes")
		if epoch != 3 {
			t.Error("epoch", epoch)
		}
	}
	must(t, all[0].Release(1, holder))
	until(t, "set", func() bool { return inCharge.Load().Set(0, circuit.Shift(2, 1), "ann") == nil })
	until(t, "epoch", func() bool { return all[0].State(0).Epoch == 4 })
}

// TestWanted checks that a holder is told of others that want its planes, also after its stream has broken.
func TestWanted(t *testing.T) {
	core := startCore(t, controller.Config{Name: "a", Ports: 2, Device: controllertest.NewPanel(2, 1),
		SettleTimeout: time.Second})
	s := serveCore(t, options("a", 2, 1), func() *controller.Core { return core })
	through := newRelay(t, s.address)
	a, b := dial(t, 0, rpc.Options{}, through.Addr().String()), dial(t, 1, rpc.Options{}, s.address)
	told := make(chan [2]uint64, 8)
	a.OnWanted(func(holder, mask uint64) { told <- [2]uint64{holder, mask} })
	_, err := a.Acquire(ocsctl.Lease{Mask: 1, Holder: 7})
	must(t, err)
	asked := make(chan error, 1)
	go func() {
		_, err := b.Acquire(ocsctl.Lease{Mask: 1, Holder: 8})
		asked <- err
	}()
	for n := range 2 {
		select {
		case got := <-told:
			if got != [2]uint64{7, 1} {
				t.Errorf("%d: told %v", n, got)
			}
		case <-time.After(time.Minute):
			t.Fatal("it is not told")
		}
		through.cut(false)
	}
	must(t, a.Release(1, 7))
	must(t, <-asked)
}
