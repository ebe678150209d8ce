// Package play runs an iteration plan again and again, as early as its order allows.
//
// Layer: beside the solver, on plans/sim. Like a run time, it takes from a plan only the order of grants, the plans of
// calls and which planes switch in a gap. It ignores planned times. It performs no I/O.
package play

import (
	"fmt"
	"math"

	"lightpath/plans"
	"lightpath/plans/circuit"
	"lightpath/plans/iteration"
	"lightpath/plans/iteration/trace"
	"lightpath/plans/sim"
)

// Run plays a number of iterations, at least 2. It returns the mean time of one in the second half. Errors wrap
// [sim.ErrPlan], naming the call.
func Run(p *iteration.Problem, plan *iteration.Plan, iterations int) (us float64, err error) {
	r := &runner{p: p, plan: plan, busy: make([]float64, p.Fabric.Planes), known: map[[2]int]*sim.Result{}}
	begins := []float64{0}
	for range max(2, iterations) {
		next, err := r.iteration(begins[len(begins)-1])
		if err != nil {
			return 0, err
		}
		begins = append(begins, next)
	}
	n := len(begins) - 1
	half := n / 2
	return (begins[n] - begins[half]) / float64(n-half), nil
}

type runner struct {
	p     *iteration.Problem
	plan  *iteration.Plan
	maps  []circuit.Permutation // of planes; nil before the first call
	busy  []float64             // by plane: until when
	last  float64               // end of the last call
	known map[[2]int]*sim.Result
}

// iteration plays one iteration and returns the begin of the next.
func (r *runner) iteration(begin float64) (float64, error) {
	t := r.p.Trace
	end := make([]float64, len(t.Calls))
	next := begin + t.ComputeUS
	for at := range r.plan.Calls {
		call := &r.plan.Calls[at]
		start := begin
		for _, a := range t.Calls[call.Call].After {
			from := begin
			if a.Call != trace.Begin {
				from = end[a.Call]
			}
			start = math.Max(start, from+a.GapUS)
		}
		us, packets := r.p.PacketUS(call.Call)
		played := start + us
		if !packets {
			var err error
			if played, err = r.call(at, start); err != nil {
				return 0, fmt.Errorf("calls[%d]: %w", at, err)
			}
		}
		end[call.Call] = played
		next = math.Max(next, played+t.Calls[call.Call].TailUS)
	}
	return next, nil
}

// move switches a plane once it and the call before have ended. The planes of an interleaved pair wait for each other.
func (r *runner) move(j int, to circuit.Permutation) {
	from := math.Max(r.busy[j], r.last)
	us := plans.ReconfigUS(r.p.Fabric, r.maps[j], to)
	if r.p.Fabric.Circuits == plans.Interleaved && j%2 == 1 {
		// Its partner has moved just now: both end together.
		r.busy[j-1] = math.Max(r.busy[j-1], from+us)
		r.busy[j], r.maps[j] = r.busy[j-1], to
		return
	}
	r.busy[j], r.maps[j] = from+us, to
}

// call switches the planes of the gap, and plays the call, which comes at ready. It returns its end.
func (r *runner) call(at int, ready float64) (float64, error) {
	call := &r.plan.Calls[at]
	plan := r.plan.Plans[call.Plan]
	if r.maps == nil {
		r.maps = append(r.maps, plan.Initial...)
	} else {
		for _, sw := range call.Switches {
			r.move(sw.Plane, plan.Initial[sw.Plane])
		}
	}
	start := math.Max(ready, r.last)
	for j, m := range r.maps {
		if r.p.Shapes[r.p.Of[call.Call]].Demand == nil && !m.Equal(plan.Initial[j]) {
			return 0, fmt.Errorf("%w: plane %d has other circuits than the call begins on", sim.ErrPlan, j)
		}
		start = math.Max(start, r.busy[j])
	}
	key := [2]int{call.Plan, r.p.Of[call.Call]}
	result := r.known[key]
	if result == nil {
		problem := *r.p.Shapes[key[1]]
		problem.Initial = plan.Initial
		var err error
		if result, err = sim.Run(&problem, plan); err != nil {
			return 0, err
		}
		r.known[key] = result
	}
	for j, spans := range result.Planes {
		if n := len(spans.Spans); n > 0 {
			r.busy[j] = start + spans.Spans[n-1].EndUS
		}
	}
	r.maps = append(r.maps[:0], iteration.Final(plan)...)
	r.last = start + result.CCTUS
	return r.last, nil
}
