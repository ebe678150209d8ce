package controller

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"lightpath/internal/require"
	"lightpath/ocsctl"
	"lightpath/plans/circuit"
)

// with returns a lease of two ports that asks for the circuits between them, on each plane of the mask.
func with(mask, holder uint64, a, b int) ocsctl.Lease {
	l := some(mask, holder, a, b)
	for ; mask != 0; mask &= mask - 1 {
		l.Circuits = append(l.Circuits, circuit.Permutation{1, 0})
	}
	return l
}

// answered returns the answers that a port got, and forgets them.
func (r *testRig) answered(port int) []testGrant {
	a := r.s[port].answers
	r.s[port].answers = nil
	return a
}

// TestMakesCircuits: one move makes the circuits of all requests that become free together, before they are granted.
// Circuits of others stay, and a request beside a holder does not disturb it.
func TestMakesCircuits(t *testing.T) {
	r := newTestRig(t, 6, 1, nil)
	r.dev.delay = time.Millisecond
	r.hold(1)
	require.NoError(t, r.s[0].Acquire(2, with(1, 20, 0, 1)))
	require.NoError(t, r.s[2].Acquire(2, with(1, 21, 2, 3)))
	r.release(1)
	if a, b := r.answered(0), r.answered(2); len(a)+len(b) != 0 {
		t.Fatalf("granted before the circuits are there: %v %v", a, b)
	}
	r.pass(time.Second)
	want := circuit.Permutation{1, 0, 3, 2, 5, circuit.Dark}
	if p := r.plane(0); !p.Map.Equal(want) || p.Epoch != 1 || len(r.dev.moves) != 1 {
		t.Errorf("epoch %d, map %v, %d moves", p.Epoch, p.Map, len(r.dev.moves))
	}
	if a, b := r.answered(0), r.answered(2); len(a) != 1 || len(b) != 1 || a[0].mask != 1 || b[0].mask != 1 {
		t.Fatalf("answers %v %v", a, b)
	}
	wanted := len(r.s[0].wanted)
	require.NoError(t, r.s[4].Acquire(2, with(1, 22, 4, 5)))
	r.pass(time.Second)
	want = circuit.Permutation{1, 0, 3, 2, 5, 4}
	if p := r.plane(0); !p.Map.Equal(want) || len(r.answered(4)) != 1 || len(r.s[0].wanted) != wanted {
		t.Errorf("map %v, wanted %v", p.Map, r.s[0].wanted)
	}
	require.NoError(t, r.s[2].Release(1, 21))
	require.NoError(t, r.s[2].Acquire(3, with(1, 21, 2, 3)))
	if a := r.answered(2); len(a) != 1 || len(r.dev.moves) != 2 {
		t.Errorf("circuits that are there are made again: %v, %d moves", a, len(r.dev.moves))
	}
}

// TestMakingFails: a plane that fails leaves the request, which gets the other one. A rank that ends while its circuits
// are made gets no answer, and holds nothing.
func TestMakingFails(t *testing.T) {
	r := newTestRig(t, 4, 2, nil)
	r.dev.delay = time.Millisecond
	r.dev.wrong[0] = circuit.AllDark(4)
	require.NoError(t, r.s[0].Acquire(1, with(3, 20, 0, 1)))
	r.pass(time.Second)
	if a := r.answered(0); len(a) != 1 || a[0].mask != 2 {
		t.Errorf("answers %v", a)
	}
	if a, b := r.plane(0), r.plane(1); len(a.Holders) != 0 || len(b.Holders) != 1 || a.State != Down {
		t.Errorf("holders %v and %v, plane 0 is %s", a.Holders, b.Holders, a.State)
	}
	require.NoError(t, r.s[2].Acquire(1, with(2, 21, 2, 3)))
	r.s[2].Detach(true)
	r.pass(time.Second)
	if b := r.plane(1); len(r.answered(2)) != 0 || len(b.Holders) != 1 || !b.Map.Equal(circuit.Permutation{1, 0, 3, 2}) {
		t.Errorf("holders %v, map %v", b.Holders, b.Map)
	}

	r = newTestRig(t, 4, 1, nil)
	r.dev.refuse[0] = true
	require.NoError(t, r.s[0].Acquire(1, with(1, 20, 0, 1)))
	if a := r.answered(0); len(a) != 1 || !errors.Is(a[0].err, ocsctl.ErrPlaneDown) {
		t.Errorf("answers %v", a)
	}
}

