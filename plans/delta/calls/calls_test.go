package calls

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"lightpath/internal/require"
	"lightpath/plans/delta/dag"
	"lightpath/plans/delta/train"
	"lightpath/plans/iteration/trace"
)

func preset(t *testing.T, name string) train.Config {
	t.Helper()
	c, err := train.Preset(name)
	require.NoError(t, err)
	return c
}

// TestModel: the trace computes as long as the pipeline does, sends each activation, and reduces all gradients.
func TestModel(t *testing.T) {
	for _, name := range train.Names() {
		c := preset(t, name)
		tr, err := Model(&c, "ring:2")
		require.NoError(t, err)
		costs, err := c.StageCosts()
		require.NoError(t, err)
		slots := float64(c.MicroBatches + c.PP - 1)
		scatter, gather := 0.0, 0.0
		for _, k := range costs {
			scatter, gather = max(scatter, k.Scatter), max(gather, k.Gather)
		}
		want := slots*(costs[0].Forward+costs[0].Backward) + scatter + gather
		if got := tr.Longest(nil); math.Abs(got-want) > 1e-6*want {
			t.Errorf("%s: computes %v us, want %v", name, got, want)
		}
		if want := 2*(c.MicroBatches+c.PP-1) + 1; len(tr.Calls) != want {
			t.Errorf("%s: %d calls, want %d", name, len(tr.Calls), want)
		}
		if tr.Ranks != c.GPUs || len(tr.Communicators[1].Groups)*c.Replicas() != c.GPUs {
			t.Errorf("%s: %d ranks, %d groups", name, tr.Ranks, len(tr.Communicators[1].Groups))
		}
		forward := tr.Calls[0]
		if len(forward.Flows) != c.GPUs*(c.PP-1)/c.PP || forward.Bytes != c.BoundaryPerGPU() {
			t.Errorf("%s: %d flows of %v bytes", name, len(forward.Flows), forward.Bytes)
		}
		last := tr.Calls[len(tr.Calls)-1]
		// A ring sends 2(R-1)/R of the buffer, which is the flow of a stage.
		r := float64(c.Replicas())
		most := 0.0
		for _, k := range costs {
			most = max(most, k.Flow)
		}
		if last.Collective != "allreduce" || math.Abs(last.Bytes*2*(r-1)/r-most) > 1e-6*most {
			t.Errorf("%s: last call %+v", name, last)
		}
	}
	c := preset(t, "gpt-7b")
	c.TP = 0
	if _, err := Model(&c, "ring"); !errors.Is(err, train.ErrConfig) {
		t.Error(err)
	}
}

// TestGraph: calls of a graph's trace carry the bytes of its transfers, in an order that its dependencies allow, and
// the computation is that of the graph.
func TestGraph(t *testing.T) {
	c := preset(t, "gpt-7b")
	c.Full = true
	g, err := train.Generate(c)
	require.NoError(t, err)
	tr, err := Graph(g)
	require.NoError(t, err)
	var sent, want float64
	for i := range tr.Calls {
		sent += tr.Calls[i].Bytes * float64(len(tr.Calls[i].Flows))
	}
	for i := range g.Tasks {
		if g.Tasks[i].Transfer() {
			want += g.Tasks[i].Bytes
		}
	}
	if math.Abs(sent-want) > 1e-6*want || tr.Ranks != c.GPUs {
		t.Errorf("%v bytes on %d ranks, want %v on %d", sent, tr.Ranks, want, c.GPUs)
	}
	compute := g.LongestPath(func(task *dag.Task) float64 { return task.Duration })
	if got := tr.Longest(nil); got < compute*(1-1e-9) || got > 1.02*compute {
		t.Errorf("computes %v us, the graph %v us", got, compute)
	}
	if len(tr.Calls) >= len(slices.DeleteFunc(slices.Clone(g.Tasks), func(t dag.Task) bool { return !t.Transfer() })) {
		t.Errorf("%d calls: nothing is joined", len(tr.Calls))
	}
	c.Full = false
	if g, err = train.Generate(c); err != nil {
		t.Fatal(err)
	}
	if _, err := Graph(g); !errors.Is(err, ErrGraph) || !strings.Contains(err.Error(), "--full") {
		t.Error(err)
	}
}

// TestSmallGraph: delays through work become gaps, and what follows the last transfer the tail.
func TestSmallGraph(t *testing.T) {
	g := &dag.Graph{
		Gbps: 400, Pods: []dag.Pod{{Name: "a", Ports: 2}, {Name: "b", Ports: 2}},
		Links: []dag.Link{{Pods: [2]int{0, 1}, Ports: [2]int{1, 1}}},
		Tasks: []dag.Task{
			{Name: "begin", Duration: 10}, {Name: "ab", Kind: "x", To: 1, Flows: 1, Bytes: 1e6},
			{Name: "middle", From: 1, To: 1, Duration: 7}, {Name: "ba", Kind: "x", From: 1, Flows: 1, Bytes: 2e6},
			{Name: "end", Duration: 5},
		},
		Deps: []dag.Dep{{From: 0, To: 1}, {From: 1, To: 2, Delay: 3}, {From: 2, To: 3}, {From: 3, To: 4}, {From: 0, To: 4}},
	}
	require.NoError(t, g.Validate())
	tr, err := Graph(g)
	require.NoError(t, err)
	if len(tr.Calls) != 2 || tr.Ranks != 2 || tr.Calls[1].Flows[0] != [2]int{1, 0} || tr.Calls[1].TailUS != 5 {
		t.Fatalf("%s", tr.Encode())
	}
	for i, want := range []trace.After{{Call: trace.Begin, GapUS: 10}, {Call: 0, GapUS: 10}} {
		if !slices.Contains(tr.Calls[i].After, want) {
			t.Errorf("call %d waits for %+v, want %+v", i, tr.Calls[i].After, want)
		}
	}
	g.Tasks, g.Deps, g.Links = g.Tasks[:1], nil, nil
	if _, err := Graph(g); !errors.Is(err, ErrGraph) {
		t.Error(err)
	}
}

// TestChainWithinGroup: a transfer that starts within the time of a group, but waits for one of its calls, is in a call
// of its own: a call waits only for calls before it.
func TestChainWithinGroup(t *testing.T) {
	pods := slices.Repeat([]dag.Pod{{Ports: 4}}, 6)
	for p := range pods {
		pods[p].Name = string(rune('a' + p))
	}
	link := func(a, b int) dag.Link { return dag.Link{Pods: [2]int{a, b}, Ports: [2]int{1, 1}} }
	send := func(kind string, from, to int) dag.Task {
		return dag.Task{Name: kind, Kind: kind, From: from, To: to, Flows: 1, Bytes: 1000} // 0.02 us
	}
	for name, g := range map[string]*dag.Graph{
		"one kind": {Tasks: []dag.Task{send("x", 0, 1), send("x", 1, 2)}, Deps: []dag.Dep{{From: 0, To: 1}}},
		"another kind between": {Tasks: []dag.Task{send("x", 0, 1), send("y", 2, 3), send("x", 4, 5)},
			Deps: []dag.Dep{{From: 1, To: 2}}},
	} {
		g.Gbps, g.Pods, g.Links = 400, pods, []dag.Link{link(0, 1), link(1, 2), link(2, 3), link(4, 5)}
		require.NoError(t, g.Validate())
		tr, err := Graph(g)
		if err != nil || len(tr.Calls) != len(g.Tasks) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
