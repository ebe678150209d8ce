package planning

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"time"

	"lightpath/plans"
	"lightpath/plans/iteration"
	"lightpath/plans/iteration/trace"
	"lightpath/plans/sim"
)

// whole is an iteration as the planner of iterations sees it: operations without a plan of their own are part of gaps.
type whole struct {
	problem *iteration.Problem
	stepAt  []int // call of the trace -> its step
}

// poseWhole returns the problem of steps whose own plans are given; those of nil plans are left out. It is nil if there
// is no other.
func (o *Site) poseWhole(steps []Step, own []*Agreed) (*whole, error) {
	w := &whole{}
	all := make([]int, o.Ranks)
	for r := range all {
		all[r] = r
	}
	t := &trace.Trace{Ranks: o.Ranks, Communicators: []trace.Communicator{{Groups: [][]int{all}}}}
	problems := []*plans.Problem{} // by algorithm: its name is a number
	names := map[*plans.Problem]string{}
	gap := time.Duration(0)
	for i, p := range own {
		gap += max(0, steps[i].Gap)
		if p == nil {
			continue
		}
		name, ok := names[p.Problem]
		if !ok {
			name = strconv.Itoa(len(problems))
			names[p.Problem], problems = name, append(problems, p.Problem)
		}
		t.Calls = append(t.Calls, trace.Call{Collective: steps[i].Shape.Kind.String(), Algorithm: name,
			After: []trace.After{{Call: len(t.Calls) - 1, GapUS: us(gap)}}}) // -1: the begin
		w.stepAt = append(w.stepAt, i)
		gap = 0
	}
	if len(t.Calls) == 0 {
		return nil, nil
	}
	t.Calls[len(t.Calls)-1].TailUS = us(gap)
	fabric := *o.Template
	fabric.Planes = len(o.Planes)
	var err error
	w.problem, err = iteration.Pose(&fabric, o.fabric, t, func(c *trace.Call, _ int) (iteration.Exchange, error) {
		n, err := strconv.Atoi(c.Algorithm)
		if err != nil {
			return iteration.Exchange{}, err
		}
		return iteration.Exchange{Steps: problems[n].Steps}, nil
	})
	return w, err
}

func us(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// together plans the steps of an iteration together. ways are known plans of the steps; the first are those of single
// calls. By the cost model the result is never slower than any of them. The second result says what it gains.
func (o *Site) together(ctx context.Context, steps []Step, ways [][]*Agreed) ([]*Agreed, string, error) {
	w, err := o.poseWhole(steps, ways[0])
	if w == nil || err != nil {
		return ways[0], "", err
	}
	limit := o.Cfg.Plan.Limit
	c, err := iteration.Compare(ctx, w.problem, iteration.Options{TimeLimit: limit, Effort: min(firstEffort, limit),
		Ways: w.plansOf(ways), Tails: true})
	if err != nil {
		return nil, "", err
	}
	made := make([]*Agreed, len(c.Plan.Plans))
	planned := make([]*Agreed, len(steps))
	for at := range c.Plan.Calls {
		n := c.Plan.Calls[at].Plan
		i := w.stepAt[c.Plan.Calls[at].Call]
		if made[n] == nil {
			if made[n], err = o.agreed(&steps[i], c.Plan.Plans[n], ways, i); err != nil {
				return nil, "", fmt.Errorf("%v: %w", &steps[i].Shape, err)
			}
		}
		planned[i] = made[n]
	}
	return planned, fmt.Sprintf("; exposed communication %.1f us, with plans of single calls %.1f us",
		c.Plan.ExposedUS(), c.Of(iteration.PerCall).ExposedUS), nil
}

// plansOf returns the plans of ways by call.
func (w *whole) plansOf(ways [][]*Agreed) [][]*plans.Plan {
	all := make([][]*plans.Plan, len(ways))
	for k, way := range ways {
		for _, i := range w.stepAt {
			all[k] = append(all[k], way[i].Plan)
		}
	}
	return all
}

// agreed returns a plan of step i as ranks use it: the known plan that does the same, since ranks may have it, or a new
// one.
func (o *Site) agreed(s *Step, plan *plans.Plan, ways [][]*Agreed, i int) (*Agreed, error) {
	for _, way := range ways {
		if sameOrder(plan, way[i].Plan) {
			return way[i], nil
		}
	}
	j, err := o.OfChained(s.Shape, plan)
	if err != nil {
		return nil, err
	}
	played, err := sim.Run(j.Problem, plan)
	if err != nil {
		return nil, err
	}
	own := played.Retimed(plan)
	own.LowerBoundUS, own.BoundProof, own.Repeats = 0, "", nil // those of free circuits
	return j.sealed(own)
}

// sameOrder reports whether plans do the same, at whatever times.
func sameOrder(a, b *plans.Plan) bool {
	return equalMaps(a.Initial, b.Initial) && slices.EqualFunc(a.Planes, b.Planes, func(x, y []plans.Entry) bool {
		return slices.EqualFunc(x, y, func(e, f plans.Entry) bool {
			e.StartUS, e.EndUS, f.StartUS, f.EndUS = 0, 0, 0, 0
			return reflect.DeepEqual(e, f)
		})
	})
}
