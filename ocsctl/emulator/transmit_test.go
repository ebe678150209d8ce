package emulator

import (
	"math/rand/v2"
	"testing"
	"time"

	"lightpath/internal/require"
	"lightpath/plans/circuit"
)

const mbit = 1e6

// A frame of 1000 bytes at 80 Mb/s takes 100 us.
const (
	frameBytes = 1000
	frameTime  = 100 * time.Microsecond
	frameRate  = 80 * mbit
)

func shiftRig(t *testing.T, ports, slots int, reconfig time.Duration) *rig {
	return newRig(t, Config{Ports: ports, Planes: planes(1, frameRate, reconfig), Slots: slots,
		Initial: []circuit.Permutation{circuit.Shift(ports, 1)}})
}

func TestFrameArrivesWhenItsLastBitHas(t *testing.T) {
	r := shiftRig(t, 2, 4, 0)
	r.send(0, 0, 1, frameBytes, 0)
	r.send(0, 0, 2, frameBytes, 0)
	r.run(r.now + int64(frameTime) - 1)
	if _, ok := r.recv(0, 1); ok {
		t.Fatal("the frame arrived early")
	}
	if r.s[0].view.tx[0].Pending() != 2 {
		t.Fatal("a slot was released before its frame had left the wire")
	}
	r.pass(1)
	if id, ok := r.recv(0, 1); !ok || id != 1 {
		t.Fatal("the frame did not arrive in time")
	}
	r.pass(frameTime - 1)
	if _, ok := r.recv(0, 1); ok {
		t.Fatal("the second frame arrived early")
	}
	r.pass(1)
	if id, ok := r.recv(0, 1); !ok || id != 2 || !r.s[0].view.tx[0].Empty() {
		t.Fatal("the second frame did not arrive in time")
	}
}

func TestIdleWireEarnsNothing(t *testing.T) {
	r := shiftRig(t, 2, 4, 0)
	r.send(0, 0, 1, frameBytes, 0)
	r.pass(time.Second)
	r.send(0, 0, 2, frameBytes, 0)
	r.recv(0, 1)
	r.pass(frameTime - 1)
	if _, ok := r.recv(0, 1); ok {
		t.Fatal("a frame after a pause travelled in no time")
	}
}

// A sender that keeps its ring full gets exactly the circuit's rate. The switch itself may run late, by less than the
// time of a full ring.
func TestRateSurvivesJitter(t *testing.T) {
	for _, tc := range []struct {
		name  string
		slots int
		late  time.Duration
	}{
		{"punctual", 4, 0}, {"late by less than the ring", 64, 3 * time.Millisecond},
		{"late by more than the ring", 8, 3 * time.Millisecond},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := shiftRig(t, 2, tc.slots, 0)
			if tc.late > 0 {
				r.late, r.max = rand.New(rand.NewPCG(1, 2)), int64(tc.late)
			}
			const frames = 5000
			sent, got, began := 0, 0, r.now
			r.each = func() (active bool) {
				for sent < frames && r.send(0, 0, uint64(sent), frameBytes, 0) {
					sent++
					active = true
				}
				for {
					id, ok := r.recv(0, 1)
					if !ok {
						return active
					}
					active = true
					if int(id) != got {
						t.Fatalf("frame %d in place of %d", id, got)
					}
					got++
					if ideal := began + int64(got)*int64(frameTime); r.now < ideal {
						t.Fatalf("frame %d came %d ns early", got-1, ideal-r.now)
					}
				}
			}
			for got < frames {
				r.pass(10 * time.Millisecond)
			}
			took, ideal := r.c.planes[0].tx[0].free-began, frames*int64(frameTime)
			if took < ideal || float64(took) > 1.002*float64(ideal) {
				t.Errorf("%d frames took %d ns, ideally %d", frames, took, ideal)
			}
		})
	}
}

