package sizes

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"lightpath/plans"
	"lightpath/plans/check"
	"lightpath/plans/circuit"
	"lightpath/plans/sim"
)

// ErrPattern is wrapped by errors about a plan that cannot be resized to a problem.
var ErrPattern = errors.New("sizes: the plan's pattern does not fit the problem")

// Sized is a plan with the problem that it answers. It is not changed here.
type Sized struct {
	Problem *plans.Problem
	Plan    *plans.Plan
}

// scale returns the pattern of s on p, whose fabric and flows are those of s.Problem. Every transmit has the same part
// of its step as in s. All times are as early as possible. The result states no bound and carries no digest. It shares
// circuits and lists of flows with s.Plan. Errors wrap [ErrPattern].
func scale(s Sized, p *plans.Problem) (*plans.Plan, error) {
	if err := compatible(s.Problem, p); err != nil {
		return nil, err
	}
	return rewrite(p, s.Plan, func(_, _ int, e *plans.Entry) {
		factor := 0.0
		if from := s.Problem.Steps[e.Step].Bytes; from > 0 {
			factor = p.Steps[e.Step].Bytes / from
		}
		multiply(e, factor)
	})
}

// compatible returns an error if no plan can be moved between the two problems.
func compatible(from, to *plans.Problem) error {
	switch {
	case from.Demand != nil || to.Demand != nil:
		return fmt.Errorf("%w: a demand has no steps", ErrPattern)
	case from.Ranks != to.Ranks || from.Planes != to.Planes || len(from.Steps) != len(to.Steps):
		return fmt.Errorf("%w: %d ranks, %d planes and %d steps on %d, %d and %d", ErrPattern,
			from.Ranks, from.Planes, len(from.Steps), to.Ranks, to.Planes, len(to.Steps))
	}
	for i := range from.Steps {
		if (from.Steps[i].Bytes > 0) != (to.Steps[i].Bytes > 0) {
			return fmt.Errorf("%w: step %d goes from %v to %v bytes", ErrPattern, i, from.Steps[i].Bytes, to.Steps[i].Bytes)
		}
	}
	return nil
}

// rewrite returns plan with other bytes, played as early as possible on p and checked. change sets the bytes of a
// transmit and of its routes.
func rewrite(p *plans.Problem, plan *plans.Plan, change func(plane, entry int, e *plans.Entry)) (*plans.Plan, error) {
	q := *plan
	q.LowerBoundUS, q.BoundProof, q.Digest = 0, "", ""
	q.Planes = make([][]plans.Entry, len(plan.Planes))
	for j, entries := range plan.Planes {
		q.Planes[j] = append([]plans.Entry(nil), entries...)
		for i := range q.Planes[j] {
			if e := &q.Planes[j][i]; e.Kind == plans.Transmit {
				e.Routes = append([]plans.Route(nil), e.Routes...)
				change(j, i, e)
			}
		}
	}
	return retime(p, &q)
}

// multiply multiplies the bytes of a transmit by a factor.
func multiply(e *plans.Entry, factor float64) {
	e.Bytes *= factor
	for k := range e.Routes {
		e.Routes[k].Bytes *= factor
	}
}

// retime plays plan on p and returns it with the times of the play. The error says why it must not be used.
func retime(p *plans.Problem, plan *plans.Plan) (*plans.Plan, error) {
	played, err := sim.Run(p, plan)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrPattern, err)
	}
	plan = played.Retimed(plan)
	if _, err := check.Check(p, plan); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrPattern, err)
	}
	return plan, nil
}

// same reports whether two plans have one pattern.
func same(a, b *plans.Plan) bool {
	return slices.EqualFunc(a.Initial, b.Initial, circuit.Permutation.Equal) &&
		slices.EqualFunc(a.Planes, b.Planes, func(x, y []plans.Entry) bool { return slices.EqualFunc(x, y, sameEntry) })
}

func sameEntry(e, f plans.Entry) bool {
	return e.Kind == f.Kind && e.Step == f.Step && e.Joint == f.Joint && e.To.Equal(f.To) &&
		(e.Flows == nil) == (f.Flows == nil) && slices.Equal(e.Flows, f.Flows) &&
		slices.EqualFunc(e.Routes, f.Routes, func(r, s plans.Route) bool {
			return r.Flow == s.Flow && slices.Equal(r.Path, s.Path)
		})
}

// between interpolates the bytes of two divisions of one pattern on p, whose steps lie
// between those of a and b.
func between(a, b Sized, p *plans.Problem) (*plans.Plan, error) {
	if err := compatible(a.Problem, p); err != nil {
		return nil, err
	}
	if err := compatible(a.Problem, b.Problem); err != nil {
		return nil, err
	}
	if !same(a.Plan, b.Plan) {
		return nil, fmt.Errorf("%w: the plans of the two ends differ in more than bytes", ErrPattern)
	}
	weight := make([]float64, len(p.Steps)) // of b, per step
	for i := range weight {
		from, to := a.Problem.Steps[i].Bytes, b.Problem.Steps[i].Bytes
		if to > from {
			weight[i] = math.Min(1, math.Max(0, (p.Steps[i].Bytes-from)/(to-from)))
		}
	}
	return rewrite(p, a.Plan, func(j, i int, e *plans.Entry) {
		f, w := &b.Plan.Planes[j][i], weight[e.Step]
		e.Bytes = mix(e.Bytes, f.Bytes, w)
		for k := range e.Routes {
			e.Routes[k].Bytes = mix(e.Routes[k].Bytes, f.Routes[k].Bytes, w)
		}
	})
}

// mix interpolates; the conversions keep every platform from fusing the sum, so that all
// ranks compute the same bits.
func mix(a, b, w float64) float64 { return float64((1-w)*a) + float64(w*b) }
