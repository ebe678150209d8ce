package emulator

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"lightpath/ocsctl"
	"lightpath/plans/circuit"
)

// fault returns what clients see of a plane's fault.
func (r *rig) fault(plane int) error {
	if !r.f.status.faulted(plane) {
		return nil
	}
	_, f, _ := r.f.status.read(plane)
	return f.err()
}

// randomStep changes a few circuits of m: a rotation of the receivers of some ports, some
// of which may go dark.
func randomStep(rng *rand.Rand, m circuit.Permutation) circuit.Permutation {
	next := m.Clone()
	some := rng.Perm(len(m))[:2+rng.IntN(len(m)-1)]
	first := next[some[0]]
	for i := range some[:len(some)-1] {
		next[some[i]] = next[some[i+1]]
	}
	next[some[len(some)-1]] = first
	if rng.IntN(4) == 0 {
		next[some[0]] = circuit.Dark
	}
	if next.Equal(m) { // nobody would post
		return randomStep(rng, m)
	}
	return next
}

// barrierRank drives one port through a sequence of maps as an honest rank does: it sends
// on the circuit that it has, drains, posts, and goes on when the plane has switched.
type barrierRank struct {
	port, at int    // at: index of the map it is in
	made     uint32 // epoch of its circuit
	left     int    // frames to send in this map
	wakes    int64  // it does nothing before
	posted   bool
}

// Any order of posts, any subset of changing ports, any delay: a plane switches exactly
// when all its changing ports have posted, goes through the maps in order, and honest ranks
// lose nothing.
func TestBarrierProperty(t *testing.T) {
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 3))
		ports, epochs := 2+rng.IntN(7), 1+rng.IntN(12)
		maps := []circuit.Permutation{circuit.Shift(ports, rng.IntN(ports))}
		for range epochs {
			if maps[len(maps)-1].Equal(circuit.AllDark(ports)) {
				maps = append(maps, circuit.Shift(ports, 1))
				continue
			}
			maps = append(maps, randomStep(rng, maps[len(maps)-1]))
		}
		r := newRig(t, Config{Ports: ports, Planes: planes(1, frameRate, time.Duration(rng.IntN(3))*frameTime), Initial: maps[:1]})
		r.late, r.max = rng, int64(3*frameTime)
		sent, got := 0, 0
		ranks := make([]*barrierRank, ports)
		for p := range ranks {
			ranks[p] = &barrierRank{port: p, left: rng.IntN(6)}
		}
		r.each = func() (active bool) {
			checkBarrier(t, r, maps, ranks)
			for _, i := range rng.Perm(ports) {
				n, moved := ranks[i].move(r, maps, rng)
				sent += n
				active = active || moved
				for {
					if _, ok := r.recv(0, i); !ok {
						break
					}
					got++
				}
			}
			return active
		}
		for wait := 0; int(r.epoch(0)) < epochs; wait++ {
			if wait > 10000 {
				t.Fatalf("seed %d: stuck: %s", seed, r.f.waiting(0))
			}
			r.pass(frameTime)
		}
		r.pass(100 * frameTime)
		if err := r.fault(0); err != nil || sent != got {
			t.Fatalf("seed %d: %d frames of %d, %v", seed, got, sent, err)
		}
		if !r.f.planes[0].state.Map.Equal(maps[epochs]) {
			t.Fatalf("seed %d: final map %v", seed, r.f.planes[0].state.Map)
		}
	}
}

// move lets the rank do one thing; it returns how many frames it has sent.
func (b *barrierRank) move(r *rig, maps []circuit.Permutation, rng *rand.Rand) (sent int, moved bool) {
	if r.now < b.wakes {
		return 0, false
	}
	last := b.at == len(maps)-1
	switch {
	case b.posted:
		if r.epoch(0) <= uint32(b.at) {
			return 0, false
		}
		b.at++
		b.made, b.posted, b.left = uint32(b.at), false, rng.IntN(6)
	case b.left > 0 && maps[b.at][b.port] != circuit.Dark:
		if !r.send(0, b.port, 1, frameBytes, b.made) {
			return 0, false
		}
		b.left--
		sent = 1
	case last:
		return 0, false
	case maps[b.at][b.port] == maps[b.at+1][b.port]: // not concerned by this switch
		b.at++
		b.left = rng.IntN(3)
	case !r.s[b.port].view.tx[0].Empty():
		return 0, false
	default:
		r.post(b.port, 0, uint32(b.at), maps[b.at+1])
		b.posted = true
	}
	b.wakes = r.now + rng.Int64N(int64(2*frameTime))
	return sent, true
}

