package milp

import (
	"math"

	"lightpath/plans/delta/dag"
)

// project returns the schedule s of a job as one of the job reduced: transfers as they are, and
// what is left of work as early as it may be.
func project(red *dag.Reduced, s *dag.Schedule) (*dag.Schedule, error) {
	return settle(red.Graph, s.Circuits, func(i int, _ float64) (*dag.Span, error) {
		if o := red.Origin[i]; o >= 0 {
			return &s.Spans[o], nil
		}
		return nil, nil
	})
}

// lift returns the schedule s of the job g reduced as one of g.
func lift(g *dag.Graph, red *dag.Reduced, s *dag.Schedule) (*dag.Schedule, error) {
	at := make([]*dag.Span, len(g.Tasks))
	for i, o := range red.Origin {
		if o >= 0 {
			at[o] = &s.Spans[i]
		}
	}
	return settle(g, s.Circuits, func(i int, _ float64) (*dag.Span, error) { return at[i], nil })
}

// settle lets every task start as soon as it may, except transfers with bytes for which transfer returns a span. ready
// is when all that task i waits for has ended.
func settle(g *dag.Graph, c dag.Circuits, transfer func(i int, ready float64) (*dag.Span, error),
) (*dag.Schedule, error) {
	order, err := g.Order()
	if err != nil {
		return nil, err
	}
	s := &dag.Schedule{Circuits: c, Spans: make([]dag.Span, len(g.Tasks))}
	pred := g.Predecessors()
	for _, i := range order {
		t, ready := &g.Tasks[i], 0.0
		for _, d := range pred.Of(i) {
			ready = math.Max(ready, s.Spans[g.Deps[d].From].End+g.Deps[d].Delay)
		}
		s.Spans[i] = dag.Span{Start: ready, End: ready + t.Duration}
		if moves(t) {
			span, err := transfer(i, ready)
			if err != nil {
				return nil, err
			}
			if span != nil {
				s.Spans[i] = *span
			}
		}
		s.Makespan = math.Max(s.Makespan, s.Spans[i].End)
	}
	return s, nil
}
