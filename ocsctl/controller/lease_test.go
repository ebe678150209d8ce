package controller

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"lightpath/internal/require"
	"lightpath/ocsctl"
	"lightpath/plans/circuit"
)

// refusedLast expects a port's last post to have been refused, with these words, and no other port's.
func (r *testRig) refusedLast(port int, says ...string) {
	r.t.Helper()
	for p, s := range r.s {
		switch n := len(s.refused); {
		case p != port && n > 0:
			r.t.Errorf("port %d was refused: %v", p, s.refused)
		case p == port && n != 1:
			r.t.Errorf("port %d was refused %d times", p, n)
		case p == port:
			want(r.t, "refused", s.refused[0], ocsctl.ErrNotHolder, says...)
		}
		s.refused = nil
	}
}

// TestPostsOfStrangers: posts of ranks whose communicator does not hold a plane are refused, to them alone. They
// neither disturb the plane's holder nor advance its epoch.
func TestPostsOfStrangers(t *testing.T) {
	const stranger = 0x99
	r := newTestRig(t, 4, 2, nil)
	at, to := circuit.Shift(4, 1), circuit.Shift(4, 2)
	as := func(port int, epoch uint32, target circuit.Permutation, says ...string) {
		t.Helper()
		require.NoError(t, r.s[port].Post(0, epoch, stranger, target))
		r.pass(time.Second)
		r.refusedLast(port, append(says, "plane p0", "0x99")...)
		if r.page.epochs[0] != 0 || r.page.faults[0] != nil || len(r.dev.moves) != 0 {
			t.Fatalf("a stranger's post: epoch %d, %v, %v", r.page.epochs[0], r.page.faults[0], r.dev.moves)
		}
	}
	free := []string{"no holder has the plane at this port"}
	as(1, 0, at, free...) // a move that changes nothing
	for p := range 4 {
		as(p, 0, to, free...)
	}
	r.hold(1)
	held := []string{"port 1", "holder 0x7 of port 0 has the plane"}
	as(1, 0, at, held...)
	as(1, 0, circuit.Shift(4, 3), held...)
	r.post(0, 0, 0, to)
	as(1, 0, circuit.Shift(4, 3), held...) // another map than the holder's ranks
	as(1, 0, to, held...)                  // and the same, which does not count
	for p := 1; p < 4; p++ {
		r.post(p, 0, 0, to)
	}
	r.pass(time.Second)
	if r.page.epochs[0] != 1 || !r.page.maps[0].Equal(to) {
		t.Fatal("the holder's move has not happened", r.core.Waiting(0))
	}
	// A move of the holder that changes nothing advances the epoch: its ranks have agreed.
	r.post(2, 0, 1, to)
	r.pass(time.Second)
	if r.page.epochs[0] != 2 {
		t.Error("the holder's own move that changes nothing was lost")
	}
	// Every port may repeat a post of a move that is complete.
	r.post(3, 0, 0, to)
	if len(r.s[3].refused) != 0 {
		t.Error(r.s[3].refused)
	}
}

// TestPostsEndWithTheUse: posts that wait when a plane is given back are void, and their ports are told.
func TestPostsEndWithTheUse(t *testing.T) {
	for name, end := range map[string]func(r *testRig){
		"released":   func(r *testRig) { r.release(1) },
		"left":       func(r *testRig) { r.s[0].Detach(true) },
		"has failed": func(r *testRig) { r.s[0].Detach(false) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newTestRig(t, 4, 1, nil)
			r.hold(1)
			r.post(2, 0, 0, circuit.Permutation{1, 2, circuit.Dark, 3}) // ports 2 and 3 change
			end(r)
			r.refusedLast(2, "no holder has the plane at this port")
			require.NoError(t, r.s[1].Acquire(1, ocsctl.Lease{Mask: 1, Holder: 8}))
			for p := 1; p < 4; p++ {
				require.NoError(t, r.s[p].Post(0, 0, 8, circuit.Permutation{1, circuit.Dark, 3, 2}))
			}
			r.pass(time.Second)
			if r.page.epochs[0] != 1 || r.page.faults[0] != nil {
				t.Errorf("the next holder: epoch %d, %v; %s", r.page.epochs[0], r.page.faults[0], r.core.Waiting(0))
			}
		})
	}
}

