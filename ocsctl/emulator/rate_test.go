package emulator

import (
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"lightpath/internal/require"
	"lightpath/internal/shmring"
	"lightpath/plans/circuit"
)

// pump is a rank that keeps its transmit rings full and its receive rings empty until it
// has sent and received want frames per plane.
func pump(c *Client, bell *shmring.Doorbell, want, data int) time.Time {
	sent := make([]int, len(c.Ports()))
	for rest := 2 * want * len(sent); ; { // to send and to receive
		armed := bell.Arm()
		moved := false
		for i, m := range c.Ports() {
			fresh := false
			for sent[i] < want && m.TX.Reserve() != nil {
				m.TX.Commit(LabelSize+data, 0)
				sent[i]++
				rest--
				fresh = true
			}
			for b, _, _ := m.RX.Peek(); b != nil; b, _, _ = m.RX.Peek() {
				m.RX.Release()
				fresh = true
				rest--
				moved = true
			}
			if fresh {
				m.Kick()
				moved = true
			}
		}
		if rest == 0 {
			return time.Now()
		}
		for p := range sent {
			if _, err := c.Poll(p); err != nil {
				panic(err)
			}
		}
		if !moved {
			bell.Wait(armed, 100*time.Millisecond)
		}
	}
}

// pumpAll runs a switch of 8 ports and returns how long moving frames took and its stats.
func pumpAll(t testing.TB, nPlanes int, rate float64, frames, data int) (time.Duration, []PlaneStats) {
	initial := make([]circuit.Permutation, nPlanes)
	for i := range initial {
		initial[i] = circuit.Shift(8, 1+i)
	}
	s, err := Start(Config{Socket: t.TempDir() + "/ocs", Ports: 8, Planes: planes(nPlanes, rate, 0), Initial: initial})
	require.NoError(t, err)
	defer shut(t, s)
	var wg sync.WaitGroup
	var mu sync.Mutex
	var cs []*Client
	for p := range 8 {
		cs = append(cs, dial(t, s, p))
	}
	began, last := time.Now(), time.Time{}
	for _, c := range cs {
		wg.Go(func() {
			end := pump(c, c.Ports()[0].Bell, frames, data)
			mu.Lock()
			defer mu.Unlock()
			if end.After(last) {
				last = end
			}
		})
	}
	wg.Wait()
	st, err := s.Stats()
	require.NoError(t, err)
	return last.Sub(began), st
}

// In real time, nothing is faster than its circuit. How much slower it is is the host's
// business, and only reported.
func TestRealTimeRate(t *testing.T) {
	const frames, data, rate = 100, 8192, 200 * mbit
	took, st := pumpAll(t, 2, rate, frames, data)
	ideal := time.Duration(frames * data * 8 / rate * 1e9)
	if took < ideal {
		t.Errorf("%d frames in %v, the rate allows %v", frames, took, ideal)
	}
	for p, s := range st {
		if s.Frames != 8*frames || s.Bytes != 8*frames*data {
			t.Errorf("plane %d: %+v", p, s)
		}
	}
	t.Logf("%v, ideally %v; stats %+v", took, ideal, st)
}

func BenchmarkCircuits(b *testing.B) {
	for _, rate := range []float64{100 * mbit, 400 * mbit, 1000 * mbit, 100e9} {
		b.Run(fmt.Sprintf("%.0fMbps", rate/1e6), func(b *testing.B) {
			runtime.GC()
			frames := max(b.N, 10)
			took, st := pumpAll(b, 2, rate, frames, 8192)
			ideal := float64(frames) * 8192 * 8 / rate
			b.ReportMetric(100*(took.Seconds()/ideal-1), "%late")
			b.ReportMetric(float64(16*frames*8192)/took.Seconds()/1e6, "MB/s")
			b.ReportMetric(float64(max(st[0].Late, st[1].Late))/1e6, "ms-max-late")
			b.SetBytes(16 * 8192)
		})
	}
}

// No frame is forgotten when the switch goes to sleep while it comes: two ranks hand one
// frame to and fro. A missed wake-up costs a second each, which the deadline would show.
func TestPingPong(t *testing.T) {
	const rounds = 2000
	s := start(t, Config{Ports: 2, Planes: planes(1, 100e9, 0), Initial: []circuit.Permutation{circuit.Shift(2, 1)}})
	cs := dialAll(t, s)
	deadline := time.Now().Add(60 * time.Second)
	turn := func(me int) int {
		m := cs[me].Ports()[0]
		for n := range rounds {
			if n > 0 || me == 1 {
				for b, _, _ := m.RX.Peek(); b == nil; b, _, _ = m.RX.Peek() {
					if armed := m.Bell.Arm(); m.RX.Empty() {
						m.Bell.Wait(armed, 100*time.Millisecond)
					}
					if time.Now().After(deadline) {
						return n
					}
				}
				m.RX.Release()
			}
			m.TX.Reserve()
			m.TX.Commit(LabelSize, 0)
			m.Kick()
		}
		return rounds
	}
	other := make(chan int)
	go func() { other <- turn(1) }()
	if a, b := turn(0), <-other; a < rounds || b < rounds {
		t.Errorf("%d and %d of %d rounds", a, b, rounds)
	}
}
