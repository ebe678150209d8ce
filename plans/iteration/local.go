package iteration

import (
	"fmt"
	"slices"

	"lightpath/plans"
	"lightpath/plans/circuit"
	"lightpath/plans/sim"
)

// Local returns the problem and the plan of the call at a position, on the own ranks of one of its communicators: what a
// run time plans, keys and seals by itself. The problem has the steps of the call and the initial circuits of the plan, as
// far as they join ranks of the communicator. The plan carries its digest. The times are those of the whole plan, so the
// plan of a small communicator may be slower than one made for it alone. A plan that forwards over ranks of other
// communicators has no part for one: the error wraps [ErrProblem].
func (p *Problem) Local(plan *Plan, at, group int, steps Steps) (*plans.Problem, *plans.Plan, error) {
	call := &p.Trace.Calls[plan.Calls[at].Call]
	comm := &p.Trace.Communicators[call.Communicator]
	l := &localizer{group: comm.Groups[group], of: slices.Repeat([]int{circuit.Dark}, p.Fabric.Ranks)}
	for r, global := range l.group {
		l.of[global] = r
	}
	problem := *p.Fabric
	problem.Ranks = comm.Size()
	problem.Steps = []plans.Step{{Bytes: call.Bytes, Flows: call.Flows}}
	if call.Collective != "" {
		var err error
		if problem.Steps, err = steps(call, comm.Size()); err != nil {
			return nil, nil, fmt.Errorf("%w: %w", ErrProblem, err)
		}
	}
	whole := p.Shapes[p.Of[plan.Calls[at].Call]]
	local := *plan.PlanAt(at)
	local.LowerBoundUS, local.BoundProof, local.Digest, local.Repeats = 0, "", "", nil
	local.Initial = make([]circuit.Permutation, len(local.Initial))
	for j, m := range plan.PlanAt(at).Initial {
		local.Initial[j] = l.circuits(m)
	}
	problem.Initial = local.Initial
	local.Planes = make([][]plans.Entry, len(local.Planes))
	for j, entries := range plan.PlanAt(at).Planes {
		for i := range entries {
			if e, ok := l.entry(&entries[i], &problem, whole); ok {
				local.Planes[j] = append(local.Planes[j], e)
			}
		}
	}
	if _, err := sim.Run(&problem, &local); err != nil {
		return nil, nil, fmt.Errorf("%w: calls[%d] on its communicator alone: %w", ErrProblem, at, err)
	}
	if err := plans.Seal(&problem, &local); err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrProblem, err)
	}
	return &problem, &local, nil
}

// localizer rewrites ranks of the fabric as ranks of a communicator.
type localizer struct {
	group []int
	of    []int // rank of the fabric -> rank of the communicator; dark: another one
}

// circuits returns the circuits of m that join ranks of the communicator.
func (l *localizer) circuits(m circuit.Permutation) circuit.Permutation {
	local := circuit.AllDark(len(l.group))
	for r, global := range l.group {
		if to := m[global]; to != circuit.Dark {
			local[r] = l.of[to]
		}
	}
	return local
}

// entry returns the part of an entry that the communicator has; false if there is none.
func (l *localizer) entry(e *plans.Entry, problem, whole *plans.Problem) (plans.Entry, bool) {
	local := *e
	switch {
	case e.Kind != plans.Transmit:
		local.To = l.circuits(e.To)
		return local, true
	case e.Flows == nil:
		return local, true
	}
	all, own := whole.Steps[e.Step].FlowList(), problem.Steps[e.Step].FlowList()
	local.Flows = []int{}
	for _, f := range e.Flows {
		flow := [2]int{l.of[all[f][0]], l.of[all[f][1]]}
		if at := slices.Index(own, flow); at >= 0 {
			local.Flows = append(local.Flows, at)
		}
	}
	slices.Sort(local.Flows)
	return local, len(local.Flows) > 0
}
