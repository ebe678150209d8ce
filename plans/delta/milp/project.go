package milp

import (
	"math"

	"lightpath/plans/delta/dag"
)

// project returns the schedule s of a job as one of the job reduced: transfers as they are, and
// what is left of work as early as it may be.
func project(red *dag.Reduced, s *dag.Schedule) (*dag.Schedule, error) {
	return settle(red.Graph, s.Circuits, func(i int) *dag.Span {
		if o := red.Origin[i]; o >= 0 {
			return &s.Spans[o]
		}
		return nil
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
	return settle(g, s.Circuits, func(i int) *dag.Span { return at[i] })
}

// settle takes the spans of transfers and lets everything else start as soon as it may.
func settle(g *dag.Graph, c dag.Circuits, transfer func(i int) *dag.Span) (*dag.Schedule, error) {
	order, err := g.Order()
	if err != nil {
		return nil, err
	}
	s := &dag.Schedule{Circuits: c, Spans: make([]dag.Span, len(g.Tasks))}
	pred := g.Predecessors()
	for _, i := range order {
		t := &g.Tasks[i]
		if from := transfer(i); moves(t) && from != nil {
			s.Spans[i] = *from
		} else {
			start := 0.0
			for _, d := range pred.Of(i) {
				start = math.Max(start, s.Spans[g.Deps[d].From].End+g.Deps[d].Delay)
			}
			s.Spans[i] = dag.Span{Start: start, End: start + t.Duration}
		}
		s.Makespan = math.Max(s.Makespan, s.Spans[i].End)
	}
	return s, nil
}