// TestReleaseIsLost: a holder that asks again for planes whose release was lost does not wait for itself, and requests
// that came before get the planes first.
func TestReleaseIsLost(t *testing.T) {
	r := newTestRig(t, 4, 2, nil)
	r.hold(3)
	var order []int
	for p := range 2 {
		r.s[p].granted = func(uint64) { order = append(order, p) }
	}
	require.NoError(t, r.s[1].Acquire(2, ocsctl.Lease{Mask: 1, Holder: 8}))
	require.NoError(t, r.s[0].Acquire(3, ocsctl.Lease{Mask: 3, Holder: testHolder}))
	if len(order) != 1 || order[0] != 1 {
		t.Fatalf("granted to ports %v, want the earlier request of port 1", order)
	}
	require.NoError(t, r.s[1].Release(1, 8))
	if len(order) != 2 || order[1] != 0 {
		t.Errorf("granted to ports %v, want port 0 next", order)
	}
}

// TestManyRequests: a rank whose requests pile up gets an error for one too many. The others, and those of other ranks,
// are served.
func TestManyRequests(t *testing.T) {
	r := newTestRig(t, 2, 1, nil)
	r.hold(1)
	for i := range uint64(2 * maxRequests) {
		require.NoError(t, r.s[1].Acquire(i, ocsctl.Lease{Mask: 1, Holder: 100 + i}))
	}
	if n := len(r.core.machine.lease.queue); n != maxRequests {
		t.Fatalf("%d requests wait", n)
	}
	a := r.s[1].answers
	if len(a) != maxRequests || a[0].id != maxRequests || a[0].mask != 0 {
		t.Fatal(a)
	}
	want(t, "one too many", a[0].err, a[0].err, "port 1", "requests wait already")
	r.release(1)
	if last := r.s[1].answers[len(a)]; last.id != 0 || last.mask != 1 {
		t.Error(last)
	}
}

// TestPostsBeforeTheClaim: after a takeover ranks may post before the port that holds the plane has found the
// controller. Nothing moves until it has claimed the plane, and posts for others are refused then.
func TestPostsBeforeTheClaim(t *testing.T) {
	start := func(t *testing.T) *testRig {
		r := newTestRig(t, 2, 1, func(r *testRig, c *Config) {
			c.Recovered, c.Grace = []Recovered{{Epoch: 3, Map: r.dev.maps[0]}}, time.Second
			r.absent = 1
		})
		for _, holder := range []uint64{testHolder, 8} {
			require.NoError(t, r.s[1].Post(0, 3, holder, circuit.Permutation{1, circuit.Dark}))
		}
		r.pass(time.Millisecond)
		if len(r.dev.moves) != 0 || len(r.s[1].refused) != 0 ||
			r.core.Waiting(0) != "plane p0 epoch 3: no communicator has claimed it since the takeover" {
			t.Fatal(r.dev.moves, r.s[1].refused, r.core.Waiting(0))
		}
		return r
	}
	t.Run("claimed", func(t *testing.T) {
		r := start(t)
		r.attach(0, ocsctl.Lease{Holder: testHolder, Mask: 1})
		r.pass(100 * time.Millisecond)
		r.refusedLast(1, "holder 0x7 of port 0 has the plane", "0x8")
		if r.page.epochs[0] != 4 {
			t.Error(r.core.Waiting(0))
		}
	})
	t.Run("never claimed", func(t *testing.T) {
		r := start(t)
		r.pass(2 * time.Second)
		if n := len(r.s[1].refused); n != 2 || !errors.Is(r.s[1].refused[0], ocsctl.ErrNotHolder) || len(r.dev.moves) != 0 ||
			r.page.faults[0] != nil {
			t.Error(r.s[1].refused, r.dev.moves, r.page.faults[0])
		}
	})
}

