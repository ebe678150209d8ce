package delta

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"testing"

	"lightpath/internal/require"
	"lightpath/plans/delta/dag"
	"lightpath/plans/delta/internal/deltatest"
	"lightpath/plans/delta/sim"
)

// hidden is a job whose ideal iteration hides its transfer behind work: 100 us of work, beside a transfer of 80 kB
// over 8 flows and 50 us of work after it. The transfer takes 0.8 us on 8 circuits of 100 Gb/s and 6.4 us on one.
func hidden(work float64) *dag.Graph {
	return &dag.Graph{
		Gbps:  100,
		Pods:  []dag.Pod{{Name: "a", Ports: 8}, {Name: "b", Ports: 8}},
		Links: []dag.Link{{Pods: [2]int{0, 1}, Ports: [2]int{1, 1}}},
		Tasks: []dag.Task{
			{Name: "work", Duration: 100},
			{Name: "transfer", From: 0, To: 1, Flows: 8, Bytes: 8e4},
			{Name: "after", From: 1, To: 1, Duration: work},
		},
		Deps: []dag.Dep{{From: 1, To: 2}},
	}
}

// TestNCTWithoutReference: the ideal iteration of a job waits for no communication. If the job waits for none on its
// circuits either, its NCT is 1. Otherwise it has none, which is null in its file.
func TestNCTWithoutReference(t *testing.T) {
	for _, c := range []struct {
		circuits int
		nct, in  string
	}{{8, "1.0000", "1"}, {1, "none", "null"}} {
		p := newPlanner(t, hidden(99))
		plan, err := p.Evaluate(dag.Circuits{c.circuits}, Fair)
		require.NoError(t, err)
		r := p.Result("given", plan)
		var file map[string]json.RawMessage
		require.NoError(t, json.Unmarshal(r.Encode(), &file))
		if r.NCT.String() != c.nct || string(file["nct"]) != c.in || string(file["nct_of_least"]) != c.in {
			t.Errorf("%d circuits, %v us: NCT %v, %s in the file", c.circuits, r.MakespanUS, r.NCT, file["nct"])
		}
	}
}

// TestNCTOfTies: with two critical paths, the reference is the one with the most communication, and the other one is
// stated, too.
func TestNCTOfTies(t *testing.T) {
	p := newPlanner(t, hidden(99.2))
	if i := p.Ideal(); math.Abs(i.Communication-0.8) > 1e-9 || i.LeastCommunication != 0 {
		t.Errorf("%+v", i)
	}
	nct, least := p.Ideal().NCT(105.6), p.Ideal().NCTOfLeast(105.6)
	if math.Abs(float64(nct)-8) > 1e-9 || least.String() != "none" {
		t.Errorf("NCT %v, by the least %v", nct, least)
	}
}

// TestIdealIsOfTheJob: the references do not depend on the order of tasks and dependencies. They are those of all
// critical paths, one by one.
func TestIdealIsOfTheJob(t *testing.T) {
	ties := 0
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 12))
		g := deltatest.Random(rng, 25)
		for i := range g.Tasks { // all take 0, 20 or 40 us at their full rate, so that many paths are as long
			if t := &g.Tasks[i]; t.Transfer() {
				t.Bytes = 2.5e5 * float64(t.Flows*rng.IntN(3))
			} else {
				t.Duration = 20 * float64(rng.IntN(3))
			}
		}
		for d := range g.Deps {
			g.Deps[d].Delay = 0
		}
		ideal := *newPlanner(t, g).Ideal()
		shuffled := *newPlanner(t, shuffle(rng, g)).Ideal()
		for _, d := range []float64{ideal.Makespan - shuffled.Makespan, ideal.Communication - shuffled.Communication,
			ideal.LeastCommunication - shuffled.LeastCommunication} {
			if math.Abs(d) > 1e-6 {
				t.Fatalf("seed %d: %+v, with its tasks in another order %+v", seed, ideal, shuffled)
			}
		}
		net, err := sim.New(g)
		require.NoError(t, err)
		least, most := pathCommunication(g, net.NewRunner().Record(nil, nil))
		if math.Abs(least-ideal.LeastCommunication) > 1e-6 || math.Abs(most-ideal.Communication) > 1e-6 {
			t.Fatalf("seed %d: %+v, by all critical paths %v to %v", seed, ideal, least, most)
		}
		if most > least+1e-6 {
			ties++
		}
	}
	if ties < 10 {
		t.Errorf("only %d jobs have several critical paths", ties)
	}
}

// shuffle returns g with its tasks and dependencies in another order.
func shuffle(rng *rand.Rand, g *dag.Graph) *dag.Graph {
	s := *g
	place := rng.Perm(len(g.Tasks))
	s.Tasks, s.Deps = make([]dag.Task, len(g.Tasks)), nil
	for i, p := range place {
		s.Tasks[p] = g.Tasks[i]
	}
	for _, k := range rng.Perm(len(g.Deps)) {
		d := g.Deps[k]
		s.Deps = append(s.Deps, dag.Dep{From: place[d.From], To: place[d.To], Delay: d.Delay})
	}
	return &s
}

// pathCommunication follows every critical path of s backwards.
func pathCommunication(g *dag.Graph, s *dag.Schedule) (least, most float64) {
	least = math.Inf(1)
	var follow func(i int, communication float64)
	follow = func(i int, communication float64) {
		if g.Tasks[i].Transfer() {
			communication += s.Spans[i].End - s.Spans[i].Start
		}
		first := true
		for _, d := range g.Deps {
			if d.To == i && math.Abs(s.Spans[d.From].End+d.Delay-s.Spans[i].Start) < 1e-6 {
				follow(d.From, communication)
				first = false
			}
		}
		if first {
			least, most = min(least, communication), max(most, communication)
		}
	}
	for i := range g.Tasks {
		if math.Abs(s.Spans[i].End-s.Makespan) < 1e-6 {
			follow(i, 0)
		}
	}
	return least, most
}
