package sim

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"lightpath/plans/delta/check"
	"lightpath/plans/delta/dag"
	"lightpath/plans/delta/internal/deltatest"
)

func newRunner(t testing.TB, g *dag.Graph) *Runner {
	t.Helper()
	w, err := New(g)
	if err != nil {
		t.Fatal(err)
	}
	return w.NewRunner()
}

// contention is two transfers on one circuit: one of 1 MB from the start, and one of 3 MB that
// follows 20 us of work. 100 Gb/s are 12500 bytes/us.
func contention() *dag.Graph {
	return &dag.Graph{
		Gbps:  100,
		Pods:  []dag.Pod{{Name: "a", Ports: 4}, {Name: "b", Ports: 4}},
		Links: []dag.Link{{Pods: [2]int{0, 1}, Ports: [2]int{1, 1}}},
		Tasks: []dag.Task{
			{Name: "early", From: 0, To: 1, Flows: 1, Bytes: 1e6},
			{Name: "work", Duration: 20},
			{Name: "late", From: 0, To: 1, Flows: 3, Bytes: 3e6},
			{Name: "last", From: 1, To: 1, Duration: 100},
		},
		Deps: []dag.Dep{{From: 1, To: 2}, {From: 0, To: 3, Delay: 300}},
	}
}

// TestByHand compares with numbers worked out on paper.
func TestByHand(t *testing.T) {
	r := newRunner(t, contention())
	for _, c := range []struct {
		name           string
		circuits       dag.Circuits
		rank           []float64
		early, late    float64
		makespan, comm float64
	}{
		// Alone until 20 us: 750000 bytes are left; then a quarter each per flow, 3125 bytes/us: 240 us.
		// late has 3e6 - 240*9375 = 750000 left, and all of the circuit: 60 us.
		{"fair, 1 circuit", dag.Circuits{1}, nil, 260, 320, 660, 260},
		// Four circuits: no contention, 80 us each.
		{"fair, 4 circuits", dag.Circuits{4}, nil, 80, 100, 480, 80},
		{"ideal", nil, nil, 80, 100, 480, 80},
		// early first: 80 us; then late alone: 240 us.
		{"early first", dag.Circuits{1}, []float64{1, 0, 0, 0}, 80, 320, 480, 80},
		// late first: 20 + 240; early stands still meanwhile and has 60 us to go.
		{"late first", dag.Circuits{1}, []float64{0, 0, 1, 0}, 320, 260, 720, 320},
		{"equal ranks", dag.Circuits{1}, []float64{2, 2, 2, 2}, 260, 320, 660, 260},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := r.Record(c.circuits, c.rank)
			near(t, "early", s.Spans[0].End, c.early)
			near(t, "late", s.Spans[2].End, c.late)
			near(t, "makespan", s.Makespan, c.makespan)
			_, comm := r.w.g.Critical(s)
			near(t, "communication on the critical path", comm, c.comm)
			if err := check.Check(r.w.g, s); err != nil {
				t.Error(err)
			}
		})
	}
}

