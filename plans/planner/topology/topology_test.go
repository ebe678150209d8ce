package topology_test

import (
	"errors"
	"math"
	"testing"

	"lightpath/plans"
	"lightpath/plans/circuit"
	"lightpath/plans/planner/topology"
)

func must(t testing.TB, g topology.Graph, err error) topology.Graph {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// valid fails the test unless every port of g is a whole permutation.
func valid(t *testing.T, g topology.Graph) {
	t.Helper()
	for i, p := range g.Maps {
		if err := p.Validate(g.Ranks()); err != nil {
			t.Fatalf("%s: port %d %v", g.Name, i, err)
		}
		for r, s := range p {
			if s == circuit.Dark {
				t.Fatalf("%s: port %d leaves rank %d dark", g.Name, i, r)
			}
		}
	}
}

// distances sets dist[r], for each of the len(dist) ranks, to the circuits on a shortest path from src, -1 where there
// is none. It returns their sum and the longest.
func distances(g topology.Graph, src int, dist []int) (sum int64, longest int) {
	for r := range dist {
		dist[r] = -1
	}
	dist[src] = 0
	queue := make([]int, 1, len(dist))
	queue[0] = src
	for i := 0; i < len(queue); i++ {
		u := queue[i]
		sum, longest = sum+int64(dist[u]), dist[u]
		for _, p := range g.Maps {
			if v := p[u]; v != circuit.Dark && dist[v] < 0 {
				dist[v] = dist[u] + 1
				queue = append(queue, v)
			}
		}
	}
	return sum, longest
}

// diameter returns the longest of the shortest paths between ranks. It returns false if a rank does not reach another.
func diameter(g topology.Graph) (hops int, connected bool) {
	dist := make([]int, g.Ranks())
	for src := range dist {
		_, far := distances(g, src, dist)
		hops = max(hops, far)
		for _, d := range dist {
			if d < 0 {
				return 0, false
			}
		}
	}
	return hops, true
}

func TestDiameters(t *testing.T) {
	torus := func(dims ...int) topology.Graph { g, err := topology.Torus(dims, nil); return must(t, g, err) }
	ring := func(n, s int) topology.Graph { g, err := topology.Circulant(n, s); return must(t, g, err) }
	for _, c := range []struct {
		g         topology.Graph
		diameter  int
		connected bool
	}{
		{ring(8, 1), 7, true},
		{ring(8, 3), 7, true},
		{ring(8, 1).Paired(), 4, true},
		{ring(9, 2).Paired(), 4, true},
		{ring(8, 2).Paired(), 0, false},
		{ring(8, 1).Halved(), 4, true},
		{ring(7, 1).Halved(), 6, true}, // a path
		{torus(4, 4), 6, true},
		{torus(4, 4).Paired(), 4, true},
		{torus(4, 4).Halved(), 4, true},
		{torus(3, 4, 5).Paired(), 5, true},
		{torus(2, 2, 2), 3, true},
		{torus(4, 6).Paired().Filled(6), 5, true},
	} {
		if d, ok := diameter(c.g); d != c.diameter || ok != c.connected {
			t.Errorf("%s of %d ranks: diameter %d %v, want %d %v", c.g.Name, c.g.Ranks(), d, ok, c.diameter, c.connected)
		}
	}
}

func TestTorusCoordinates(t *testing.T) {
	g, err := topology.Torus([]int{3, 4}, []int{1, 2})
	must(t, g, err)
	for r := range 12 {
		x, y := r%3, r/3
		if want := (x+1)%3 + 3*y; g.Maps[0][r] != want {
			t.Errorf("port 0 of (%d,%d) leads to %d, want %d", x, y, g.Maps[0][r], want)
		}
		if want := x + 3*((y+2)%4); g.Maps[1][r] != want {
			t.Errorf("port 1 of (%d,%d) leads to %d, want %d", x, y, g.Maps[1][r], want)
		}
	}
}

// TestKautz holds the circuits against the definition, loops aside, and the diameter
// against the bound of Imase and Itoh.
func TestKautz(t *testing.T) {
	for _, n := range []int{4, 5, 6, 8, 9, 12, 16, 27, 31, 64, 100} {
		for ports := 1; ports <= 6 && ports < n; ports++ {
			g, err := topology.Kautz(n, ports)
			must(t, g, err)
			valid(t, g)
			if g.Ports() != ports {
				t.Fatalf("kautz %d,%d has %d ports", n, ports, g.Ports())
			}
			for r := range n {
				for a := 1; a <= ports; a++ {
					want := ((-ports*r-a)%n + n) % n
					found := want == r
					for _, p := range g.Maps {
						found = found || p[r] == want
					}
					if !found {
						t.Fatalf("kautz %d,%d lacks %d -> %d", n, ports, r, want)
					}
				}
			}
			if ports < 2 {
				continue
			}
			limit := int(math.Ceil(math.Log(float64(n))/math.Log(float64(ports)) - 1e-9))
			if d, ok := diameter(g); !ok || d > limit {
				t.Errorf("kautz %d,%d: diameter %d %v, at most %d", n, ports, d, ok, limit)
			}
		}
	}
}

func TestHalvedHoldsEveryEdge(t *testing.T) {
	for _, n := range []int{2, 3, 4, 6, 7, 12, 15, 16} {
		for s := 1; s < n; s++ {
			g, err := topology.Circulant(n, s)
			must(t, g, err)
			h := g.Halved()
			missing := 0
			for i, p := range h.Maps {
				if p.Validate(n) != nil || !p.Involution() {
					t.Fatalf("n=%d s=%d: port %d is %v", n, s, i, p)
				}
			}
			for r := range n {
				to := (r + s) % n
				if h.Maps[0][r] != to && h.Maps[1][r] != to {
					missing++
				}
			}
			// One circuit for each cycle of odd length n/g.
			cycles := 0
			for c := n; c > 0; c-- {
				if n%c == 0 && s%c == 0 {
					cycles = c
					break
				}
			}
			want := 0
			if n/cycles%2 == 1 {
				want = cycles
			}
			if missing != want {
				t.Errorf("n=%d s=%d: %d circuits are missing, want %d", n, s, missing, want)
			}
		}
	}
}

func TestExpander(t *testing.T) {
	for _, n := range []int{2, 3, 8, 33, 64, 256} {
		for _, ports := range []int{2, 4, 6} {
			g, err := topology.Expander(n, ports, 7)
			must(t, g, err)
			valid(t, g)
			again, _ := topology.Expander(n, ports, 7)
			for i := range g.Maps {
				if !g.Maps[i].Equal(again.Maps[i]) {
					t.Fatal("the same seed gives another graph")
				}
			}
			if _, ok := diameter(g); !ok {
				t.Errorf("n=%d ports=%d: not connected", n, ports)
			}
			// A random graph comes close to the least possible, 2 sqrt(d-1)/d of an
			// undirected and 1/sqrt(d) of a directed one.
			if s := g.Expansion(); n >= 64 && s > 1.15*(2*math.Sqrt(float64(ports-1))/float64(ports)) {
				t.Errorf("n=%d ports=%d: second singular value %v", n, ports, s)
			}
		}
	}
	ring, err := topology.Circulant(64, 1)
	if s := must(t, ring, err).Expansion(); math.Abs(s-1) > 1e-6 {
		t.Errorf("a ring expands by %v", s)
	}
}

// TestBestCirculant compares with the least total distance over all pairs of shifts.
// TestBestCirculantEnds: the search for better shifts ends after some work, and when it is told to.
func TestBestCirculantEnds(t *testing.T) {
	for last, most := range map[bool]int{true: 1, false: 1 << 26 / (512 * 64)} {
		looks := 0
		g, err := topology.BestCirculant(512, 64, func() bool { looks++; return last })
		if err != nil || g.Ports() != 64 || looks < 1 || looks > most {
			t.Errorf("%v, %d ports, %d looks, want at most %d", err, g.Ports(), looks, most)
		}
	}
}

func TestBestCirculant(t *testing.T) {
	total := func(g topology.Graph) int64 {
		sum, _ := distances(g, 0, make([]int, g.Ranks()))
		return sum
	}
	for _, n := range []int{2, 3, 5, 8, 13, 16, 24} {
		g, err := topology.BestCirculant(n, 2, nil)
		got := total(must(t, g, err))
		least := int64(math.MaxInt64)
		for b := 1; b < n; b++ {
			c, err := topology.Circulant(n, 1, b)
			least = min(least, total(must(t, c, err)))
		}
		if _, ok := diameter(g); !ok || got > least {
			t.Errorf("n=%d: %s has total distance %d, 1 and another shift %d", n, g.Name, got, least)
		}
	}
	if g, err := topology.BestCirculant(1000, 3, nil); err != nil || g.Ports() != 3 {
		t.Error(err)
	} else if d, ok := diameter(g); !ok || d > 30 {
		t.Errorf("diameter %d %v", d, ok)
	}
}

func TestFactorizations(t *testing.T) {
	for _, c := range []struct{ n, count, want int }{
		{64, 1, 1}, {64, 2, 5}, {64, 3, 10}, {64, 6, 1}, {64, 7, 0}, {12, 2, 4}, {12, 3, 3}, {7, 2, 0}, {1, 1, 0}, {8, 0, 0},
	} {
		all := topology.Factorizations(c.n, c.count)
		if len(all) != c.want {
			t.Errorf("%d in %d factors: %v", c.n, c.count, all)
		}
		for _, f := range all {
			product := 1
			for _, a := range f {
				product *= a
			}
			if product != c.n || len(f) != c.count {
				t.Errorf("%d in %d factors: %v", c.n, c.count, f)
			}
		}
	}
}

// TestCandidates checks that every candidate is something that the planes can hold.
func TestCandidates(t *testing.T) {
	for _, n := range []int{1, 2, 3, 8, 12, 13, 64} {
		for ports := 0; ports <= 6; ports++ {
			for _, kind := range []plans.CircuitKind{plans.Simplex, plans.Duplex, plans.Interleaved} {
				connected := false
				for _, g := range topology.Candidates(n, ports, kind, nil) {
					if g.Ranks() != n || g.Ports() > ports || g.Name == "" {
						t.Fatalf("%d ranks, %d ports: %s has %d and %d", n, ports, g.Name, g.Ranks(), g.Ports())
					}
					for i, p := range g.Maps {
						if err := p.Validate(n); err != nil {
							t.Fatalf("%s: port %d %v", g.Name, i, err)
						}
						if kind == plans.Duplex && !p.Involution() {
							t.Fatalf("%s: port %d is no involution", g.Name, i)
						}
						if kind == plans.Interleaved && !p.Inverse().Equal(g.Maps[i^1]) {
							t.Fatalf("%s: ports %d and %d are not inverse", g.Name, i, i^1)
						}
					}
					_, ok := diameter(g)
					connected = connected || ok
				}
				needs := 1
				if kind == plans.Interleaved || kind == plans.Duplex && n > 2 {
					needs = 2
				}
				if want := n > 1 && ports >= needs; connected != want {
					t.Errorf("%d ranks, %d %s ports: a connected candidate %v, want %v", n, ports, kind, connected, want)
				}
			}
		}
	}
}

func TestShapeErrors(t *testing.T) {
	for name, err := range map[string]error{
		"no ranks":     second(topology.Circulant(0, 1)),
		"zero shift":   second(topology.Circulant(8, 8)),
		"no shift":     second(topology.Circulant(8)),
		"no dimension": second(topology.Torus(nil, nil)),
		"one":          second(topology.Torus([]int{1, 4}, nil)),
		"huge":         second(topology.Torus([]int{1 << 15, 1 << 15}, nil)),
		"strides":      second(topology.Torus([]int{2, 4}, []int{1})),
		"whole stride": second(topology.Torus([]int{2, 4}, []int{1, 4})),
		"kautz":        second(topology.Kautz(4, 4)),
		"kautz 0":      second(topology.Kautz(4, 0)),
		"expander":     second(topology.Expander(1, 2, 0)),
		"matchings":    second(topology.MatchingExpander(1, 2, 0)),
		"best":         second(topology.BestCirculant(4, 0, nil)),
	} {
		if !errors.Is(err, topology.ErrShape) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func second(_ topology.Graph, err error) error { return err }

// TestCube checks that dimensions of 2 take one port where there is none to spare.
func TestCube(t *testing.T) {
	for _, kind := range []plans.CircuitKind{plans.Simplex, plans.Duplex} {
		found := false
		for _, g := range topology.Candidates(8, 3, kind, nil) {
			d, _ := diameter(g)
			found = found || d == 3 && g.Ports() == 3 && g.Maps[0].Involution() && g.Maps[1].Involution() &&
				g.Maps[2].Involution()
		}
		if !found {
			t.Errorf("%s planes: no cube among the candidates", kind)
		}
	}
}