// checkBarrier: nobody whose circuit changes is still in a map that the plane has left or
// is leaving.
func checkBarrier(t *testing.T, r *rig, maps []circuit.Permutation, ranks []*barrierRank) {
	t.Helper()
	pl := r.f.planes[0]
	at := int(pl.state.Epoch)
	if pl.moving {
		at++
	}
	for _, b := range ranks {
		for e := b.at; e < at; e++ {
			if maps[e][b.port] != maps[e+1][b.port] && (e != b.at || !b.posted) {
				t.Fatalf("the plane goes to epoch %d, port %d is in %d and has not agreed", at, b.port, b.at)
			}
		}
	}
}

func TestBarrierErrors(t *testing.T) {
	a, b := circuit.Shift(4, 2), circuit.Shift(4, 3)
	for _, tc := range []struct {
		name string
		do   func(r *rig)
		want error
		says []string
	}{
		{"different maps", func(r *rig) { r.post(1, 0, 0, a); r.post(3, 0, 0, b) },
			ocsctl.ErrConflict, []string{"plane 0 epoch 0", "ports 1 and 3"}},
		{"different maps for a later epoch", func(r *rig) { r.post(1, 0, 5, a); r.post(2, 0, 5, b) },
			ocsctl.ErrConflict, []string{"ports 1 and 2"}},
		{"rank vanishes before its post", func(r *rig) {
			r.post(0, 0, 0, a)
			r.f.detach(r.s[2], false, r.now)
		}, ocsctl.ErrPortLost, []string{"plane 0 epoch 0", "port 2"}},
		{"rank vanished earlier", func(r *rig) {
			r.f.detach(r.s[2], false, r.now)
			r.post(0, 0, 0, a)
		}, ocsctl.ErrPortLost, []string{"port 2"}},
		{"rank vanishes after its post", func(r *rig) {
			r.post(0, 0, 0, a)
			r.post(2, 0, 0, a)
			r.f.detach(r.s[2], false, r.now)
		}, ocsctl.ErrPortLost, []string{"port 2"}},
		{"device refuses", func(r *rig) {
			r.dev.Inject(0, &Fault{Kind: FailSwitch})
			r.postAll(0, 0, a)
		}, ocsctl.ErrReconfFailed, []string{"plane 0 epoch 0", "refuses"}},
		{"stuck port", func(r *rig) {
			r.dev.Inject(0, &Fault{Kind: StuckPort, Port: 1})
			r.postAll(0, 0, a)
		}, ocsctl.ErrReconfFailed, []string{"2 circuits are wrong", "port 0 leads to nowhere, want 2"}},
		{"wrong map", func(r *rig) {
			r.dev.Inject(0, &Fault{Kind: WrongMap, Map: b})
			r.postAll(0, 0, a)
		}, ocsctl.ErrReconfFailed, []string{"4 circuits are wrong"}},
		{"impossible map", func(r *rig) {
			r.dev.Inject(0, &Fault{Kind: WrongMap, Map: circuit.Permutation{0, 0, 1, 2}})
			r.postAll(0, 0, a)
		}, ocsctl.ErrUnknownMap, []string{"[1]"}},
		{"never settles", func(r *rig) {
			r.dev.Inject(0, &Fault{Kind: Stall})
			r.postAll(0, 0, a)
		}, ocsctl.ErrReconfFailed, []string{"not settled"}},
		{"cannot be read back", func(r *rig) {
			r.dev.Inject(0, &Fault{Kind: Unreadable})
			r.postAll(0, 0, a)
		}, ocsctl.ErrUnknownMap, []string{"does not answer"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t, Config{Ports: 4, Planes: planes(2, frameRate, time.Millisecond),
				Initial: []circuit.Permutation{circuit.Shift(4, 1), circuit.Shift(4, 1)}})
			tc.do(r)
			r.pass(5 * time.Second)
			err := r.fault(0)
			if !errors.Is(err, tc.want) {
				t.Fatalf("got %v, want %v", err, tc.want)
			}
			for _, s := range tc.says {
				if !strings.Contains(err.Error(), s) {
					t.Errorf("%q does not say %q", err, s)
				}
			}
			if r.epoch(0) != 0 {
				t.Errorf("epoch %d", r.epoch(0))
			}
			if err := r.fault(1); err != nil {
				t.Errorf("plane 1: %v", err)
			}
			r.post(0, 0, 0, a) // must not move any more
			if r.f.planes[0].moving {
				t.Error("a faulted plane moves")
			}
		})
	}
}

