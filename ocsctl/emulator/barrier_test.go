package emulator

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"lightpath/internal/require"
	"lightpath/ocsctl"
	"lightpath/ocsctl/controller"
	"lightpath/plans/circuit"
)

// fault returns what clients see of a plane's fault.
func (r *rig) fault(plane int) error {
	return r.page.faults[plane]
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
	if next.Equal(m) { // no port would post
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
		r := newRig(t, Config{Ports: ports, Planes: planes(1, frameRate, time.Duration(rng.IntN(3))*frameTime),
			Initial: maps[:1]})
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
				t.Fatalf("seed %d: stuck: %s", seed, r.core.Waiting(0))
			}
			r.pass(frameTime)
		}
		r.pass(100 * frameTime)
		if err := r.fault(0); err != nil || sent != got {
			t.Fatalf("seed %d: %d frames of %d, %v", seed, got, sent, err)
		}
		if !r.plane(0).Map.Equal(maps[epochs]) {
			t.Fatalf("seed %d: final map %v", seed, r.plane(0).Map)
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

// checkBarrier: no port whose circuit changes still uses a map that the plane has left or is
// leaving.
func checkBarrier(t *testing.T, r *rig, maps []circuit.Permutation, ranks []*barrierRank) {
	t.Helper()
	at := int(r.epoch(0))
	if r.plane(0).State == controller.Moving {
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
		{"device refuses", func(r *rig) {
			r.dev.faults[0] = &fault{kind: failSwitch}
			r.postAll(0, 0, a)
		}, ocsctl.ErrReconfFailed, []string{"plane p0 epoch 0", "refuses"}},
		{"stuck port", func(r *rig) {
			r.dev.faults[0] = &fault{kind: stuckPort, port: 1}
			r.postAll(0, 0, a)
		}, ocsctl.ErrReconfFailed, []string{"2 circuits are wrong", "port 0 leads to nowhere, want 2"}},
		{"wrong map", func(r *rig) {
			r.dev.faults[0] = &fault{kind: wrongMap, to: b}
			r.postAll(0, 0, a)
		}, ocsctl.ErrReconfFailed, []string{"4 circuits are wrong"}},
		{"impossible map", func(r *rig) {
			r.dev.faults[0] = &fault{kind: wrongMap, to: circuit.Permutation{0, 0, 1, 2}}
			r.postAll(0, 0, a)
		}, ocsctl.ErrUnknownMap, []string{"[1]"}},
		{"never settles", func(r *rig) {
			r.dev.faults[0] = &fault{kind: stall}
			r.postAll(0, 0, a)
		}, ocsctl.ErrReconfFailed, []string{"not settled"}},
		{"cannot be read back", func(r *rig) {
			r.dev.faults[0] = &fault{kind: unreadable}
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
			if r.plane(0).State == controller.Moving {
				t.Error("a faulted plane moves")
			}
		})
	}
}

// TestMovesThatCannotBe: all ports of a holder learn why it cannot move the plane, which stays in service.
func TestMovesThatCannotBe(t *testing.T) {
	a, b := circuit.Shift(4, 2), circuit.Shift(4, 3)
	for _, tc := range []struct {
		name string
		do   func(r *rig)
		want error
		says string
	}{
		{"different maps", func(r *rig) { r.post(1, 0, 0, a); r.post(3, 0, 0, b) }, ocsctl.ErrConflict, "ports 1 and 3"},
		{"different maps for a later epoch", func(r *rig) { r.post(1, 0, 5, a); r.post(2, 0, 5, b) },
			ocsctl.ErrConflict, "ports 1 and 2"},
		{"rank vanishes before its post", func(r *rig) {
			r.post(0, 0, 0, a)
			r.s[2].Detach(false)
		}, ocsctl.ErrPortLost, "rank of port 2"},
		{"rank vanished earlier", func(r *rig) {
			r.s[2].Detach(false)
			r.post(0, 0, 0, a)
		}, ocsctl.ErrPortLost, "rank of port 2"},
		{"rank vanishes after its post", func(r *rig) {
			r.post(0, 0, 0, a)
			r.post(2, 0, 0, a)
			r.s[2].Detach(false)
		}, ocsctl.ErrPortLost, "rank of port 2"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t, Config{Ports: 4, Planes: planes(1, frameRate, time.Millisecond),
				Initial: []circuit.Permutation{circuit.Shift(4, 1)}})
			tc.do(r)
			r.pass(5 * time.Second)
			for p, k := range r.s {
				if p == 2 && errors.Is(tc.want, ocsctl.ErrPortLost) {
					continue // it is gone
				}
				if len(k.refused) != 1 || !errors.Is(k.refused[0], tc.want) || !strings.Contains(k.refused[0].Error(), tc.says) ||
					!strings.Contains(k.refused[0].Error(), "plane p0: epoch 0") {
					t.Errorf("port %d: %v, want %v with %q", p, k.refused, tc.want, tc.says)
				}
			}
			if r.epoch(0) != 0 || r.fault(0) != nil || r.plane(0).State == controller.Moving {
				t.Errorf("epoch %d, %v, %s", r.epoch(0), r.fault(0), r.plane(0).State)
			}
		})
	}
}