func TestFullReceiverHoldsTheWire(t *testing.T) {
	r := shiftRig(t, 2, 2, 0)
	sent := uint64(0)
	r.each = func() (active bool) {
		for sent < 6 && r.send(0, 0, sent, frameBytes, 0) {
			sent++
			active = true
		}
		return active
	}
	r.pass(10 * frameTime)
	if rx := r.s[1].view.rx[0]; rx.Pending() != 2 || r.s[0].view.tx[0].Empty() {
		t.Fatalf("%d frames in a receive ring of 2", rx.Pending())
	}
	r.wantLost(0, 0, nil)
	if !r.s[1].view.rx[0].Wanted() {
		t.Error("the receiver is not told that the switch waits for it")
	}
	for want := uint64(0); want < 6; want++ {
		id, ok := r.recv(0, 1)
		if !ok || id != want {
			t.Fatalf("got frame %d (%v), want %d", id, ok, want)
		}
		r.pass(2 * frameTime)
	}
	if st := r.c.planes[0].stats; st.Stalled < int64(7*frameTime) {
		t.Errorf("stalled %v", time.Duration(st.Stalled))
	}
}

func TestLosses(t *testing.T) {
	const dark = time.Millisecond
	half := circuit.Permutation{1, 0, circuit.Dark, circuit.Dark} // of 4 ports
	moved := circuit.Permutation{1, 0, 3, 2}
	for _, tc := range []struct {
		name string
		do   func(r *rig)
		want map[Verdict]uint32 // of port 2
	}{
		{"no circuit", func(r *rig) { r.send(0, 2, 1, frameBytes, 0) }, map[Verdict]uint32{LostDark: 1}},
		{"while the plane moves", func(r *rig) {
			r.postAll(0, 0, moved)
			r.pass(dark / 2)
			r.send(0, 2, 1, frameBytes, 0)
			r.send(0, 2, 2, frameBytes, 1)
		}, map[Verdict]uint32{LostDark: 2}},
		{"of the epoch before", func(r *rig) {
			r.postAll(0, 0, moved)
			r.pass(dark)
			r.send(0, 2, 1, frameBytes, 0)
		}, map[Verdict]uint32{LostEpoch: 1}},
		{"of an epoch to come", func(r *rig) {
			r.postAll(0, 0, moved)
			r.pass(dark)
			r.send(0, 2, 1, frameBytes, 2)
		}, map[Verdict]uint32{LostEpoch: 1}},
		{"in flight when the circuit goes", func(r *rig) {
			r.postAll(0, 0, moved)
			r.pass(dark)
			r.send(0, 2, 1, frameBytes, 1)
			r.send(0, 2, 2, frameBytes, 1)
			r.send(0, 2, 3, frameBytes, 1)
			r.pass(frameTime + frameTime/2)
			r.recv(0, 3)
			r.postAll(0, 1, half)
		}, map[Verdict]uint32{LostDark: 2}},
		{"to a port without a rank", func(r *rig) {
			r.postAll(0, 0, moved)
			r.pass(dark)
			r.s[3].Detach(true)
			r.send(0, 2, 1, frameBytes, 1)
		}, map[Verdict]uint32{LostVacant: 1}},
		{"none", func(r *rig) {
			r.postAll(0, 0, moved)
			r.pass(dark)
			r.send(0, 2, 7, frameBytes, 1)
			r.pass(frameTime)
			if id, ok := r.recv(0, 3); !ok || id != 7 {
				r.t.Error("the frame did not arrive")
			}
		}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t, Config{Ports: 4, Planes: planes(1, frameRate, dark), Initial: []circuit.Permutation{half}})
			tc.do(r)
			r.pass(10 * dark)
			r.wantLost(2, 0, tc.want)
			r.wantLost(0, 0, nil)
			if !r.s[2].view.tx[0].Empty() {
				t.Error("the ring is not empty")
			}
			for p := range 4 {
				if p != 3 || tc.want[LostVacant] == 0 {
					if id, ok := r.recv(0, p); ok {
						t.Errorf("port %d received frame %d", p, id)
					}
				}
			}
		})
	}
}

