package flow_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"gonum.org/v1/gonum/mat"
	gonum "gonum.org/v1/gonum/optimize/convex/lp"

	"lightpath/internal/require"
	"lightpath/plans"
	"lightpath/plans/circuit"
	"lightpath/plans/planner/internal/flow"
	"lightpath/plans/planner/topology"
)

func allToAll(n int) [][2]int {
	var flows [][2]int
	for s := range n {
		for d := range n {
			if s != d {
				flows = append(flows, [2]int{s, d})
			}
		}
	}
	return flows
}

func flowsOf(p circuit.Permutation) [][2]int {
	s := plans.Step{Bytes: 1, To: p}
	return s.FlowList()
}

func graph(t testing.TB, g topology.Graph, err error) topology.Graph {
	t.Helper()
	require.NoError(t, err)
	return g
}

// verify fails the test unless r divides every flow over paths that are there, keeps to
// limit hops, and attains exactly the theta that it states.
func verify(t testing.TB, maps []circuit.Permutation, flows [][2]int, limit int, r *flow.Result) {
	t.Helper()
	sent := make(map[[2]int]float64)
	load := make(map[[2]int]float64) // by {plane, transmitter}
	most, hops := 0.0, 0
	for _, route := range r.Routes {
		at := route.Flow[0]
		for _, hop := range route.Path {
			if maps[hop[0]][at] != hop[1] {
				t.Fatalf("route %v: plane %d leads from %d to %d", route, hop[0], at, maps[hop[0]][at])
			}
			key := [2]int{hop[0], at}
			load[key] += route.Bytes
			most = math.Max(most, load[key])
			at = hop[1]
		}
		if at != route.Flow[1] || !(route.Bytes > 0) {
			t.Fatalf("route %v ends at %d", route, at)
		}
		sent[route.Flow] += route.Bytes
		hops = max(hops, len(route.Path))
	}
	if len(sent) != len(flows) {
		t.Fatalf("%d of %d flows are sent", len(sent), len(flows))
	}
	for _, f := range flows {
		if math.Abs(sent[f]-1) > 1e-12 {
			t.Fatalf("flow %v: %v is sent", f, sent[f])
		}
	}
	if math.Abs(r.Theta*most-1) > 1e-12 {
		t.Fatalf("theta %v, but a circuit carries %v", r.Theta, most)
	}
	if r.Hops != hops || limit > 0 && hops > limit {
		t.Fatalf("%d hops stated, %d used, %d allowed", r.Hops, hops, limit)
	}
	if r.Upper < r.Theta {
		t.Fatalf("theta %v above its bound %v", r.Theta, r.Upper)
	}
}

// reference solves the same problem over all simple paths with gonum's simplex. Parallel
// circuits are apart in it, and it knows of no symmetry.
func reference(t testing.TB, maps []circuit.Permutation, flows [][2]int, limit int) (theta float64, reachable bool) {
	t.Helper()
	n := len(maps[0])
	var paths [][][2]int // circuits {plane, transmitter}
	var owner []int
	for f, fl := range flows {
		before := len(paths)
		seen := make([]bool, n)
		var walk func(at int, path [][2]int)
		walk = func(at int, path [][2]int) {
			if at == fl[1] {
				paths, owner = append(paths, append([][2]int(nil), path...)), append(owner, f)
				return
			}
			if limit > 0 && len(path) == limit {
				return
			}
			seen[at] = true
			for j, p := range maps {
				if to := p[at]; to != circuit.Dark && !seen[to] {
					walk(to, append(path, [2]int{j, at}))
				}
			}
			seen[at] = false
		}
		walk(fl[0], nil)
		if len(paths) == before {
			return 0, false
		}
	}
	circuits := make(map[[2]int]int)
	for _, p := range paths {
		for _, c := range p {
			if _, ok := circuits[c]; !ok {
				circuits[c] = len(circuits)
			}
		}
	}
	// Columns: theta, paths, slacks. Rows: flows, circuits.
	cols := 1 + len(paths) + len(circuits)
	a := mat.NewDense(len(flows)+len(circuits), cols, nil)
	b := make([]float64, len(flows)+len(circuits))
	cost := make([]float64, cols)
	cost[0] = -1
	for f := range flows {
		a.Set(f, 0, -1)
	}
	for i, p := range paths {
		a.Set(owner[i], 1+i, 1)
		for _, c := range p {
			a.Set(len(flows)+circuits[c], 1+i, 1)
		}
	}
	for _, c := range circuits {
		a.Set(len(flows)+c, 1+len(paths)+c, 1)
		b[len(flows)+c] = 1
	}
	value, _, err := gonum.Simplex(cost, a, b, 1e-12, nil)
	if err != nil {
		t.Skip("the reference gives up: ", err)
	}
	return -value, true
}