func near(t *testing.T, what string, got, want float64) {
	t.Helper()
	if math.Abs(got-want) > 1e-6*(1+math.Abs(want)) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// TestRandom holds runs against what defines them: the validator's constraints; every task starts as soon
// as it may; and rates are max-min fair, class by class, which leaves one possibility.
func TestRandom(t *testing.T) {
	for seed := range uint64(400) {
		rng := rand.New(rand.NewPCG(seed, 7))
		g := deltatest.Random(rng, 40)
		r := newRunner(t, g)
		rank := make([]float64, len(g.Tasks))
		for i := range rank {
			rank[i] = float64(rng.IntN(4))
		}
		for _, run := range []struct {
			name     string
			circuits dag.Circuits
			rank     []float64
		}{
			{"fair", deltatest.Circuits(rng, g), nil}, {"ideal", nil, nil}, {"ranked", deltatest.Circuits(rng, g), rank},
		} {
			s := r.Record(run.circuits, run.rank)
			name := fmt.Sprintf("seed %d, %s", seed, run.name)
			if err := check.Check(g, s); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			checkEager(t, name, g, s)
			checkMaxMin(t, name, g, s, run.rank)
			again := r.Fair(run.circuits)
			if run.rank != nil {
				again = r.Ranked(run.circuits, run.rank)
			}
			if again != s.Makespan {
				t.Fatalf("%s: %v without recording, %v with", name, again, s.Makespan)
			}
		}
	}
}

func checkEager(t *testing.T, name string, g *dag.Graph, s *dag.Schedule) {
	t.Helper()
	want := make([]float64, len(g.Tasks))
	for _, d := range g.Deps {
		want[d.To] = max(want[d.To], s.Spans[d.From].End+d.Delay)
	}
	for i := range g.Tasks {
		if math.Abs(s.Spans[i].Start-want[i]) > 1e-6 {
			t.Fatalf("%s: task %d starts at %v, could at %v", name, i, s.Spans[i].Start, want[i])
		}
	}
}

// checkMaxMin checks the middle of every interval between events. A flow below its NIC's rate must cross a
// full resource. On that resource, no transfer of a lower rank has any rate, and no transfer of its own rank
// has more per flow.
func checkMaxMin(t *testing.T, name string, g *dag.Graph, s *dag.Schedule, rank []float64) {
	t.Helper()
	of := func(i int) float64 {
		if rank == nil {
			return 0
		}
		return rank[i]
	}
	limit := g.Gbps * dag.BytesPerUSPerGbps
	for _, at := range middles(s) {
		rate := make(map[int]float64) // per flow, of transfers under way
		for i, span := range s.Spans {
			if t := &g.Tasks[i]; t.Transfer() && span.Start <= at && at < span.End {
				rate[i] = rateAt(span.Segments, at) / float64(t.Flows)
			}
		}
		for i, u := range rate {
			if u > limit*(1-1e-6) || bottleneck(g, s, rate, i, of) {
				continue
			}
			t.Fatalf("%s: at %v us transfer %d goes at %v per flow, and nothing stops it", name, at, i, u)
		}
	}
}

func bottleneck(g *dag.Graph, s *dag.Schedule, rate map[int]float64, i int, rank func(int) float64) bool {
	me := &g.Tasks[i]
	full := func(capacity float64, weight func(*dag.Task) float64) bool {
		used, best := 0.0, true
		for j, u := range rate {
			w := weight(&g.Tasks[j])
			used += w * u
			tiny := 1e-6 * g.Gbps * dag.BytesPerUSPerGbps
			if w > 0 && (rank(j) < rank(i) && u > tiny || rank(j) == rank(i) && u > rate[i]+tiny) {
				best = false
			}
		}
		return best && used >= capacity*(1-1e-6)
	}
	for l, k := range g.Links {
		if s.Circuits == nil || k.Pods != [2]int{me.From, me.To} && k.Pods != [2]int{me.To, me.From} {
			continue
		}
		if full(float64(s.Circuits[l])*g.Gbps*dag.BytesPerUSPerGbps, func(t *dag.Task) float64 {
			if t.From == me.From && t.To == me.To {
				return float64(t.Flows)
			}
			return 0
		}) {
			return true
		}
	}
	has := func(list []int, gpu int) float64 {
		if slices.Contains(list, gpu) {
			return 1
		}
		return 0
	}
	for _, gpu := range me.Src {
		if full(g.Gbps*dag.BytesPerUSPerGbps, func(t *dag.Task) float64 { return has(t.Src, gpu) }) {
			return true
		}
	}
	for _, gpu := range me.Dst {
		if full(g.Gbps*dag.BytesPerUSPerGbps, func(t *dag.Task) float64 { return has(t.Dst, gpu) }) {
			return true
		}
	}
	return false
}

func rateAt(segments []dag.Segment, at float64) float64 {
	for _, s := range segments {
		if s.Start <= at && at < s.End {
			return s.Bytes / (s.End - s.Start)
		}
	}
	return 0
}

// middles returns the middle of every interval between two events.
func middles(s *dag.Schedule) []float64 {
	var at []float64
	for _, span := range s.Spans {
		at = append(at, span.Start, span.End)
		for _, seg := range span.Segments {
			at = append(at, seg.Start, seg.End)
		}
	}
	return between(at)
}

// TestBounds: no topology beats the ideal network's longest path, and giving every link as many circuits
// as there are flows is the ideal network.
func TestBounds(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 8))
		g := deltatest.Random(rng, 30)
		r := newRunner(t, g)
		many := make(dag.Circuits, len(g.Links))
		for l := range many {
			many[l] = 4 * len(g.Tasks)
		}
		ideal := r.Fair(nil)
		if wide := r.Fair(many); math.Abs(wide-ideal) > 1e-6*ideal {
			t.Fatalf("seed %d: %v with circuits for all, %v on the ideal network", seed, wide, ideal)
		}
		longest := g.LongestPath(g.LeastTime)
		if c := deltatest.Circuits(rng, g); r.Fair(c) < longest*(1-1e-9) {
			t.Fatalf("seed %d: shorter than the longest path %v", seed, longest)
		}
	}
}

func TestNoAllocation(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	g := deltatest.Random(rng, 200)
	r := newRunner(t, g)
	c := deltatest.Circuits(rng, g)
	rank := make([]float64, len(g.Tasks))
	r.Fair(c)
	if n := testing.AllocsPerRun(20, func() { r.Fair(c); r.Ranked(c, rank) }); n != 0 {
		t.Errorf("%v allocations per run", n)
	}
}
