package rpc_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"lightpath/ocsctl"
	"lightpath/ocsctl/controller"
	"lightpath/ocsctl/controller/rpc"
	"lightpath/ocsctl/controller/rpc/internal/fake"
	"lightpath/plans/circuit"
)

func TestAttach(t *testing.T) {
	core := fake.New("a", 1, 4, 2)
	s := serve(t, core, options("a", 4, 2))
	c := dial(t, 2, rpc.Options{Version: "1.2.0"}, s.address)
	if c.Port() != 2 || c.NumPorts() != 4 || len(c.Planes()) != 2 || c.DataPlane() != ocsctl.DataNone {
		t.Errorf("port %d of %d, planes %v, %s", c.Port(), c.NumPorts(), c.Planes(), c.DataPlane())
	}
	if want := (ocsctl.PlaneInfo{Name: "p1", BandwidthBitsPerSec: 2e9, Reconfig: time.Millisecond,
		ReconfigPerPort: time.Microsecond}); c.Planes()[1] != want {
		t.Errorf("plane %+v", c.Planes()[1])
	}
	if st := c.State(1); st.Epoch != 0 || !st.Map.Equal(circuit.AllDark(4)) {
		t.Errorf("state %+v", st)
	}
	if got, err := c.Waiting(1); got != "plane 1: waiting" {
		t.Errorf("waiting: %q, %v", got, err)
	}
	_, err := rpc.Dial(context.Background(), []string{s.address}, 2, rpc.Options{})
	wants(t, err, controller.ErrPortBusy, "port 2", s.address)
	must(t, c.Close())
	must(t, c.Close())
	if d := <-core.Detached; d != (fake.Detachment{Port: 2, Clean: true}) {
		t.Errorf("detached %+v", d)
	}
	if _, err := c.Poll(0); err == nil {
		t.Error("a closed client is healthy")
	}
	wants(t, c.Post(0, 0, holder, circuit.Shift(4, 1)), ocsctl.ErrControlLost, "closed")
	_, err = c.Acquire(ocsctl.Lease{Mask: 1, Holder: 1})
	wants(t, err, ocsctl.ErrControlLost, "closed")
	dial(t, 2, rpc.Options{}, s.address) // the port is free
}

// TestBarrier: planes move when their ports have posted, and every rank learns the new state.
func TestBarrier(t *testing.T) {
	const ports = 6
	s := serve(t, fake.New("a", 1, ports, 2), options("a", ports, 2))
	var all []*rpc.Client
	var changes atomic.Int64
	for p := range ports {
		c := dial(t, p, rpc.Options{}, s.address)
		c.OnChange(func() { changes.Add(1) })
		all = append(all, c)
	}
	for i := range 20 {
		move(t, i%2, 1+i%5, all...)
	}
	// A small change of a map is sent as a difference.
	swap := all[0].State(0).Map.Clone()
	swap[2], swap[3] = swap[3], swap[2]
	for _, c := range all {
		must(t, c.Post(0, 10, holder, swap))
	}
	for _, c := range all {
		reach(t, c, 0, 11)
		if got := c.State(0).Map; !got.Equal(swap) {
			t.Fatalf("port %d: %v, want %v", c.Port(), got, swap)
		}
	}
	until(t, "OnChange", func() bool { return changes.Load() >= ports })
}

func TestBadArguments(t *testing.T) {
	s := serve(t, fake.New("a", 1, 4, 2), options("a", 4, 2))
	c := dial(t, 0, rpc.Options{}, s.address)
	wants(t, c.Post(2, 0, holder, circuit.Shift(4, 1)), nil, "plane 2 of 2")
	wants(t, c.Post(-1, 0, holder, circuit.Shift(4, 1)), nil, "plane -1")
	wants(t, c.Post(0, 0, holder, circuit.Shift(3, 1)), nil, "target", "3 entries")
	wants(t, c.Post(0, 0, holder, circuit.Permutation{1, 1, 2, 3}), nil, "target", "[1]")
	wants(t, c.Post(0, 0, holder, circuit.Permutation{4, 1, 2, 3}), nil, "target", "[0]")
	_, err := c.Acquire(ocsctl.Lease{Mask: 0, Holder: 1})
	wants(t, err, nil, "mask 0x0")
	_, err = c.Acquire(ocsctl.Lease{Mask: 4, Holder: 1})
	wants(t, err, nil, "mask 0x4 of 2 planes")
	wants(t, c.Release(1, 9), nil, "holder 0x9")
	if _, err := c.Poll(0); err != nil {
		t.Errorf("bad arguments broke the client: %v", err)
	}
	for _, bad := range [][]string{nil, {"nonsense"}, {"unix:/run/x.sock"}, {"10.0.0.1:7443"}, {":7443"}} {
		if _, err := rpc.Dial(context.Background(), bad, 0, rpc.Options{}); err == nil {
			t.Errorf("%q: dialed", bad)
		}
	}
	if _, err := rpc.Dial(context.Background(), []string{s.address}, -1, rpc.Options{}); err == nil {
		t.Error("port -1")
	}
	_, err = rpc.Dial(context.Background(), []string{s.address}, 4, rpc.Options{})
	wants(t, err, rpc.ErrProtocol, "port 4", "0..3")
}

