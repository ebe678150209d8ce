package iteration

import (
	"fmt"
	"slices"

	"lightpath/plans"
	"lightpath/plans/iteration/trace"
)

// write makes the plan of a solution: the switches of a gap start when the call before has ended, if the next call need
// not wait for them. Otherwise planes that finish early switch at the end of the plan of the call before.
func (s *solver) write(best solution) *Plan {
	var t timed
	us := s.time(&t, best.order, best.choice, early)
	n := len(best.order)
	out := &Plan{IterationUS: us, LowerBoundUS: s.lowerBound(), Fabric: s.p.Digest, Calls: make([]Placed, n)}
	known := map[string]int{}
	for at, call := range best.order {
		next := (at + 1) % n
		end, nextStart := t.end[at], t.start[next]
		if next == 0 {
			nextStart += us
		}
		tail, gap := s.divide(s.all[best.choice[at]], s.all[best.choice[next]], end, nextStart)
		key := fmt.Sprint(best.choice[at], tail, s.all[best.choice[next]].first)
		if len(tail) == 0 {
			key = fmt.Sprint(best.choice[at])
		}
		index, ok := known[key]
		if !ok {
			index, known[key] = len(out.Plans), len(out.Plans)
			out.Plans = append(out.Plans, s.withTail(best.choice[at], best.choice[next], tail))
		}
		c := &out.Calls[at]
		c.Call, c.Plan, c.StartUS, c.EndUS = call, index, t.start[at], end
		if next == 0 {
			for k := range gap {
				gap[k].StartUS -= us
				gap[k].EndUS -= us
			}
		}
		out.Calls[next].Switches = gap
	}
	return out
}

// divide returns the planes that switch at the end of the plan of a, and the switches in the gap after it.
func (s *solver) divide(a, b *candidate, end, nextStart float64) (tail []int, gap []Switch) {
	for j := range a.idle {
		us, moves := s.switchUS(a.last, b.first, j)
		if !moves {
			continue
		}
		if fits := end + us; s.o.Tails || s.idleOf(a, j) > 0 && fits > nextStart+plans.Tolerance(fits, nextStart) {
			tail = append(tail, j)
			continue
		}
		gap = append(gap, Switch{j, end, end + us})
	}
	return tail, gap
}

// withTail returns the plan of a candidate with reconfigurations of planes to the first circuits of another.
func (s *solver) withTail(of, next int, tail []int) *plans.Plan {
	a, b := s.all[of], s.all[next]
	if len(tail) == 0 {
		return a.plan
	}
	plan := *a.plan
	plan.Digest, plan.Repeats = "", nil
	plan.Planes = slices.Clone(plan.Planes)
	for _, j := range tail {
		start := a.us - s.idleOf(a, j)
		us, _ := s.switchUS(a.last, b.first, j)
		plan.Planes[j] = append(slices.Clip(slices.Clone(plan.Planes[j])), plans.Entry{Kind: plans.Reconfigure,
			To: s.settings.all[b.first][j], StartUS: start, EndUS: start + us})
	}
	return &plan
}

// lowerBound returns a time that no iteration can beat: see docs/design/iteration.md.
func (s *solver) lowerBound() float64 {
	t := s.p.Trace
	us, sum := make([]float64, len(t.Calls)), 0.0
	for i, shape := range s.p.Of {
		us[i] = s.bound[shape]
		sum += us[i]
	}
	first, last := t.Ready(0, nil), t.Calls[0].TailUS
	for i := range t.Calls {
		c := &t.Calls[i]
		last = min(last, c.TailUS)
		if begin := slices.IndexFunc(c.After, func(a trace.After) bool { return a.Call >= 0 }); begin < 0 {
			first = min(first, t.Ready(i, nil))
		}
	}
	return max(t.Longest(us), first+sum+last)
}