// TestMakesOnlyWhatIsAllowed: circuits of a pinned plane, of a job, and of a rank that has died stay; the request is
// granted without the ones that it asked for.
func TestMakesOnlyWhatIsAllowed(t *testing.T) {
	pinned := newTestRig(t, 4, 1, func(_ *testRig, c *Config) { c.Planes[0].PinnedBy = "job 9" })
	fixed := newTestRig(t, 4, 1, nil)
	begun := fixed.beginJob(Job{ID: "9", Ports: []int{1, 2}}, circuit.Permutation{1, 0})
	fixed.pass(time.Second)
	require.NoError(t, *begun)
	dead := newTestRig(t, 4, 1, nil)
	dead.s[3].Detach(false) // its circuit leads to port 0
	for name, r := range map[string]*testRig{"pinned": pinned, "of a job": fixed, "of a dead rank": dead} {
		before := r.plane(0).Map
		require.NoError(t, r.s[0].Acquire(1, with(1, 20, 0, 1)))
		r.pass(time.Second)
		if a := r.answered(0); len(a) != 1 || a[0].mask != 1 || !r.plane(0).Map.Equal(before) {
			t.Errorf("%s: answers %v, map %v", name, a, r.plane(0).Map)
		}
	}
}

// TestDeathWhileMaking: a rank dies while its circuit is taken off for a request. The request is answered after the
// move, so no circuit of the holder changes later.
func TestDeathWhileMaking(t *testing.T) {
	r := newTestRig(t, 4, 1, nil)
	r.dev.delay = time.Millisecond
	require.NoError(t, r.s[0].Acquire(1, with(1, 20, 0, 1)))
	r.s[3].Detach(false) // its circuit leads to port 0
	if a := r.answered(0); len(r.dev.moves) != 1 || len(a) != 0 {
		t.Errorf("%d moves, answers %v", len(r.dev.moves), a)
	}
	r.pass(time.Second)
	if a := r.answered(0); len(a) != 1 || a[0].mask != 1 || r.plane(0).Map[0] != 1 {
		t.Errorf("answers %v, map %v", a, r.plane(0).Map)
	}
}

// TestStalledRankReturns: the leases of a rank end while its process stalls. When it returns, the controller refuses it
// and leaves its circuits, since its communicators may still send. A new process on the port ends that.
func TestStalledRankReturns(t *testing.T) {
	r := newTestRig(t, 4, 1, nil)
	r.hold(1)
	before := r.plane(0).Map
	r.s[0].Detach(false)
	held := ocsctl.Lease{Holder: testHolder, Mask: 1}
	_, err := r.core.Attach(newTestSink(), AttachOptions{Port: 0, Held: []ocsctl.Lease{held}})
	want(t, "a lease that has ended", err, ErrHeld, "port 0", "its leases ended")
	require.NoError(t, r.s[1].Acquire(1, with(1, 20, 1, 2)))
	if a := r.answered(1); len(a) != 1 || a[0].mask != 1 || !r.plane(0).Map.Equal(before) {
		t.Errorf("answers %v, map %v", a, r.plane(0).Map)
	}
	require.NoError(t, r.s[1].Release(1, 20))
	r.attach(0)
	require.NoError(t, r.s[1].Acquire(2, with(1, 20, 1, 2)))
	r.pass(time.Second)
	if m := r.plane(0).Map; len(r.answered(1)) != 1 || m[1] != 2 || m[2] != 1 {
		t.Errorf("map %v", m)
	}
}

// TestLateRanksMaySend: after a takeover, circuits of ports that had a rank stay until a rank attaches there. No rank
// came in time, or the rank had disconnected from the controller before without a goodbye.
func TestLateRanksMaySend(t *testing.T) {
	for name, ranks := range map[string][]RankBefore{
		"late":        nil,
		"lost before": {RankLost, RankUnknown, RankUnknown, RankLeft},
	} {
		t.Run(name, func(t *testing.T) {
			r := newTestRig(t, 4, 1, func(r *testRig, c *Config) {
				c.Recovered = []Recovered{{Epoch: 3, Map: r.dev.maps[0]}}
				c.Grace, c.Before = time.Second, ranks
				r.absent = 1 + 0
			})
			for p := 1; p < 4; p++ {
				r.s[p].Detach(true)
			}
			before := r.plane(0).Map
			r.pass(2 * time.Second)
			r.attach(1)
			r.attach(2)
			require.NoError(t, r.s[1].Acquire(1, with(1, 20, 1, 2)))
			r.pass(time.Second)
			if a := r.answered(1); len(a) != 1 || a[0].mask != 1 || !r.plane(0).Map.Equal(before) {
				t.Errorf("answers %v, map %v", a, r.plane(0).Map)
			}
			require.NoError(t, r.s[1].Release(1, 20))
			r.attach(0)
			r.attach(3)
			require.NoError(t, r.s[1].Acquire(2, with(1, 20, 1, 2)))
			r.pass(time.Second)
			if m := r.plane(0).Map; m[1] != 2 || m[2] != 1 {
				t.Errorf("map %v", m)
			}
		})
	}
}

