package shares

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"lightpath/shim/control"
)

// randomPaces returns paces of planes. Some are thousands of times as large as others.
func randomPaces(rng *rand.Rand, planes int) []uint64 {
	pace := make([]uint64, planes)
	for j := range pace {
		pace[j] = 1 + rng.Uint64N(1<<rng.IntN(21))
	}
	return pace
}

// randomShares returns random shares that ranks accept.
func randomShares(rng *rand.Rand, planes int) []int {
	shares := make([]int, planes)
	for j := range shares {
		shares[j] = 1
	}
	for range ShareTotal - planes {
		shares[rng.IntN(planes)]++
	}
	return shares
}

// TestIdealShares checks, for any paces, that shares add up, that none is too small and that no others would be
// faster.
func TestIdealShares(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 20000 {
		planes := 1 + rng.IntN(16)
		pace := randomPaces(rng, planes)
		ideal := idealShares(make([]int, planes), pace)
		least := ShareTotal / (leastShare * planes)
		if !sharesFit(ideal, planes) || slices.Min(ideal) < least {
			t.Fatalf("paces %v: shares %v", pace, ideal)
		}
		// Moving a unit from the slowest plane to another must not pay, except for the rounding rest that the fastest
		// plane got.
		last, at := 0.0, 0
		for j := range ideal {
			if end := float64(ideal[j]-planes) / float64(pace[j]); end > last {
				last, at = end, j
			}
		}
		for j := range ideal {
			if ideal[at] > least && j != at && float64(ideal[j]+1)/float64(pace[j]) < last {
				t.Fatalf("paces %v: shares %v: plane %d could have more of plane %d", pace, ideal, j, at)
			}
		}
	}
}

// TestNextShares checks that constant paces lead from any shares to fitting ones in a few steps. No share grows far
// beyond twice its size at once.
func TestNextShares(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 2000 {
		planes := 2 + rng.IntN(15)
		pace, ideal := randomPaces(rng, planes), make([]int, planes)
		var now []int
		if rng.IntN(4) > 0 {
			now = randomShares(rng, planes)
		}
		steps := 0
		for ; misfit(now, ideal, pace); steps++ {
			next := nextShares(now, pace)
			if !sharesFit(next, planes) || steps > 40 {
				t.Fatalf("paces %v, shares %v after %d steps: next %v, ideal %v", pace, now, steps, next, ideal)
			}
			now = next
		}
	}
	if got := nextShares([]int{16, 1008}, []uint64{1 << 19, 1 << 19}); got[0] > 40 {
		t.Errorf("a plane that has recovered goes from 16 to %d of %d at once", got[0], ShareTotal)
	}
}

// TestGrownShares checks that successful trials end with even shares, whatever they begin with.
func TestGrownShares(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for range 2000 {
		planes := 2 + rng.IntN(15)
		first := idealShares(make([]int, planes), randomPaces(rng, planes))
		now, steps := first, 0
		for ; !evenShares(now); steps++ {
			if now = grownShares(now); !sharesFit(now, planes) || steps > 40 {
				t.Fatalf("%v has become %v after %d trials", first, now, steps)
			}
		}
	}
}

func TestMisfit(t *testing.T) {
	for _, k := range []struct {
		shares []int
		pace   []uint64
		want   bool
	}{
		{nil, []uint64{100, 100}, false},
		{nil, []uint64{110, 100, 105, 100}, false},
		{nil, []uint64{300, 100}, true},
		{[]int{768, 256}, []uint64{300, 100}, false},
		{[]int{768, 256}, []uint64{100, 100}, true},
		{[]int{1008, 16}, []uint64{1 << 20, 1}, false}, // it cannot have less
	} {
		if got := misfit(k.shares, make([]int, len(k.pace)), k.pace); got != k.want {
			t.Errorf("shares %v at paces %v: misfit %v", k.shares, k.pace, got)
		}
	}
}

func TestSlowest(t *testing.T) {
	if got := slowest([][]uint64{{0, 0}, {0, 0}}, 2); got != nil {
		t.Errorf("of nothing: %v", got)
	}
	// One rank measures plane 1 as slow, another plane 0. The third has measured nothing.
	if got := slowest([][]uint64{{700, 300}, {0, 0}, {200, 800}}, 2); !slices.Equal(got, []uint64{200, 300}) {
		t.Error(got)
	}
}

// TestWindow checks that a window ends after enough operations and time, with paces in bytes per time. One operation
// that is late on one plane changes nothing.
func TestWindow(t *testing.T) {
	w, now := newWindow(2), int64(1)
	ends := 0
	for i := range 300 {
		now += int64(time.Millisecond)
		if !w.add([]int64{3000, 1000}, func(plane int) int64 {
			ns := int64(time.Millisecond) << plane
			if i == 30 && plane == 1 {
				ns *= 100
			}
			return ns
		}, now) {
			continue
		}
		pace := w.end()
		ends++
		if ratio := float64(pace[0]) / float64(pace[1]); ratio < 5.9 || ratio > 6.1 {
			t.Fatalf("paces %v", pace)
		}
	}
	if ends != 1 {
		t.Errorf("%d windows of %d x %v in 300 ms", ends, parts, paceTime)
	}
	w.clear()
	for part := 1; part <= parts; part++ {
		early := w.add([]int64{1, 1}, func(int) int64 { return int64(longTime) - 1 }, now)
		if ended := w.add([]int64{1, 1}, func(int) int64 { return 0 }, now+1); early || ended != (part == parts) {
			t.Errorf("part %d of long operations: the window has ended: %v, then %v", part, early, ended)
		}
	}
	took := func(plane int) int64 { return int64(time.Millisecond) << plane }
	add, misfits := func() {
		now += int64(paceTime)
		if w.add([]int64{1000, 1000}, took, now) {
			misfit(nil, w.ideal, w.end())
		}
	}, testing.AllocsPerRun(100, func() { now++ })
	if n := testing.AllocsPerRun(100, add); n != misfits {
		t.Errorf("%v allocations", n)
	}
}

// FuzzShares checks that a rank accepts only valid shares, whatever a message contains.
func FuzzShares(f *testing.F) {
	f.Add(uint64(SharesPropose), AppendWords(nil, 7, 1000, 24))
	f.Add(uint64(SharesPropose), AppendWords(nil, 7, 1<<63, 1<<63))
	f.Add(uint64(sharesConclude), AppendWords(nil, 1))
	f.Fuzz(func(t *testing.T, what uint64, body []byte) {
		p := newShares(2)
		p.reached = 5
		answer := p.Answer(&control.Message{Kind: control.MsgShares, Seq: 1, Arg: what, Body: body}, 2)
		if n := p.due(1 << 62); n != nil && (!sharesFit(n.units, 2) || n.From <= 5) {
			t.Errorf("accepted %v from %d on", n.units, n.From)
		}
		if (what == sharesAsk || what == SharesPropose) != (answer != nil) {
			t.Errorf("answer %v", answer)
		}
	})
}
