package matching

import (
	"math"
	"math/rand/v2"
	"testing"
)

// graph returns random adjacency with about the given number of edges for each sender.
func graph(rng *rand.Rand, n int, degree float64) (start, to []int32) {
	start = []int32{0}
	for range n {
		for v := range n {
			if rng.Float64()*float64(n) < degree {
				to = append(to, int32(v))
			}
		}
		start = append(start, int32(len(to)))
	}
	return start, to
}

// heaviest is the largest weight of a matching of senders u.. with the free receivers.
func heaviest(u, n int, start, to []int32, weight []float64, taken uint) float64 {
	if u == n {
		return 0
	}
	best := heaviest(u+1, n, start, to, weight, taken)
	for e := start[u]; e < start[u+1]; e++ {
		if taken>>to[e]&1 == 0 {
			best = max(best, weight[e]+heaviest(u+1, n, start, to, weight, taken|1<<to[e]))
		}
	}
	return best
}

// value checks that the matching is one and that its prices prove it optimal, and returns its
// weight.
func value(t *testing.T, w *Weighted) float64 {
	t.Helper()
	sum, bound := 0.0, 0.0
	taken := map[int32]bool{}
	for u := range w.n {
		e := w.Edge(u)
		bound += w.price[0][u] + w.price[1][u]
		if e == None {
			continue
		}
		v := w.ends[1][e]
		if taken[v] || int(w.ends[0][e]) != u || w.mate[1][v] != int32(e) {
			t.Fatalf("edge %d of sender %d is no part of a matching", e, u)
		}
		taken[v] = true
		sum += w.weight[e]
	}
	for e, x := range w.weight {
		if w.price[0][w.ends[0][e]]+w.price[1][w.ends[1][e]] < x-1e-9*(1+bound) {
			t.Fatalf("edge %d is underpriced", e)
		}
	}
	if math.Abs(sum-bound) > 1e-9*(1+bound) {
		t.Fatalf("matching weighs %v, its prices %v", sum, bound)
	}
	return sum
}

func TestWeighted(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	var w Weighted
	for range 300 {
		n := 1 + rng.IntN(7)
		start, to := graph(rng, n, 1+rng.Float64()*float64(n))
		w.Reset(n, start, to)
		weight := make([]float64, len(to))
		for range 4 { // later calls begin with the prices of the one before
			for e := range weight {
				weight[e] = float64(rng.IntN(8)) * [2]float64{1, rng.Float64()}[rng.IntN(2)]
			}
			w.Solve(weight)
			if got, want := value(t, &w), heaviest(0, n, start, to, weight, 0); math.Abs(got-want) > 1e-9 {
				t.Fatalf("n=%d: matching weighs %v, the best %v", n, got, want)
			}
		}
	}
	for range 10 {
		n := 50 + rng.IntN(100)
		start, to := graph(rng, n, 3+rng.Float64()*10)
		w.Reset(n, start, to)
		weight := make([]float64, len(to))
		for range 5 {
			for e := range weight {
				weight[e] = rng.Float64()
			}
			w.Solve(weight)
			value(t, &w)
		}
	}
}

func BenchmarkWeighted(b *testing.B) {
	for name, degree := range map[string]float64{"sparse": 16, "dense": 100} {
		b.Run(name, func(b *testing.B) {
			rng := rand.New(rand.NewPCG(3, 4))
			start, to := graph(rng, 100, degree)
			weight := make([]float64, len(to))
			for e := range weight {
				weight[e] = rng.Float64()
			}
			var w Weighted
			for b.Loop() {
				w.Reset(100, start, to)
				w.Solve(weight)
			}
		})
	}
}