// Circuits that a switch leaves alone carry on at full rate, with the epoch that they were
// made in as well as with those since.
func TestUntouchedCircuitsFlowOn(t *testing.T) {
	r := newRig(t, Config{Ports: 4, Planes: planes(1, frameRate, 5*frameTime),
		Initial: []circuit.Permutation{{1, 0, 3, 2}}})
	sent, got := 0, 0
	r.each = func() (active bool) {
		for r.send(0, 0, uint64(sent), frameBytes, uint32(sent%2)*r.epoch(0)) {
			sent++
			active = true
		}
		for {
			if _, ok := r.recv(0, 1); !ok {
				return active
			}
			got++
			active = true
		}
	}
	began := r.now
	for e := uint32(0); e < 10; e++ {
		next := circuit.Permutation{1, 0, 2, 3}
		if e%2 != 0 {
			next = circuit.Permutation{1, 0, 3, 2}
		}
		r.post(2, 0, e, next)
		r.post(3, 0, e, next)
		r.pass(10 * frameTime)
		if r.epoch(0) != e+1 {
			t.Fatalf("epoch %d", r.epoch(0))
		}
	}
	r.wantLost(0, 0, nil)
	if want := int((r.now - began) / int64(frameTime)); got != want {
		t.Errorf("%d frames, want %d", got, want)
	}
}

// TestEpochsOfPorts: the switch accepts a frame by the epochs of its port. Moves of another holder do not count for it.
func TestEpochsOfPorts(t *testing.T) {
	dark := circuit.AllDark(4)
	r, pairs := pairRig(t)
	move := func(holder uint64, epoch uint32, to circuit.Permutation) {
		for _, p := range pairs[holder-20] {
			require.NoError(t, r.s[p].Post(0, epoch, holder, to))
		}
	}
	joined := circuit.Xor(4, 1)
	move(20, 0, joined)
	move(20, 1, dark)
	move(20, 2, joined)
	move(21, 0, joined)
	for epoch := range uint32(4) {
		for _, p := range []int{0, 2} {
			r.send(0, p, uint64(epoch), frameBytes, epoch)
		}
	}
	r.pass(10 * frameTime)
	r.wantLost(0, 0, map[Verdict]uint32{LostEpoch: 3})
	r.wantLost(2, 0, map[Verdict]uint32{LostEpoch: 3})
	for port, want := range map[int]uint64{1: 3, 3: 1} {
		if id, ok := r.recv(0, port); !ok || id != want {
			t.Errorf("port %d received %d, %v, want the frame of epoch %d", port, id, ok, want)
		}
	}
}

func TestReconfigurationTime(t *testing.T) {
	pc := planes(1, frameRate, time.Millisecond)
	pc[0].ReconfigPerPort = 100 * time.Microsecond
	for _, tc := range []struct {
		name string
		to   circuit.Permutation
		want time.Duration
	}{
		{"all circuits", circuit.Shift(4, 2), 1400 * time.Microsecond},
		{"two circuits", circuit.Permutation{2, 1, 3, 0}, 1200 * time.Microsecond},
		{"only dark", circuit.Permutation{1, 2, 3, circuit.Dark}, time.Millisecond},
		{"nothing", circuit.Shift(4, 1), 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t, Config{Ports: 4, Planes: pc, Initial: []circuit.Permutation{circuit.Shift(4, 1)}})
			r.postAll(0, 0, tc.to)
			if tc.want > 0 {
				r.pass(tc.want - 1)
				if r.epoch(0) != 0 {
					t.Fatal("switched early")
				}
				r.pass(1)
			}
			if r.epoch(0) != 1 {
				t.Fatal("not switched in time")
			}
		})
	}
}

func TestSteadyStateAllocatesNothing(t *testing.T) {
	r := shiftRig(t, 2, 64, 0)
	if n := testing.AllocsPerRun(200, func() {
		for i := range 8 {
			r.send(0, 0, uint64(i), frameBytes, 0)
		}
		r.run(r.now + 10*int64(frameTime))
		for range 8 {
			if _, ok := r.recv(0, 1); !ok {
				t.Fatal("a frame is missing")
			}
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