// TestLeaseOfSomePorts: a move waits for the ports whose circuits lie inside the lease. Circuits with an end outside
// change without a post, also if the rank there has died. A lease that is claimed after a takeover has the same ports.
func TestLeaseOfSomePorts(t *testing.T) {
	inside, target := []int{0, 1, 3}, circuit.Permutation{3, 0, circuit.Dark, circuit.Dark, circuit.Dark}
	for name, start := range map[string]func() *testRig{
		"granted": func() *testRig {
			r := newTestRig(t, 5, 1, nil)
			require.NoError(t, r.s[0].Acquire(1, ocsctl.Lease{Mask: 1, Holder: testHolder, Ports: inside}))
			return r
		},
		"claimed": func() *testRig {
			r := newTestRig(t, 5, 1, func(r *testRig, c *Config) {
				c.Recovered, r.absent = []Recovered{{Map: r.dev.maps[0]}}, 1
			})
			r.attach(0, ocsctl.Lease{Holder: testHolder, Mask: 1, Ports: inside})
			return r
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := start()
			r.s[2].Detach(false)
			epoch := r.page.epochs[0]
			r.post(0, 0, epoch, target)
			r.pass(time.Second)
			if p := r.plane(0); !slices.Equal(p.Missing, []int{1}) || p.Epoch != epoch || r.page.faults[0] != nil {
				t.Fatalf("epoch %d, waits for ports %v, %v", p.Epoch, p.Missing, r.page.faults[0])
			}
			r.post(1, 0, epoch, target)
			r.pass(time.Second)
			if r.page.epochs[0] != epoch+1 || !r.page.maps[0].Equal(target) || r.page.faults[0] != nil {
				t.Errorf("epoch %d, map %v, %v", r.page.epochs[0], r.page.maps[0], r.page.faults[0])
			}
		})
	}
	r := newTestRig(t, 2, 1, nil)
	err := r.s[0].Acquire(1, ocsctl.Lease{Mask: 1, Holder: testHolder, Ports: []int{0, 2}})
	if err == nil || !strings.Contains(err.Error(), "port 2") {
		t.Errorf("a lease of a port that does not exist: %v", err)
	}
}

func some(mask, holder uint64, ports ...int) ocsctl.Lease {
	return ocsctl.Lease{Mask: mask, Holder: holder, Ports: ports}
}

// TestLeasesSideBySide: holders of disjoint ports hold planes together. A request waits for holders of its ports, and
// behind earlier requests for them.
func TestLeasesSideBySide(t *testing.T) {
	r := newTestRig(t, 6, 2, nil)
	var order []int
	for p := range r.s {
		r.s[p].granted = func(uint64) { order = append(order, p) }
	}
	expect := func(ports ...int) {
		t.Helper()
		if !slices.Equal(order, ports) {
			t.Fatalf("granted to ports %v, want %v", order, ports)
		}
		order = nil
	}
	require.NoError(t, r.s[0].Acquire(1, some(3, 10, 0, 1)))
	require.NoError(t, r.s[2].Acquire(1, some(3, 12, 2, 3)))
	expect(0, 2)
	require.NoError(t, r.s[3].Acquire(1, some(1, 13, 3, 4))) // port 3 has data of holder 12
	require.NoError(t, r.s[4].Acquire(1, some(1, 14, 4)))    // waits behind
	require.NoError(t, r.s[5].Acquire(1, some(1, 15, 5)))
	expect(5)
	if p := r.plane(0); len(p.Holders) != 3 || p.Holders[1].Holder != 12 {
		t.Errorf("holders %+v", p.Holders)
	}
	if err := *r.set(1, circuit.Shift(6, 1)); !errors.Is(err, ErrHeld) {
		t.Errorf("an operator moves a plane in use: %v", err)
	}
	require.NoError(t, r.s[2].Release(3, 12))
	expect(3)
	require.NoError(t, r.s[2].Acquire(2, ocsctl.Lease{Mask: 1, Holder: 16})) // all ports
	require.NoError(t, r.s[2].Acquire(3, some(1, 12, 2)))
	expect()
	require.NoError(t, r.s[0].Release(3, 10))
	require.NoError(t, r.s[5].Release(1, 15))
	require.NoError(t, r.s[3].Release(1, 13))
	expect(4)
	require.NoError(t, r.s[4].Release(1, 14))
	expect(2)
	require.NoError(t, r.s[2].Release(1, 16))
	expect(2)
}