// After a failed switch, frames go where the device really points, or are lost. No receiver takes them for another
// rank's data.
func TestNothingTravelsAfterAWrongSwitch(t *testing.T) {
	r := newRig(t, Config{Ports: 4, Planes: planes(1, frameRate, 0), Initial: []circuit.Permutation{circuit.Shift(4, 1)}})
	r.dev.faults[0] = &fault{kind: wrongMap, to: circuit.Shift(4, 3)}
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
	r.post(1, 0, 0, swap)
	if len(r.s[1].refused) != 0 || r.fault(0) != nil {
		t.Error("a repetition of what happened was refused")
	}
	r.post(1, 0, 0, circuit.Shift(2, 0))
	if len(r.s[1].refused) != 1 || len(r.s[0].refused) != 0 || r.fault(0) != nil {
		t.Error("a stale post must be refused to its port alone")
	}
	r.post(1, 0, 1+4096+1, swap)
	if len(r.s[1].refused) != 2 {
		t.Error("a post far ahead was kept")
	}
}

func TestWaitingNamesPorts(t *testing.T) {
	r := newRig(t, Config{Ports: 8, Planes: planes(2, frameRate, time.Millisecond),
		Initial: []circuit.Permutation{circuit.Xor(8, 1), circuit.Xor(8, 1)}})
	want := func(s string) {
		t.Helper()
		if got := r.core.Waiting(1); got != s {
			t.Errorf("%q, want %q", got, s)
		}
	}
	want("plane p1 epoch 0: no port has posted")
	for p := range 8 {
		if p != 2 && p != 5 {
			r.post(p, 1, 0, circuit.Xor(8, 2))
		}
	}
	want("plane p1 epoch 0: waiting for ports 2,5")
	r.post(2, 1, 0, circuit.Xor(8, 2))
	r.post(5, 1, 0, circuit.Xor(8, 2))
	want("plane p1 epoch 0: switching")
}

func TestWaitingOfTwoHolders(t *testing.T) {
	r, pairs := pairRig(t)
	for i, ports := range pairs {
		require.NoError(t, r.s[ports[0]].Post(0, 0, uint64(20+i), circuit.Xor(4, 1)))
	}
	if got := r.core.Waiting(0); got != "plane p0 epoch 0: waiting for ports 1 of holder 0x14; ports 3 of holder 0x15" {
		t.Errorf("%q", got)
	}
}

// Ports that no rank holds take no part; one that said goodbye leaves its posts behind.
func TestAbsentPorts(t *testing.T) {
	r := newRig(t, Config{Ports: 4, Planes: planes(1, frameRate, 0), Initial: []circuit.Permutation{circuit.Shift(4, 1)}})
	r.s[3].Detach(true)
	next := circuit.Shift(4, 2)
	r.post(1, 0, 0, next)
	r.s[1].Detach(true)
	r.post(0, 0, 0, next)
	if r.epoch(0) != 0 {
		t.Fatal("switched without port 2")
	}
	r.post(2, 0, 0, next)
	if r.epoch(0) != 1 {
		t.Fatalf("not switched: %s", r.core.Waiting(0))
	}
}

// A fault lasts as long as any rank that saw it, then the plane is what the device says.
func TestFaultsEndWithTheirJob(t *testing.T) {
	r := newRig(t, Config{Ports: 2, Planes: planes(1, frameRate, 0), Initial: []circuit.Permutation{circuit.Shift(2, 0)}})
	swap := circuit.Shift(2, 1)
	r.dev.faults[0] = &fault{kind: wrongMap, to: swap}
	r.postAll(0, 0, circuit.AllDark(2))
	r.dev.faults[0] = nil
	r.s[0].Detach(false)
	r.attach(0)
	if r.fault(0) == nil {
		t.Fatal("the fault has gone while port 1 lives with it")
	}
	r.s[1].Detach(false)
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
