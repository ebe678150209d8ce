package milp

import (
	"context"

	"lightpath/plans/delta/dag"
)

// Job is the model of a job: its graph, the graph reduced, and the model of that.
type Job struct {
	*Model
	g   *dag.Graph
	red *dag.Reduced
}

// NewJob states the model of a job with o.Start a schedule of it.
func NewJob(g *dag.Graph, o Options) (*Job, error) {
	j := &Job{g: g, red: dag.Reduce(g)}
	if o.Start != nil {
		start, err := project(j.red, o.Start)
		if err != nil {
			return nil, err
		}
		o.Start = start
	}
	var err error
	j.Model, err = New(j.red.Graph, o)
	return j, err
}

// Solve solves the model until the deadline of ctx. The schedule of the result is one of the job.
func (j *Job) Solve(ctx context.Context, o SolveOptions) (*Result, error) {
	r, err := j.solve(ctx, o)
	if err != nil || r.Schedule == nil {
		return r, err
	}
	r.Schedule, err = lift(j.g, j.red, r.Schedule)
	return r, err
}
