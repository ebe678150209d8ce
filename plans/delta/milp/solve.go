package milp

import (
	"context"
	"fmt"
	"math"
	"time"

	"lightpath/plans/delta/dag"
	"lightpath/plans/mip"
	"lightpath/plans/mip/solver"
)

// SolveOptions say how to solve.
type SolveOptions struct {
	Solver  *solver.Solver
	Gap     float64 // relative; 0: 1e-4, the paper's
	Threads int
	// Cold leaves out the start.
	Cold bool
	// Ports adds the second pass: the fewest ports at the makespan of the first (equation 4). The first pass then has
	// half of the time until the deadline.
	Ports bool
}

// Result of solving a model.
type Result struct {
	Status   solver.Status
	Schedule *dag.Schedule // nil where no solution was found
	BoundUS  float64       // no schedule within the model's windows is shorter
	Gap      float64
	Wall     time.Duration // of all passes
	Hot      bool          // the solver had the start
	// Of the second pass, where asked for.
	PortsStatus solver.Status
	PortsBound  float64 // no topology with that makespan takes fewer ports
}

// solve has the model solved until the deadline of ctx. If the solver finds no solution, the result is the start, if
// the solver had it. The bound is proven for the program as it is: with a margin of [Exact] for all schedules of its
// number of intervals, else for those within its anchors. The error is the solver's, or says that its values make no
// schedule.
func (m *Model) solve(ctx context.Context, o SolveOptions) (*Result, error) {
	began := time.Now()
	if o.Gap == 0 {
		o.Gap = 1e-4
	}
	so := solver.Options{Threads: o.Threads, Gap: o.Gap}
	if !o.Cold {
		if start, err := m.StartValues(); err == nil {
			so.Start = start
		}
	}
	first, err := m.shortest(ctx, o, so)
	if err != nil {
		return nil, err
	}
	r := &Result{Status: first.Status, BoundUS: first.Bound * m.unit, Gap: first.Gap(), Hot: so.Start != nil}
	if first.Values == nil {
		r.Wall = time.Since(began)
		return r, nil
	}
	values := first.Values
	if o.Ports {
		so.Start = values
		second, err := m.fewestPorts(ctx, o.Solver, so, first.Objective)
		if err != nil {
			return nil, err
		}
		r.PortsStatus, r.PortsBound = second.Status, math.Ceil(math.Max(0, second.Bound-1e-6))
		if second.Values != nil {
			values = second.Values
		}
	}
	r.Schedule, err = m.polished(ctx, o.Solver, so, values)
	r.Wall = time.Since(began)
	return r, err
}

// shortest is the first pass: the least makespan.
func (m *Model) shortest(ctx context.Context, o SolveOptions, so solver.Options) (solver.Result, error) {
	if deadline, ok := ctx.Deadline(); ok && o.Ports {
		half, cancel := context.WithTimeout(ctx, time.Until(deadline)/2)
		defer cancel()
		ctx = half
	}
	r, err := o.Solver.Solve(ctx, m.program, so)
	r.Bound = math.Max(0, r.Bound)
	if err == nil && r.Values == nil && so.Start != nil {
		// CBC also calls a program infeasible if it cannot be better than the start.
		r.Status, r.Values, r.Objective = solver.Feasible, so.Start, m.program.Cost(so.Start)
	}
	return r, err
}

// fewestPorts is the second pass: equation 4, with the makespan of the first, to within the
// solver's tolerance.
func (m *Model) fewestPorts(
	ctx context.Context, s *solver.Solver, so solver.Options, makespan float64,
) (solver.Result, error) {
	p := m.program.Clone()
	p.Bound(m.makespan, 0, makespan*(1+1e-7))
	p.Minimize(m.ports...)
	so.Gap = 1e-6
	return s.Solve(ctx, p, so)
}

// polished solves once more with everything integer fixed to what values round to, so that no
// times lean on fractions of it, and makes a schedule. Where rounding leaves no solution, values
// are taken as they are.
func (m *Model) polished(
	ctx context.Context, s *solver.Solver, so solver.Options, values []float64,
) (*dag.Schedule, error) {
	p := m.program.Clone()
	for i := range p.Size().Vars {
		if v := mip.Var(i); p.Integer(v) {
			x := math.Round(values[v])
			p.Bound(v, x, x)
		}
	}
	so.Start = nil
	last, err := s.Solve(ctx, p, so)
	if err != nil {
		return nil, err
	}
	if last.Values != nil {
		values = last.Values
	}
	schedule, err := m.Schedule(values)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.Name(), err)
	}
	return schedule, nil
}
