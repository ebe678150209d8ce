package calls

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"lightpath/plans/delta/dag"
	"lightpath/plans/delta/sim"
	"lightpath/plans/iteration/trace"
)

// ErrGraph is wrapped by errors about a graph that has no trace.
var ErrGraph = errors.New("no trace of this job")

// Graph returns the trace of a job's graph, which must be valid and hold all replicas: a graph with images stands for
// pods that it does not have.
func Graph(g *dag.Graph) (*trace.Trace, error) {
	if slices.ContainsFunc(g.Pods, func(p dag.Pod) bool { return p.Image }) {
		return nil, fmt.Errorf("%w: it is the projection of a job on one replica: generate it with all replicas (--full)",
			ErrGraph)
	}
	small := dag.Reduce(g).Graph
	network, err := sim.New(small)
	if err != nil {
		return nil, err
	}
	runner := network.NewRunner()
	runner.Fair(nil)
	gr := &grouper{g: small, pred: small.Predecessors(), of: slices.Repeat([]int{-1}, len(small.Tasks)),
		t: &trace.Trace{Name: g.Name}}
	if err := gr.group(runner.Starts()); err != nil {
		return nil, err
	}
	gr.dependencies()
	all := make([]int, gr.t.Ranks)
	for r := range all {
		all[r] = r
	}
	gr.t.Communicators = []trace.Communicator{{Name: "job", Groups: [][]int{all}}}
	return gr.t, gr.t.Validate()
}

type grouper struct {
	g       *dag.Graph
	pred    dag.Adjacency
	of      []int   // task -> its call, -1 for junctions
	members [][]int // call -> tasks
	t       *trace.Trace
}

// group makes calls of the transfers of a kind that start together, unless they wait for each other.
func (gr *grouper) group(start []float64) error {
	transfers, gpus := 0, true
	for i := range gr.g.Tasks {
		if t := &gr.g.Tasks[i]; t.Transfer() {
			transfers++
			gpus = gpus && len(t.Src) == t.Flows && len(t.Dst) == t.Flows
		}
	}
	if transfers == 0 {
		return fmt.Errorf("%w: nothing is sent between pods", ErrGraph)
	}
	tasks, _ := gr.g.Order() // a valid graph has one
	slices.SortStableFunc(tasks, func(a, b int) int { return cmp.Compare(start[a], start[b]) })
	const together = 1.0 // us
	var open []int
	last := make([]int, len(gr.of)) // by task
	for _, i := range tasks {
		last[i] = gr.lastOf(i, last)
		if !gr.g.Tasks[i].Transfer() {
			continue
		}
		flows, bytes := gr.flows(i, gpus)
		open = slices.DeleteFunc(open, func(c int) bool { return start[gr.members[c][0]] < start[i]-together })
		at := slices.IndexFunc(open, func(c int) bool {
			first := gr.members[c][0]
			return c > last[i] && gr.g.Tasks[first].Kind == gr.g.Tasks[i].Kind && gr.t.Calls[c].Bytes == bytes &&
				!slices.ContainsFunc(flows, func(f [2]int) bool { return slices.Contains(gr.t.Calls[c].Flows, f) })
		})
		if at < 0 {
			gr.t.Calls = append(gr.t.Calls, trace.Call{Name: gr.g.Tasks[i].Kind, Flows: flows, Bytes: bytes})
			gr.members = append(gr.members, nil)
			open = append(open, len(gr.members)-1)
			at = len(open) - 1
		} else {
			gr.t.Calls[open[at]].Flows = append(gr.t.Calls[open[at]].Flows, flows...)
		}
		gr.members[open[at]] = append(gr.members[open[at]], i)
		gr.of[i] = open[at]
	}
	return nil
}

// lastOf returns the last call that task i waits for, if last has those of the tasks before it; -1 for none.
func (gr *grouper) lastOf(i int, last []int) int {
	call := -1
	for _, d := range gr.pred.Of(i) {
		from := gr.g.Deps[d].From
		if call = max(call, gr.of[from]); gr.of[from] < 0 {
			call = max(call, last[from])
		}
	}
	return call
}

// flows returns the transfers between ranks of a task, and the bytes of each. It makes room for the ranks.
func (gr *grouper) flows(i int, gpus bool) ([][2]int, float64) {
	t := &gr.g.Tasks[i]
	if !gpus {
		gr.t.Ranks = len(gr.g.Pods)
		return [][2]int{{t.From, t.To}}, t.Bytes
	}
	flows := make([][2]int, t.Flows)
	for k := range flows {
		flows[k] = [2]int{t.Src[k], t.Dst[k]}
		gr.t.Ranks = max(gr.t.Ranks, t.Src[k]+1, t.Dst[k]+1)
	}
	return flows, t.Bytes / float64(t.Flows)
}

// waits returns, by task, the calls and the begin that it waits for, with the longest delay to its start. Paths through
// junctions become delays.
func (gr *grouper) waits() []map[int]float64 {
	order, _ := gr.g.Order() // a valid graph has one
	waits := make([]map[int]float64, len(gr.of))
	for _, i := range order {
		waits[i] = map[int]float64{}
		if len(gr.pred.Of(i)) == 0 {
			waits[i][trace.Begin] = 0
		}
		raise := func(call int, delay float64) {
			if old, ok := waits[i][call]; !ok || delay > old {
				waits[i][call] = delay
			}
		}
		for _, d := range gr.pred.Of(i) {
			dep := &gr.g.Deps[d]
			if c := gr.of[dep.From]; c >= 0 {
				raise(c, dep.Delay)
				continue
			}
			for call, delay := range waits[dep.From] {
				raise(call, delay+gr.g.Tasks[dep.From].Duration+dep.Delay)
			}
		}
	}
	return waits
}

// dependencies sets what calls wait for.
func (gr *grouper) dependencies() {
	waits := gr.waits()
	for c, members := range gr.members {
		after := map[int]float64{}
		for _, i := range members {
			for call, delay := range waits[i] {
				after[call] = math.Max(after[call], delay)
			}
		}
		gr.t.Calls[c].After = latest(after)
	}
	for i := range gr.g.Tasks {
		if gr.of[i] >= 0 || gr.g.Tasks[i].Kind != "end" {
			continue
		}
		for call, delay := range waits[i] {
			if call == trace.Begin {
				gr.t.ComputeUS = math.Max(gr.t.ComputeUS, delay)
			} else {
				gr.t.Calls[call].TailUS = math.Max(gr.t.Calls[call].TailUS, delay)
			}
		}
	}
}

// latest returns the calls that a call waits for, in their order. If there are more than trace.MaxAfter, it keeps the
// calls that start last.
func latest(after map[int]float64) []trace.After {
	list := make([]trace.After, 0, len(after))
	for call, gap := range after {
		list = append(list, trace.After{Call: call, GapUS: gap})
	}
	slices.SortFunc(list, func(a, b trace.After) int { return a.Call - b.Call })
	return list[max(0, len(list)-trace.MaxAfter):]
}