// TestClaimsSideBySide: after a takeover, ranks claim planes together for disjoint ports only.
func TestClaimsSideBySide(t *testing.T) {
	r := newTestRig(t, 4, 1, func(r *testRig, c *Config) {
		c.Recovered, c.Grace, r.absent = []Recovered{{Epoch: 3, Map: r.dev.maps[0]}}, time.Second, 1+2
	})
	for _, p := range []int{1, 3} {
		r.s[p].Detach(true)
	}
	r.attach(1, some(1, 11, 0, 1))
	_, err := r.core.Attach(newTestSink(), AttachOptions{Port: 2, Held: []ocsctl.Lease{{Holder: 12, Mask: 1}}})
	want(t, "claimed for all ports", err, ErrHeld, "plane p0")
	r.attach(3, some(1, 13, 2, 3))
	if p := r.plane(0); len(p.Holders) != 2 || p.Holders[1].Holder != 13 {
		t.Errorf("holders %+v", p.Holders)
	}
}

// TestReleaseOfOthers: only the attachment and the holder that were granted a plane can release it.
func TestReleaseOfOthers(t *testing.T) {
	r := newTestRig(t, 2, 1, nil)
	r.hold(1)
	for _, err := range []error{r.s[1].Release(1, testHolder), r.s[0].Release(1, testHolder+1)} {
		if err == nil {
			t.Error("a release of another's plane has no error")
		}
	}
	if h := r.plane(0).Holders; len(h) != 1 || h[0].Holder != testHolder {
		t.Errorf("holder %+v", h)
	}
}

// TestClaimKeepsOtherPosts: posts that came after a takeover wait for the claim of their own plane, and a claim of
// another plane does not refuse them.
func TestClaimKeepsOtherPosts(t *testing.T) {
	to := circuit.Shift(3, 2)
	r := newTestRig(t, 3, 2, func(r *testRig, c *Config) {
		c.Recovered = []Recovered{{Epoch: 3, Map: r.dev.maps[0]}, {Epoch: 3, Map: r.dev.maps[1]}}
		r.absent = 1
	})
	require.NoError(t, r.s[1].Post(1, 3, 10, to))
	r.s[2].Detach(true)
	r.attach(2, ocsctl.Lease{Holder: 20, Mask: 1})
	r.attach(0, ocsctl.Lease{Holder: 10, Mask: 2})
	for _, p := range []int{0, 2} {
		require.NoError(t, r.s[p].Post(1, 3, 10, to))
	}
	r.pass(time.Second)
	if len(r.s[1].refused) != 0 || r.page.epochs[1] != 4 || !r.page.maps[1].Equal(to) {
		t.Errorf("refused %v, epoch %d: %s", r.s[1].refused, r.page.epochs[1], r.core.Waiting(1))
	}
}

// TestMoveBeforeAClaim: a move for one holder takes circuits off at ports that another has not claimed yet. The ports
// of the other one stay at one epoch. The next holder of these ports is not granted the plane at an epoch of before.
func TestMoveBeforeAClaim(t *testing.T) {
	r := newTestRig(t, 4, 1, func(r *testRig, c *Config) {
		c.Recovered = []Recovered{{Epoch: 3, Map: r.dev.maps[0]}}
		r.absent = 1 + 2
	})
	r.s[0].Detach(true)
	r.attach(0, some(1, 20, 0, 1))
	require.NoError(t, r.s[1].Post(0, 3, 20, circuit.Permutation{1, 0, circuit.Dark, circuit.Dark}))
	r.pass(time.Millisecond)
	r.attach(2, some(1, 21, 2, 3))
	if a, b := r.s[2].epochs[0], r.s[3].epochs[0]; a != 3 || b != 3 || r.s[0].epochs[0] != 4 {
		t.Errorf("the ports of a holder are at epochs %d and %d", a, b)
	}
	require.NoError(t, r.s[2].Release(1, 21))
	require.NoError(t, r.s[2].Acquire(1, some(1, 22, 2, 3)))
	r.pass(time.Second)
	if a, b := r.s[2].epochs[0], r.s[3].epochs[0]; a != 4 || b != 4 || len(r.s[2].answers) != 1 {
		t.Errorf("granted at epochs %d and %d: %v", a, b, r.s[2].answers)
	}
}

