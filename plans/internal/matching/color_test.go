package matching

import (
	"math/rand/v2"
	"testing"
)

// checkColoring fails unless color divides the edges into degree matchings and degree is
// the largest there is.
func checkColoring(t *testing.T, n int, edges [][2]int, color []int, degree int) {
	t.Helper()
	deg := make([]int, 2*n)
	largest := 0
	used := map[[2]int]int{} // {vertex, colour} -> edge
	for i, e := range edges {
		if color[i] < 0 || color[i] >= degree {
			t.Fatalf("edge %d has colour %d of %d", i, color[i], degree)
		}
		for _, v := range []int{e[0], n + e[1]} {
			deg[v]++
			largest = max(largest, deg[v])
			if j, ok := used[[2]int{v, color[i]}]; ok {
				t.Fatalf("edges %d %v and %d %v share an end and colour %d", j, edges[j], i, e, color[i])
			}
			used[[2]int{v, color[i]}] = i
		}
	}
	if len(color) != len(edges) || degree != largest {
		t.Fatalf("%d colours for %d edges, degree %d, want %d", len(color), len(edges), degree, largest)
	}
}

func TestColor(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 1))
	tests := map[string]struct {
		n     int
		edges func(n int) [][2]int
	}{
		"none":     {3, func(int) [][2]int { return nil }},
		"one":      {1, func(int) [][2]int { return [][2]int{{0, 0}} }},
		"parallel": {2, func(int) [][2]int { return [][2]int{{0, 1}, {0, 1}, {0, 1}, {1, 0}} }},
		"star": {9, func(n int) (e [][2]int) {
			for r := range n {
				e = append(e, [2]int{0, r})
			}
			return e
		}},
		"complete": {17, func(n int) (e [][2]int) {
			for s := range n {
				for r := range n {
					e = append(e, [2]int{s, r})
				}
			}
			return e
		}},
	}
	for name, c := range tests {
		t.Run(name, func(t *testing.T) {
			edges := c.edges(c.n)
			color, degree := Color(c.n, edges)
			checkColoring(t, c.n, edges, color, degree)
		})
	}
	for range 300 {
		n := 1 + rng.IntN(40)
		edges := make([][2]int, rng.IntN(12*n))
		for i := range edges {
			edges[i] = [2]int{rng.IntN(1 + rng.IntN(n)), rng.IntN(n)} // senders are skewed
		}
		color, degree := Color(n, edges)
		checkColoring(t, n, edges, color, degree)
		again, _ := Color(n, edges)
		for i := range again {
			if again[i] != color[i] {
				t.Fatal("two runs differ")
			}
		}
	}
}

func BenchmarkColorComplete256(b *testing.B) {
	var edges [][2]int
	for s := range 256 {
		for r := range 256 {
			edges = append(edges, [2]int{s, r})
		}
	}
	for b.Loop() {
		Color(256, edges)
	}
}