// TestLeaseChecks: circuits need the ports of the lease, and a map for each plane.
func TestLeaseChecks(t *testing.T) {
	good := with(3, 1, 0, 1)
	if err := good.Check(4, 2); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(l *ocsctl.Lease){
		"no ports":    func(l *ocsctl.Lease) { l.Ports = nil },
		"one map":     func(l *ocsctl.Lease) { l.Circuits = l.Circuits[:1] },
		"large map":   func(l *ocsctl.Lease) { l.Circuits[0] = circuit.Shift(3, 1) },
		"port twice":  func(l *ocsctl.Lease) { l.Ports = []int{1, 1} },
		"other plane": func(l *ocsctl.Lease) { l.Mask = 4 },
	} {
		l := with(3, 1, 0, 1)
		if change(&l); l.Check(4, 2) == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// TestMakingLeavesThePlane: a request whose circuits are made, and for which the plane goes out of service meanwhile,
// leaves the plane to the requests behind it.
func TestMakingLeavesThePlane(t *testing.T) {
	r := newTestRig(t, 4, 1, func(r *testRig, c *Config) {
		withTimed(r, c)
		r.dev.maps[0] = circuit.AllDark(4)
	})
	r.dev.delay = time.Millisecond
	l := some(1, 20, 0, 1, 2)
	l.Circuits = []circuit.Permutation{{1, 0, circuit.Dark}}
	require.NoError(t, r.s[0].Acquire(1, l))
	require.NoError(t, r.s[3].Acquire(1, ocsctl.Lease{Mask: 1, Holder: 21, Ports: []int{3}}))
	r.pass(time.Second)
	r.report(2)
	if a := r.answered(0); len(a) != 1 || !errors.Is(a[0].err, ocsctl.ErrPlaneDown) {
		t.Errorf("the request with the bad port: %v", a)
	}
	if a := r.answered(3); len(a) != 1 || a[0].mask != 1 {
		t.Errorf("the request behind it: %v", a)
	}
}

// TestPartsThenAll: holders side by side have moved a plane to one epoch, each a part of it. A rank of one may know the
// map before the other's move, at the same epoch. So a move comes before the grant to all of them.
func TestPartsThenAll(t *testing.T) {
	r := newTestRig(t, 4, 1, func(r *testRig, _ *Config) { r.dev.maps[0] = circuit.AllDark(4) })
	known := map[string]circuit.Permutation{} // by port and epoch: the map that it knew first
	for p, s := range r.s {
		s.changed = func(int) {
			if k := fmt.Sprint(p, " ", s.epochs[0]); known[k] == nil {
				known[k] = s.maps[0]
			}
		}
	}
	for port, l := range map[int]ocsctl.Lease{0: some(1, 20, 0, 1), 2: some(1, 21, 2, 3)} {
		require.NoError(t, r.s[port].Acquire(1, l))
		for _, p := range l.Ports {
			target := circuit.AllDark(4)
			target[l.Ports[0]], target[l.Ports[1]] = l.Ports[1], l.Ports[0]
			require.NoError(t, r.s[p].Post(0, 0, l.Holder, target))
		}
		r.pass(time.Second)
		require.NoError(t, r.s[port].Release(1, l.Holder))
	}
	require.NoError(t, r.s[0].Acquire(2, some(1, 22, 0, 1, 2, 3)))
	r.pass(time.Second)
	for p, s := range r.s {
		if k := fmt.Sprint(p, " ", s.epochs[0]); !known[k].Equal(s.maps[0]) || len(r.s[0].answers) != 2 {
			t.Errorf("port %d knows two maps of epoch %d: %v, %v", p, s.epochs[0], known[k], s.maps[0])
		}
	}
}

// TestGrantAfterATakeover: a rank may know the map of its epoch from the controller before, and not yet from this one.
// So a move comes before the first grant.
func TestGrantAfterATakeover(t *testing.T) {
	r := newTestRig(t, 4, 1, func(r *testRig, c *Config) {
		c.Recovered = []Recovered{{Epoch: 3, Map: r.dev.maps[0]}}
	})
	for i, epochs := range [][]uint32{{4, 4, 3, 3}, {4, 4, 3, 3}, {5, 5, 5, 3}} {
		l := some(1, 20, 0, 1, 2)
		l.Ports = l.Ports[:2+i/2]
		require.NoError(t, r.s[0].Acquire(1, l))
		r.pass(time.Second)
		if at := r.core.machine.planes[0].epochs; len(r.answered(0)) != 1 || !slices.Equal(at, epochs) {
			t.Errorf("grant %d: epochs %d, want %d", i, at, epochs)
		}
		require.NoError(t, r.s[0].Release(1, 20))
	}
}