// TestAgainstReference compares on small random graphs, some of them partly dark or
// unconnected, with parallel circuits and loops.
func TestAgainstReference(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	reachable := 0
	for range 300 {
		n, ports := 2+rng.IntN(4), 1+rng.IntN(3)
		maps := make([]circuit.Permutation, ports)
		for j := range maps {
			maps[j] = rng.Perm(n)
			if rng.IntN(3) == 0 {
				maps[j][rng.IntN(n)] = circuit.Dark
			}
		}
		flows := allToAll(n)
		rng.Shuffle(len(flows), func(i, j int) { flows[i], flows[j] = flows[j], flows[i] })
		flows = flows[:1+rng.IntN(min(len(flows), 5))]
		limit := rng.IntN(4)
		want, ok := reference(t, maps, flows, limit)
		r, err := flow.Concurrent(maps, flows, flow.Options{MaxHops: limit})
		if ok != (err == nil) {
			t.Fatalf("%v %v %d: %v, the reference reaches all: %v", maps, flows, limit, err, ok)
		}
		if !ok {
			if !errors.Is(err, plans.ErrUnreachable) {
				t.Fatal(err)
			}
			continue
		}
		reachable++
		verify(t, maps, flows, limit, r)
		if math.Abs(r.Theta-want) > 1e-7*want || math.Abs(r.Upper-want) > 1e-7*want {
			t.Fatalf("%v %v within %d hops: theta %v, upper %v, the reference %v", maps, flows, limit, r.Theta, r.Upper, want)
		}
	}
	if reachable < 100 {
		t.Fatalf("only %d instances have paths", reachable)
	}
}

// TestKnown holds theta against closed forms.
func TestKnown(t *testing.T) {
	torus := func(dims ...int) topology.Graph {
		g, err := topology.Torus(dims, nil)
		return graph(t, g, err).Paired()
	}
	ring := func(n int) topology.Graph { g, err := topology.Circulant(n, 1); return graph(t, g, err).Paired() }
	one := func(n int) topology.Graph { g, err := topology.Circulant(n, 1); return graph(t, g, err) }
	for _, c := range []struct {
		name  string
		g     topology.Graph
		flows [][2]int
		limit int
		theta float64
	}{
		// Every circuit is used alike: ports*n over the sum of distances.
		{"total exchange on a ring", ring(64), allToAll(64), 0, 8.0 / (64 * 64)},
		{"total exchange on a one-way ring", one(16), allToAll(16), 0, 2.0 / (16 * 15)},
		{"total exchange on an odd ring", ring(9), allToAll(9), 0, 8.0 / 80},
		{"total exchange on a torus", torus(8, 8), allToAll(64), 0, 4.0 * 64 / (64 * 256)},
		{"total exchange on a cube", torus(4, 4, 4), allToAll(64), 0, 6.0 * 64 / (64 * 192)},
		// x over d circuits one way, 1-x over n-d the other, both equally loaded.
		{"a shift on a ring", ring(64), flowsOf(circuit.Shift(64, 16)), 0, 1 / 12.0},
		{"a shift on a ring, the near way", ring(64), flowsOf(circuit.Shift(64, 16)), 16, 1 / 16.0},
		{"the farthest shift", ring(64), flowsOf(circuit.Shift(64, 32)), 0, 1 / 16.0},
		{"a large one", ring(256), flowsOf(circuit.Shift(256, 64)), 0, 1 / 48.0},
		{"neighbours on a parallel ring", ring(8).Filled(4), flowsOf(circuit.Shift(8, 1)), 1, 2},
		{"three hops on a doubled ring", one(8).Filled(2), flowsOf(circuit.Shift(8, 3)), 0, 2 / 3.0},
		{"exchange with the opposite", one(8), flowsOf(circuit.Xor(8, 4)), 0, 1 / 4.0},
	} {
		r, err := flow.Concurrent(c.g.Maps, c.flows, flow.Options{MaxHops: c.limit})
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		verify(t, c.g.Maps, c.flows, c.limit, r)
		if math.Abs(r.Theta-c.theta) > 1e-9*c.theta || r.Upper > r.Theta*(1+1e-9) {
			t.Errorf("%s: theta %v, upper %v, want %v", c.name, r.Theta, r.Upper, c.theta)
		}
	}
}

