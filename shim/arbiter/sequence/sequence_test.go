package sequence

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// play adds the operations of a trace and returns the numbers of the correct, the wrong and the missing predictions.
func play(l *Learner, trace []uint64) (hits, misses, none int) {
	for _, key := range trace {
		switch at, c := l.Next(); {
		case c == nil:
			none++
		case c.Keys[at] == key:
			hits++
		default:
			misses++
		}
		l.Add(key, 0)
	}
	return hits, misses, none
}

// iterations returns a trace of so many equal iterations.
func iterations(n int, iteration ...uint64) (trace []uint64) { return slices.Repeat(iteration, n) }

// buckets returns n buckets of one size and a smaller last one.
func buckets(n int) []uint64 { return append(iterations(n, 7), 8) }

func TestLearner(t *testing.T) {
	never := make([]uint64, 20000)
	for i := range never {
		never[i] = rand.Uint64()
	}
	validated := []uint64{}
	for range 10 {
		validated = append(validated, iterations(50, 1, 2, 3, 3, 4)...)
		validated = append(validated, 90, 91, 91, 92)
	}
	for name, k := range map[string]struct {
		trace        []uint64
		misses, none int // at most
	}{
		"one call":              {iterations(1000, 5), 0, 3},
		"no call alone":         {iterations(1000, 1, 1, 2, 2), 0, 12},
		"after a warm-up":       {append([]uint64{9, 8, 7}, iterations(1000, 1, 2, 3, 4)...), 0, 15},
		"buckets":               {iterations(100, buckets(100)...), 3, 300},
		"nested":                {iterations(30, append(iterations(10, buckets(5)...), 9)...), 12, 200},
		"never":                 {never, 0, len(never)},
		"validation":            {validated, 10, 15 + 10*(4+5)},
		"bucket sizes change":   {slices.Concat(iterations(20, 1, 2, 3), iterations(20, 4, 5, 6, 6)), 1, 9 + 12},
		"nearly one call":       {iterations(40, append(iterations(30, 1), 2)...), 3, 100},
		"the longest period":    {iterations(6, count(window/4)...), 0, window},
		"too long to be learnt": {iterations(6, count(window)...), 0, 6 * window},
	} {
		t.Run(name, func(t *testing.T) {
			l := New(3)
			hits, misses, none := play(l, k.trace)
			if misses > k.misses || none > k.none {
				t.Errorf("of %d operations %d are predicted, %d wrongly, %d not; want at most %d and %d", len(k.trace), hits,
					misses, none, k.misses, k.none)
			}
			if len(l.keys) >= 2*window || len(l.gaps) != len(l.keys) {
				t.Errorf("it remembers %d operations and %d gaps", len(l.keys), len(l.gaps))
			}
		})
	}
}

// count returns the keys 1 to n.
func count(n int) (keys []uint64) {
	for i := range n {
		keys = append(keys, uint64(i+1)*0x517cc1b727220a95)
	}
	return keys
}

// TestSmallest checks the learner against a slow search: each lock is on the smallest period that the operations have
// repeated.
func TestSmallest(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		var trace []uint64
		for range 4 {
			iteration := make([]uint64, 1+r.IntN(6))
			for i := range iteration {
				iteration[i] = 1 + r.Uint64N(3)
			}
			trace = append(trace, iterations(1+r.IntN(7), iteration...)...)
		}
		l := New(3)
		for i, key := range trace {
			was := l.cycle
			change := l.Add(key, 0)
			now := trace[:i+1]
			if c := l.cycle; c != was {
				if p := slowPeriod(now); p != len(c.Keys) || !slices.Equal(c.Keys, now[len(now)-p:]) {
					t.Fatalf("seed %d: after %v the cycle is %v, the period %d", seed, now, c.Keys, p)
				}
			}
			if _, c := l.Next(); c == nil && slowPeriod(now) != 0 {
				t.Fatalf("seed %d: after %v there is no cycle (%d), the period is %d", seed, now, change, slowPeriod(now))
			}
		}
	}
}

// slowPeriod returns the smallest period that the end of a trace has three times, 0 if there is none.
func slowPeriod(trace []uint64) int {
	for p := 1; 3*p <= len(trace); p++ {
		end := trace[len(trace)-3*p:]
		if slices.Equal(end[:2*p], end[p:]) {
			return p
		}
	}
	return 0
}

// TestAgain checks that a cycle comes back in force after one round, at the right position.
func TestAgain(t *testing.T) {
	l := New(3)
	play(l, iterations(5, 1, 2, 3))
	_, first := l.Next()
	if change := l.Add(9, 0); change != Lost {
		t.Fatal("change", change)
	}
	for i, key := range []uint64{3, 1, 2} {
		want := Same
		if i == 2 {
			want = Locked
		}
		if change := l.Add(key, 0); change != want {
			t.Fatalf("operation %d: change %d", i, change)
		}
	}
	if at, c := l.Next(); c != first || c.Keys[at] != 3 {
		t.Errorf("position %d of %+v", at, c)
	}
}

// TestGaps checks that a cycle has the shortest gap before each operation.
func TestGaps(t *testing.T) {
	l := New(3)
	for i, gap := range []time.Duration{-1, 50, 30, 20, 40, 60} {
		l.Add(uint64(i%2), gap)
	}
	at, c := l.Next()
	if c == nil || !slices.Equal(c.Gaps, []time.Duration{30, 20}) || at != 0 {
		t.Errorf("position %d of %+v", at, c)
	}
}

// TestGapsOfPairs: where tickets went out ahead, a gap is the shortest known one between two such operations.
func TestGapsOfPairs(t *testing.T) {
	l := New(2)
	for _, o := range []struct {
		key uint64
		gap time.Duration
	}{{1, 70}, {1, 50}, {1, 60}, {1, -1}, {2, 20}, {1, -1}, {1, -1}, {1, -1}, {1, -1}, {2, 30}} {
		l.Add(o.key, o.gap)
	}
	at, c := l.Next()
	if c == nil || !slices.Equal(c.Keys, []uint64{1, 1, 1, 1, 2}) ||
		!slices.Equal(c.Gaps, []time.Duration{70, 50, 60, 50, 20}) {
		t.Errorf("position %d of %+v", at, c)
	}
}

func BenchmarkNeverRepeats(b *testing.B) {
	l := New(3)
	for i := 0; b.Loop(); i++ {
		l.Add(uint64(i%2), -1)
		l.Add(rand.Uint64(), -1)
	}
}