// TestGrantWaitsForTheMove: a plane whose holder has gone is granted when its last move has ended. Otherwise the new
// holder would take the end of this move for its own first one.
func TestGrantWaitsForTheMove(t *testing.T) {
	for name, gone := range map[string]func(r *testRig){
		"released": func(r *testRig) { require.NoError(r.t, r.s[0].Release(1, testHolder)) },
		"detached": func(r *testRig) { r.s[0].Detach(false) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newTestRig(t, 4, 1, nil)
			r.hold(1)
			for p := range 4 {
				r.post(p, 0, 0, circuit.Shift(4, 2))
			}
			at := uint32(99)
			r.s[1].granted = func(uint64) { at = r.s[1].epochs[0] }
			require.NoError(t, r.s[1].Acquire(2, ocsctl.Lease{Mask: 1, Holder: 8}))
			gone(r)
			if at != 99 {
				t.Errorf("granted at epoch %d, during the move", at)
			}
			r.pass(time.Second)
			if at != 1 {
				t.Errorf("granted at epoch %d, want 1", at)
			}
		})
	}
}

// TestGrantBesideAMove: a plane that moves for others is granted at ports that the move does not concern. Otherwise a
// request for planes that others move all the time might wait for ever.
func TestGrantBesideAMove(t *testing.T) {
	r := newTestRig(t, 6, 1, nil)
	r.dev.delay = time.Millisecond
	require.NoError(t, r.s[0].Acquire(1, with(1, 20, 0, 1)))
	require.NoError(t, r.s[4].Acquire(1, some(1, 21, 4, 5)))
	require.NoError(t, r.s[2].Acquire(1, some(1, 22, 2, 3)))
	if a, b, c := r.answered(0), r.answered(4), r.answered(2); len(a)+len(b) != 0 || len(c) != 1 {
		t.Errorf("granted during the move, which takes a circuit off at port 5: %v %v %v", a, b, c)
	}
	r.pass(time.Second)
	at := r.core.machine.planes[0].epochs
	if a, b := r.answered(0), r.answered(4); len(a) != 1 || len(b) != 1 || !slices.Equal(at, []uint32{1, 1, 0, 0, 2, 2}) {
		t.Errorf("granted after the move, at epochs %d: %v %v", at, a, b)
	}
}

// TestNoRefusalOfAFailedPlane: posts to a plane that has failed are not refused. A refusal stays, and the same holder
// may use the plane again after an operator has brought it back.
func TestNoRefusalOfAFailedPlane(t *testing.T) {
	r := newTestRig(t, 4, 1, withTimed)
	r.hold(1)
	r.post(0, 0, 0, circuit.Shift(4, 2))
	r.timed.unwell[0] = errors.New("no light")
	r.timed.news(0)
	require.NoError(t, r.s[0].Release(1, testHolder))
	if len(r.s[0].refused) != 0 {
		t.Error(r.s[0].refused)
	}
}

// TestWanted checks which holders the controller tells that others want planes: each holder once per lease.
func TestWanted(t *testing.T) {
	r := newTestRig(t, 4, 3, nil)
	told := func(port int, want ...[2]uint64) {
		t.Helper()
		if got := r.s[port].wanted; !slices.Equal(got, want) {
			t.Errorf("port %d was told %v, want %v", port, got, want)
		}
		r.s[port].wanted = nil
	}
	r.hold(3)
	told(0)
	require.NoError(t, r.s[1].Acquire(1, ocsctl.Lease{Mask: 4, Holder: 8})) // a free plane
	told(0)
	require.NoError(t, r.s[2].Acquire(2, ocsctl.Lease{Mask: 6, Holder: 9}))
	told(0, [2]uint64{testHolder, 2})
	told(1, [2]uint64{8, 4})
	require.NoError(t, r.s[3].Acquire(3, ocsctl.Lease{Mask: 2, Holder: 10})) // it has been told
	told(0)
	require.NoError(t, r.s[0].Release(2, testHolder))
	require.NoError(t, r.s[1].Release(4, 8))
	told(2, [2]uint64{9, 2}) // at once, since port 3 waits
	told(0)
	r.disable(0)
	told(0, [2]uint64{testHolder, 1})
	r.disable(0)
	told(0)
	told(2)
}