// After a failed switch frames go where the device really points, or nowhere, never as data
// to somebody who takes them for another's.
func TestNothingTravelsAfterAWrongSwitch(t *testing.T) {
	r := newRig(t, Config{Ports: 4, Planes: planes(1, frameRate, 0), Initial: []circuit.Permutation{circuit.Shift(4, 1)}})
	r.dev.Inject(0, &Fault{Kind: WrongMap, Map: circuit.Shift(4, 3)})
	r.postAll(0, 0, circuit.Shift(4, 2))
	for p := range 4 {
		r.send(0, p, 1, frameBytes, 0)
		r.send(0, p, 2, frameBytes, 1)
	}
	r.pass(time.Second)
	for p := range 4 {
		r.wantLost(p, 0, map[Verdict]uint32{LostEpoch: 2})
		if _, ok := r.recv(0, p); ok {
			t.Errorf("port %d received", p)
		}
	}
}

func TestStaleAndRepeatedPosts(t *testing.T) {
	r := newRig(t, Config{Ports: 2, Planes: planes(1, frameRate, 0), Initial: []circuit.Permutation{circuit.Shift(2, 0)}})
	swap := circuit.Shift(2, 1)
	r.postAll(0, 0, swap)
	if r.epoch(0) != 1 {
		t.Fatal("not switched")
	}
	refused := r.s[1].view.alarms[0].refused
	r.post(1, 0, 0, swap)
	if refused.Load() != 0 || r.fault(0) != nil {
		t.Error("a repetition of what happened was refused")
	}
	r.post(1, 0, 0, circuit.Shift(2, 0))
	if refused.Load() != 1 || r.s[0].view.alarms[0].refused.Load() != 0 || r.fault(0) != nil {
		t.Error("a stale post must be refused to its port alone")
	}
	r.post(1, 0, 1+maxAhead+1, swap)
	if refused.Load() != 2 {
		t.Error("a post far ahead was kept")
	}
}

func TestWaitingNamesPorts(t *testing.T) {
	r := newRig(t, Config{Ports: 8, Planes: planes(2, frameRate, time.Millisecond),
		Initial: []circuit.Permutation{circuit.Xor(8, 1), circuit.Xor(8, 1)}})
	want := func(s string) {
		t.Helper()
		if got := r.f.waiting(1); got != s {
			t.Errorf("%q, want %q", got, s)
		}
	}
	want("plane 1 epoch 0: no port has posted")
	for p := range 8 {
		if p != 2 && p != 5 {
			r.post(p, 1, 0, circuit.Xor(8, 2))
		}
	}
	want("plane 1 epoch 0: waiting for ports 2,5")
	r.post(2, 1, 0, circuit.Xor(8, 2))
	r.post(5, 1, 0, circuit.Xor(8, 2))
	want("plane 1 epoch 0: switching")
}

// Ports that no rank holds take no part; one that said goodbye leaves its posts behind.
func TestAbsentPorts(t *testing.T) {
	r := newRig(t, Config{Ports: 4, Planes: planes(1, frameRate, 0), Initial: []circuit.Permutation{circuit.Shift(4, 1)}})
	r.f.detach(r.s[3], true, r.now)
	next := circuit.Shift(4, 2)
	r.post(0, 0, 0, next)
	r.f.detach(r.s[0], true, r.now)
	r.post(1, 0, 0, next)
	if r.epoch(0) != 0 {
		t.Fatal("switched without port 2")
	}
	r.post(2, 0, 0, next)
	if r.epoch(0) != 1 {
		t.Fatalf("not switched: %s", r.f.waiting(0))
	}
}