// TestSinglePlane compares with the counts of the cost model: routes are unique.
func TestSinglePlane(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	for range 200 {
		n := 2 + rng.IntN(20)
		p := circuit.Permutation(rng.Perm(n))
		flows := allToAll(n)
		rng.Shuffle(len(flows), func(i, j int) { flows[i], flows[j] = flows[j], flows[i] })
		flows = flows[:1+rng.IntN(len(flows))]
		hops, load, want := plans.Load(p, flows)
		r, err := flow.Concurrent([]circuit.Permutation{p}, flows, flow.Options{})
		if (want == nil) != (err == nil) {
			t.Fatalf("%v, want %v", err, want)
		}
		if err != nil {
			continue
		}
		verify(t, []circuit.Permutation{p}, flows, 0, r)
		if r.Hops != hops || math.Abs(r.Theta*float64(load)-1) > 1e-12 || r.Upper > r.Theta*(1+1e-9) {
			t.Fatalf("theta %v, upper %v, hops %d, want load %d and hops %d", r.Theta, r.Upper, r.Hops, load, hops)
		}
	}
}

// TestRenumbered checks that neither the numbers of ranks nor the order of planes and
// flows matter, with symmetry (a torus) and without (a Kautz graph).
func TestRenumbered(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 10))
	torus, err := topology.Torus([]int{3, 4}, nil)
	kautz, err2 := topology.Kautz(12, 3)
	for _, g := range []topology.Graph{graph(t, torus, err).Paired(), graph(t, kautz, err2)} {
		for _, flows := range [][][2]int{allToAll(12), flowsOf(circuit.Shift(12, 5)), flowsOf(circuit.Xor(12, 3))} {
			want, err := flow.Concurrent(g.Maps, flows, flow.Options{})
			require.NoError(t, err)
			to := rng.Perm(12)
			maps := make([]circuit.Permutation, g.Ports())
			for j, k := range rng.Perm(g.Ports()) {
				maps[j] = make(circuit.Permutation, 12)
				for r, s := range g.Maps[k] {
					maps[j][to[r]] = to[s]
				}
			}
			renumbered := make([][2]int, len(flows))
			for i, k := range rng.Perm(len(flows)) {
				renumbered[i] = [2]int{to[flows[k][0]], to[flows[k][1]]}
			}
			r, err := flow.Concurrent(maps, renumbered, flow.Options{})
			require.NoError(t, err)
			verify(t, maps, renumbered, 0, r)
			if math.Abs(r.Theta-want.Theta) > 1e-8*want.Theta {
				t.Errorf("%s: theta %v, renumbered %v", g.Name, want.Theta, r.Theta)
			}
		}
	}
}

// TestLarge covers instances beyond the exact method: the gap is what was asked for.
func TestLarge(t *testing.T) {
	kautz, err := topology.Kautz(40, 3)
	g := graph(t, kautz, err)
	for _, epsilon := range []float64{0, 5e-3} {
		flows := allToAll(40)
		r, err := flow.Concurrent(g.Maps, flows, flow.Options{Epsilon: epsilon})
		require.NoError(t, err)
		verify(t, g.Maps, flows, 0, r)
		if gap := r.Upper/r.Theta - 1; gap > max(epsilon, 1e-3) {
			t.Errorf("epsilon %v: gap %v", epsilon, gap)
		}
		again, _ := flow.Concurrent(g.Maps, flows, flow.Options{Epsilon: epsilon})
		if again.Theta != r.Theta || len(again.Routes) != len(r.Routes) {
			t.Error("the same question has another answer")
		}
	}
	flows := allToAll(40)
	r, err := flow.Concurrent(g.Maps, flows, flow.Options{Work: 1})
	require.NoError(t, err)
	verify(t, g.Maps, flows, 0, r) // without work still feasible and bounded
}

