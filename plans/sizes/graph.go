package sizes

import (
	"fmt"
	"math"

	"lightpath/plans"
	"lightpath/plans/circuit"
)

// node is an activity of one or several planes: a transmit (on several planes if joint) or a reconfiguration (of two
// planes if interleaved).
type node struct {
	at     [][2]int // {plane, entry}
	step   int      // index of the step among those with transmits; -1: reconfiguration
	fixed  float64  // us beside the time on the wire
	wire   float64  // us on the wire at the bytes of the plan
	column int      // of its time on the wire in the linear program; -1: none
	before []int    // nodes that precede it on its planes
}

// graph is the pattern of a plan on a problem, in an order in which every node follows its predecessors.
type graph struct {
	p     *plans.Problem
	plan  *plans.Plan
	nodes []node
	steps []int // problem steps that have transmits, in order
}

// newGraph orders the activities of a plan. The plan must be one that plans/check accepts.
func newGraph(p *plans.Problem, plan *plans.Plan) (*graph, error) {
	g := &graph{p: p, plan: plan}
	stepOf := g.compileSteps()
	next := make([]int, len(plan.Planes)) // entry that is due
	last := make([]int, len(plan.Planes)) // node of the entry before, -1: none
	loads := make([]plans.Loader, p.Planes)
	maps := make([]circuit.Permutation, p.Planes)
	total := 0
	for j := range plan.Planes {
		last[j], maps[j] = -1, circuit.AllDark(p.Ranks)
		switch {
		case plan.Initial != nil:
			maps[j] = plan.Initial[j]
		case p.Initial != nil:
			maps[j] = p.Initial[j]
		}
		loads[j].SetMap(maps[j])
		total += len(plan.Planes[j])
	}
	for done := 0; done < total; {
		before := done
		for j := range plan.Planes {
			for next[j] < len(plan.Planes[j]) {
				members := g.members(j, next)
				if members == nil {
					break
				}
				n, err := g.node(members, stepOf, maps, loads)
				if err != nil {
					return nil, err
				}
				for _, at := range members {
					if k := last[at[0]]; k >= 0 {
						n.before = append(n.before, k)
					}
					last[at[0]] = len(g.nodes)
					next[at[0]]++
				}
				g.nodes = append(g.nodes, n)
				done += len(members)
			}
		}
		if done == before {
			return nil, fmt.Errorf("%w: its planes wait for each other", ErrPattern)
		}
	}
	return g, nil
}

// compileSteps numbers the steps that have transmits.
func (g *graph) compileSteps() []int {
	stepOf := make([]int, len(g.p.Steps))
	for _, entries := range g.plan.Planes {
		for i := range entries {
			if entries[i].Kind == plans.Transmit {
				stepOf[entries[i].Step] = 1
			}
		}
	}
	for i := range stepOf {
		if stepOf[i] == 1 {
			stepOf[i] = len(g.steps)
			g.steps = append(g.steps, i)
		}
	}
	return stepOf
}

// members returns the entries that plane j's next one runs with, itself included, or nil
// while some plane is not there yet.
func (g *graph) members(j int, next []int) [][2]int {
	e := &g.plan.Planes[j][next[j]]
	due := func(k int) *plans.Entry {
		if next[k] == len(g.plan.Planes[k]) {
			return nil
		}
		return &g.plan.Planes[k][next[k]]
	}
	switch {
	case e.Kind == plans.Reconfigure && g.p.Circuits == plans.Interleaved:
		if f := due(j ^ 1); f == nil || f.Kind != plans.Reconfigure {
			return nil
		}
		return [][2]int{{j, next[j]}, {j ^ 1, next[j^1]}}
	case e.Kind == plans.Transmit && e.Joint != "":
		var at [][2]int
		for k := range g.plan.Planes {
			f := due(k)
			if f != nil && f.Kind == plans.Transmit && f.Joint == e.Joint && f.Step == e.Step {
				at = append(at, [2]int{k, next[k]})
			} else if g.joins(k, next[k], e) {
				return nil
			}
		}
		return at
	}
	return [][2]int{{j, next[j]}}
}

// joins reports whether plane k has an entry of e's joint transmit from entry i on.
func (g *graph) joins(k, i int, e *plans.Entry) bool {
	for ; i < len(g.plan.Planes[k]); i++ {
		f := &g.plan.Planes[k][i]
		if f.Kind == plans.Transmit && f.Joint == e.Joint && f.Step == e.Step {
			return true
		}
	}
	return false
}

// node costs the given entries, and follows a reconfiguration's circuits.
func (g *graph) node(at [][2]int, stepOf []int, maps []circuit.Permutation, loads []plans.Loader) (node, error) {
	n := node{at: at, step: -1, column: -1}
	first := &g.plan.Planes[at[0][0]][at[0][1]]
	if first.Kind == plans.Reconfigure {
		for _, m := range at {
			to := g.plan.Planes[m[0]][m[1]].To
			n.fixed = math.Max(n.fixed, plans.ReconfigUS(g.p, maps[m[0]], to))
			maps[m[0]] = to
			loads[m[0]].SetMap(to)
		}
		return n, nil
	}
	if first.Kind != plans.Transmit {
		return n, fmt.Errorf("%w: a %s has no pattern", ErrPattern, first.Kind)
	}
	n.step = stepOf[first.Step]
	if first.Joint != "" {
		var routes []plans.Route
		for _, m := range at {
			routes = append(routes, g.plan.Planes[m[0]][m[1]].Routes...)
		}
		hops, most := plans.JointLoad(routes)
		return n.on(g.p, hops, plans.WireUS(g.p, most)), nil
	}
	flows := g.flowsOf(first)
	hops, load, err := loads[at[0][0]].Load(flows)
	if err != nil {
		return n, fmt.Errorf("%w: step %d: %w", ErrPattern, first.Step, err)
	}
	return n.on(g.p, hops, plans.WireUS(g.p, first.Bytes)*float64(load)), nil
}

// on sets the time of a transmit: 0 if it carries nothing.
func (n node) on(p *plans.Problem, hops int, wire float64) node {
	if wire > 0 {
		n.fixed, n.wire = p.AlphaUS+p.HopUS*float64(hops), wire
	}
	return n
}

func (g *graph) flowsOf(e *plans.Entry) [][2]int {
	flows := g.p.Steps[e.Step].FlowList()
	if e.Flows == nil {
		return flows
	}
	picked := make([][2]int, len(e.Flows))
	for k, f := range e.Flows {
		picked[k] = flows[f]
	}
	return picked
}