// A fault lasts as long as any rank that saw it, then the plane is what the device says.
func TestFaultsEndWithTheirJob(t *testing.T) {
	r := newRig(t, Config{Ports: 2, Planes: planes(1, frameRate, 0), Initial: []circuit.Permutation{circuit.Shift(2, 0)}})
	swap := circuit.Shift(2, 1)
	r.dev.Inject(0, &Fault{Kind: WrongMap, Map: swap})
	r.postAll(0, 0, circuit.AllDark(2))
	r.dev.Inject(0, nil)
	r.f.detach(r.s[0], false, r.now)
	r.attach(0)
	if r.fault(0) == nil {
		t.Fatal("the fault has gone while port 1 lives with it")
	}
	r.f.detach(r.s[1], false, r.now)
	r.attach(1)
	if err := r.fault(0); err != nil {
		t.Fatal(err)
	}
	e := r.epoch(0)
	r.send(0, 0, 9, frameBytes, e)
	r.pass(time.Second)
	if id, ok := r.recv(0, 1); !ok || id != 9 {
		t.Errorf("the plane does not work again; alarms %d", r.s[0].view.alarms[0].total())
	}
}

func TestLeases(t *testing.T) {
	r := newRig(t, Config{Ports: 3, Planes: planes(3, frameRate, 0)})
	granted := func(p int) (ids []uint64) {
		for {
			select {
			case m := <-r.s[p].out:
				ids = append(ids, m.ID)
			default:
				return ids
			}
		}
	}
	want := func(step string, p int, ids ...uint64) {
		t.Helper()
		if got := granted(p); fmt.Sprint(got) != fmt.Sprint(ids) {
			t.Errorf("%s: port %d was granted %v, want %v", step, p, got, ids)
		}
	}
	r.f.acquire(r.s[0], 1, 0b011, 10)
	want("free planes", 0, 1)
	r.f.acquire(r.s[1], 2, 0b110, 20)
	want("one plane is taken", 1)
	r.f.acquire(r.s[2], 3, 0b100, 30)
	want("free, but an earlier request wants it", 2)
	if err := r.f.release(r.s[1], 0b001, 20); err == nil {
		t.Error("a plane was released by who does not hold it")
	}
	if err := r.f.release(r.s[0], 0b011, 10); err != nil {
		t.Error(err)
	}
	want("released", 1, 2)
	want("still taken", 2)
	r.f.detach(r.s[1], false, r.now)
	want("holder gone", 2, 3)
}

// Holders that ask for overlapping sets in any order all get them, one at a time per plane.
func TestLeasesProperty(t *testing.T) {
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 5))
		var l lease
		who := make([]*session, 6)
		wants, holds, rounds := make([]uint64, len(who)), make([]uint64, len(who)), make([]int, len(who))
		for i := range who {
			who[i] = &session{port: i}
		}
		check := func() {
			var all uint64
			for _, q := range l.grant() {
				i := q.session.port
				holds[i], wants[i] = q.mask, 0
			}
			for _, h := range holds {
				if h&all != 0 {
					t.Fatal("a plane has two holders")
				}
				all |= h
			}
		}
		for range 3000 {
			i := rng.IntN(len(who))
			switch {
			case holds[i] != 0:
				if l.release(holds[i], leaseHolder{who[i], 7}) != 0 {
					t.Fatal("lost a plane")
				}
				holds[i] = 0
				rounds[i]++
			case wants[i] == 0:
				wants[i] = 1 + rng.Uint64N(15)
				l.queue = append(l.queue, leaseRequest{leaseHolder{who[i], 7}, 0, wants[i]})
			}
			check()
		}
		for i, n := range rounds {
			if n < 50 {
				t.Fatalf("seed %d: holder %d was served %d times", seed, i, n)
			}
		}
	}
}