// TestBest compares with the best theta of every number of hops.
func TestBest(t *testing.T) {
	kautz, err := topology.Kautz(24, 2)
	g := graph(t, kautz, err)
	flows := flowsOf(circuit.Shift(24, 1))
	var all []*flow.Result
	for hops := 1; hops <= g.Ranks(); hops++ {
		if r, err := flow.Concurrent(g.Maps, flows, flow.Options{MaxHops: hops}); err == nil {
			all = append(all, r)
		}
	}
	chosen := make(map[int]bool)
	for _, wire := range []float64{0, 0.1, 1, 3, 10, 30, 100, 1e6} {
		want := math.Inf(1)
		for _, r := range all {
			want = math.Min(want, r.CostUS(1, wire))
		}
		r, bound, err := flow.Best(g.Maps, flows, flow.Options{}, 1, wire)
		require.NoError(t, err)
		verify(t, g.Maps, flows, 0, r)
		chosen[r.Hops] = true
		if got := r.CostUS(1, wire); math.Abs(got-want) > 1e-6*want || bound > got*(1+1e-9) || bound < got*(1-1e-6) {
			t.Errorf("wire %v us: cost %v, bound %v, want %v", wire, got, bound, want)
		}
	}
	if len(chosen) < 3 {
		t.Errorf("hops %v: prices make no difference", chosen)
	}
}

func TestErrors(t *testing.T) {
	ring := circuit.Shift(4, 1)
	for name, c := range map[string]struct {
		maps  []circuit.Permutation
		flows [][2]int
		o     flow.Options
		want  error
	}{
		"no maps": {nil, [][2]int{{0, 1}}, flow.Options{}, flow.ErrInput},
		"sizes":   {[]circuit.Permutation{ring, circuit.Shift(5, 1)}, [][2]int{{0, 1}}, flow.Options{}, flow.ErrInput},
		"no map":  {[]circuit.Permutation{{1, 1, 0, 2}}, [][2]int{{0, 1}}, flow.Options{}, flow.ErrInput},
		"range":   {[]circuit.Permutation{ring}, [][2]int{{0, 4}}, flow.Options{}, flow.ErrInput},
		"self":    {[]circuit.Permutation{ring}, [][2]int{{1, 1}}, flow.Options{}, flow.ErrInput},
		"twice":   {[]circuit.Permutation{ring}, [][2]int{{0, 1}, {0, 1}}, flow.Options{}, flow.ErrInput},
		"hops":    {[]circuit.Permutation{ring}, [][2]int{{0, 2}}, flow.Options{MaxHops: 1}, plans.ErrUnreachable},
		"dark":    {[]circuit.Permutation{circuit.AllDark(4)}, [][2]int{{0, 2}}, flow.Options{}, plans.ErrUnreachable},
		"unconnected": {[]circuit.Permutation{circuit.Shift(4, 2)}, [][2]int{{0, 2}, {0, 1}}, flow.Options{},
			plans.ErrUnreachable},
	} {
		_, err := flow.Concurrent(c.maps, c.flows, c.o)
		_, _, err2 := flow.Best(c.maps, c.flows, c.o, 1, 1)
		for _, err := range []error{err, err2} {
			if !errors.Is(err, c.want) {
				t.Errorf("%s: %v, want %v", name, err, c.want)
			}
		}
	}
	_, err := flow.Concurrent([]circuit.Permutation{circuit.Shift(4, 2)}, [][2]int{{0, 2}, {3, 0}}, flow.Options{})
	if want := "flow: 3 -> 0: " + plans.ErrUnreachable.Error(); fmt.Sprint(err) != want {
		t.Errorf("%v, want %q", err, want)
	}
	r, err := flow.Concurrent([]circuit.Permutation{ring}, nil, flow.Options{})
	if err != nil || !math.IsInf(r.Theta, 1) || len(r.Routes) != 0 {
		t.Errorf("no flows: %+v %v", r, err)
	}
}

// TestWorkIsCounted: budgets of callers stand on what results say they took.
func TestWorkIsCounted(t *testing.T) {
	g, err := topology.Kautz(24, 2)
	require.NoError(t, err)
	flows := flowsOf(circuit.Shift(24, 5))
	last := int64(0)
	for _, work := range []int64{1, 1e4, 1e8} {
		r, _, err := flow.Best(g.Maps, flows, flow.Options{Work: work, Epsilon: 1e-3}, 0.5, 10)
		require.NoError(t, err)
		if r.Work <= last {
			t.Fatalf("allowed %d, the work taken is %d, after %d with less", work, r.Work, last)
		}
		last = r.Work
	}
}