// TestFaults: a fault of a plane keeps its kind on the way to every rank.
func TestFaults(t *testing.T) {
	core := fake.New("a", 1, 4, 2)
	s := serve(t, core, options("a", 4, 2))
	c := dial(t, 1, rpc.Options{}, s.address)
	for _, sentinel := range []error{
		ocsctl.ErrConflict, ocsctl.ErrReconfFailed, ocsctl.ErrUnknownMap, ocsctl.ErrPortLost, ocsctl.ErrPlaneDown,
		ocsctl.ErrStaleEpoch, ocsctl.ErrFramesLost,
	} {
		core.Fault(1, fmt.Errorf("plane 1 epoch 7: switch ocs1: %w", sentinel))
		until(t, "fault", func() bool { _, err := c.Poll(1); return err != nil })
		_, err := c.Poll(1)
		wants(t, err, sentinel, "port 1", "plane 1 epoch 7: switch ocs1: "+sentinel.Error())
		if _, err := c.Poll(0); err != nil {
			t.Errorf("the other plane: %v", err)
		}
		core.Fault(1, nil)
		until(t, "restored", func() bool { _, err := c.Poll(1); return err == nil })
	}
	core.Fault(0, fmt.Errorf("%w, and %w", ocsctl.ErrReconfFailed, ocsctl.ErrPortLost))
	until(t, "fault", func() bool { _, err := c.Poll(0); return err != nil })
	_, err := c.Poll(0)
	wants(t, err, ocsctl.ErrReconfFailed)
	wants(t, err, ocsctl.ErrPortLost)
}

func TestConflictAndRefusal(t *testing.T) {
	s := serve(t, fake.New("a", 1, 2, 2), options("a", 2, 2))
	a, b := dial(t, 0, rpc.Options{}, s.address), dial(t, 1, rpc.Options{}, s.address)
	must(t, a.Post(0, 0, holder, circuit.Shift(2, 1)))
	until(t, "post", func() bool { text, _ := a.Waiting(0); return text != "" })
	must(t, b.Post(0, 0, holder, circuit.Permutation{1, -1}))
	for _, c := range []*rpc.Client{a, b} {
		until(t, "conflict", func() bool { return c.Refused(0, holder) != nil })
		wants(t, c.Refused(0, holder), ocsctl.ErrConflict, "plane 0 epoch 0")
	}
	move(t, 1, 1, a, b)
	must(t, b.Post(1, 0, holder, circuit.AllDark(2)))
	until(t, "refusal", func() bool { return b.Refused(1, holder) != nil })
	wants(t, b.Refused(1, holder), ocsctl.ErrStaleEpoch, "port 1", "epoch 0", "is at 1")
	if _, err := a.Poll(1); err != nil {
		t.Errorf("the other rank: %v", err)
	}
}

// TestLeases: planes go to one holder at a time, in the order of asking, without those out of
// service; several requests of one rank may wait.
func TestLeases(t *testing.T) {
	core := fake.New("a", 1, 4, 3)
	s := serve(t, core, options("a", 4, 3))
	a, b := dial(t, 0, rpc.Options{}, s.address), dial(t, 1, rpc.Options{}, s.address)
	must(t, core.Disable(2, "maintenance", "test"))
	got, err := a.Acquire(ocsctl.Lease{Mask: 7, Holder: 1})
	if err != nil || got != 3 {
		t.Fatalf("granted %#x, %v", got, err)
	}
	_, err = b.Acquire(ocsctl.Lease{Mask: 4, Holder: 2})
	wants(t, err, ocsctl.ErrPlaneDown, "port 1")
	var holders atomic.Int32
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			c := []*rpc.Client{a, b}[i%2]
			got, err := c.Acquire(ocsctl.Lease{Mask: 1, Holder: uint64(10 + i)})
			if err != nil || got != 1 || holders.Add(1) != 1 {
				t.Errorf("granted %#x, %v, beside others: %d", got, err, holders.Load())
			}
			holders.Add(-1)
			if err := c.Release(1, uint64(10+i)); err != nil {
				t.Error(err)
			}
		}()
	}
	until(t, "queue", func() bool { s, _ := core.Snapshot(); return len(s.Queue) == 8 })
	must(t, a.Release(3, 1))
	wg.Wait()
}

// TestNoAllocation: the calls of a progress loop do not allocate.
func TestNoAllocation(t *testing.T) {
	s := serve(t, fake.New("a", 1, 4, 1), options("a", 4, 1))
	c := dial(t, 0, rpc.Options{}, s.address)
	if n := testing.AllocsPerRun(1000, func() {
		if _, err := c.Poll(0); err != nil || c.State(0).Epoch != 0 {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestManyPosts: posts far ahead are bounded, and one that is repeated is one.
func TestManyPosts(t *testing.T) {
	core := fake.New("a", 1, 2, 1)
	s := serve(t, core, options("a", 2, 1))
	c := dial(t, 0, rpc.Options{}, s.address)
	dial(t, 1, rpc.Options{}, s.address)
	for range 200 {
		must(t, c.Post(0, 5, holder, circuit.Shift(2, 1)))
	}
	err := error(nil)
	for epoch := uint32(6); err == nil && epoch < 1000; epoch++ {
		err = c.Post(0, epoch, holder, circuit.Shift(2, 1))
	}
	wants(t, err, ocsctl.ErrStaleEpoch, "port 0 plane 0", "64 posts wait already")
	if _, err := c.Poll(0); err != nil {
		t.Errorf("the plane is at fault: %v", err)
	}
}
