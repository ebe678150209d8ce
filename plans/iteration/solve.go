package iteration

import (
	"context"
	"math"
	"slices"
	"time"

	"lightpath/plans"
)

// DefaultTimeLimit is the time of a search if Options states none.
const DefaultTimeLimit = 2 * time.Second

// Options tune a search. The zero value is usable.
type Options struct {
	// TimeLimit caps the search; 0 is DefaultTimeLimit. A problem whose plans of calls fit gives the same plan each time.
	TimeLimit time.Duration
	// Effort is the amount of search for one plan of a call, as planner.Options has it; 0 is a small part of TimeLimit.
	Effort time.Duration
	Seed   int64
	// Ways are known ways to run the iteration: a plan of each call, on its shape. The result is never slower than any of
	// them, and may use their plans.
	Ways [][]*plans.Plan
	// Tails is for run times that switch planes in plans only: all switches between two calls are the last entries of the
	// plan of the first one.
	Tails bool
}

// solution is an order of grants with a candidate for each position.
type solution struct {
	order, choice []int
	us            float64
}

// Compare plans p and says what the baselines take. The plan is sealed. When ctx ends, Compare returns its error. When
// the time limit ends, it returns its best plan. Errors wrap [ErrProblem] if a call has no plan.
func Compare(ctx context.Context, p *Problem, o Options) (*Comparison, error) {
	own, left := p.onCircuits()
	c := own.idle()
	if len(left) > 0 {
		var err error
		if c, err = compare(ctx, own, o); err != nil {
			return nil, err
		}
	}
	p.complete(c.Plan, left)
	c.Shapes = len(p.Shapes)
	c.Outcomes = append(c.Outcomes, p.packetWay(c.Plan))
	for i := range c.Outcomes {
		c.Outcomes[i].ExposedUS = c.Outcomes[i].IterationUS - c.Plan.ComputeUS
	}
	return c, c.Plan.Seal()
}

// compare plans the calls on circuits.
func compare(ctx context.Context, p *Problem, o Options) (*Comparison, error) {
	if o.TimeLimit <= 0 {
		o.TimeLimit = DefaultTimeLimit
	}
	n := len(p.Shapes)
	s := &solver{p: p, o: o, deadline: time.Now().Add(o.TimeLimit), byShape: make([][]int, n), asked: map[request]bool{},
		best: slices.Repeat([]int{-1}, n), bound: make([]float64, n)}
	ways := s.ways()
	if err := s.generate(ctx); err != nil {
		return nil, err
	}
	base := s.baselines()
	best := s.search(ctx, base, ways)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return s.comparison(s.write(best), best, base), nil
}

// inOrder is the order of the trace.
func (s *solver) inOrder() []int {
	order := make([]int, len(s.p.Of))
	for i := range order {
		order[i] = i
	}
	return order
}

// search begins with the known ways, and improves. Of solutions that take equally long, it takes the first. A known way
// has been searched for longer, and may avoid costs that the model does not count, such as forwarding.
func (s *solver) search(ctx context.Context, base baselines, ways [][]int) solution {
	best := solution{order: s.inOrder(), us: math.Inf(1)}
	var t timed
	try := func(order, choice []int, us float64) bool {
		if us >= best.us-plans.Tolerance(us, best.us) {
			return false
		}
		best = solution{slices.Clone(order), slices.Clone(choice), us}
		return true
	}
	for _, choice := range ways {
		try(best.order, choice, s.time(&t, best.order, choice, early))
	}
	program := func(order []int) bool {
		choice, us := s.program(order)
		return try(order, choice, us)
	}
	program(best.order)
	if !s.p.chain {
		if sorted := s.byReady(); !slices.Equal(sorted, best.order) {
			program(sorted)
		}
	}
	const rounds = 3
	for range rounds {
		if !s.left(0.9) || ctx.Err() != nil || !s.extend(ctx, &best) || !program(best.order) {
			break
		}
	}
	for _, choice := range [][]int{base.perCall, base.greedy, base.static} {
		if choice != nil {
			try(s.inOrder(), choice, s.time(&t, s.inOrder(), choice, early))
		}
	}
	if !s.p.chain {
		s.descend(ctx, &best)
	}
	return best
}

// byReady returns the calls in the order in which they come if circuits delayed no call.
func (s *solver) byReady() []int {
	ready, end := make([]float64, len(s.p.Of)), make([]float64, len(s.p.Of))
	for i, shape := range s.p.Of {
		ready[i] = s.p.Trace.Ready(i, end)
		end[i] = ready[i] + s.all[s.best[shape]].us
	}
	order := s.inOrder()
	slices.SortStableFunc(order, func(a, b int) int {
		if ready[a] != ready[b] {
			return btoi(ready[a] > ready[b])*2 - 1
		}
		return a - b
	})
	return order
}

// extend plans more candidates where a call waits for a switch: plans of the call that begin on the circuits that it
// finds, and plans of the call before that end on the wanted circuits. It reports whether there are any.
func (s *solver) extend(ctx context.Context, best *solution) bool {
	var t timed
	s.time(&t, best.order, best.choice, early)
	var requests []request
	had := len(s.all)
	for at, call := range best.order {
		h := (at + len(best.order) - 1) % len(best.order)
		before, now := s.all[best.choice[h]], s.all[best.choice[at]]
		free := math.Max(s.p.Trace.Ready(call, t.byCall), t.end[h])
		if at == 0 {
			free = math.Max(s.p.Trace.Ready(call, t.byCall), t.end[h]-t.us)
		}
		if t.start[at] <= free+plans.Tolerance(free, t.start[at]) {
			continue
		}
		for _, r := range []request{
			{now.shape, before.last, anySetting, "swot"}, {now.shape, before.last, anySetting, "static"},
			{before.shape, before.first, now.first, "swot"}, {now.shape, before.last, now.last, "swot"},
		} {
			if s.p.Shapes[r.shape].Demand == nil && !s.asked[r] && !slices.Contains(requests, r) {
				requests = append(requests, r)
			}
		}
	}
	s.ask(ctx, requests, s.effort(64), 0.9)
	return len(s.all) > had
}

// descend changes one choice, or two neighbours of the order, at a time while the iteration gets shorter.
func (s *solver) descend(ctx context.Context, best *solution) {
	var t timed
	const sweeps = 4
	for range sweeps {
		improved := false
		for at := range best.order {
			if !s.left(0.97) || ctx.Err() != nil {
				return
			}
			improved = s.changeChoice(&t, best, at) || improved
			if at+1 < len(best.order) && s.maySwap(best.order[at], best.order[at+1]) {
				improved = s.swap(&t, best, at) || improved
			}
		}
		if !improved {
			return
		}
	}
}

// changeChoice tries all candidates of a position.
func (s *solver) changeChoice(t *timed, best *solution, at int) (improved bool) {
	old := best.choice[at]
	for _, k := range s.byShape[s.all[old].shape] {
		best.choice[at] = k
		if us := s.time(t, best.order, best.choice, early); us < best.us-plans.Tolerance(us, best.us) {
			best.us, old, improved = us, k, true
		}
	}
	best.choice[at] = old
	return improved
}

// maySwap reports whether call b, which follows a, may come before it.
func (s *solver) maySwap(a, b int) bool {
	for _, after := range s.p.Trace.Calls[b].After {
		if after.Call == a {
			return false
		}
	}
	return true
}

func (s *solver) swap(t *timed, best *solution, at int) bool {
	o, c := best.order, best.choice
	flip := func() { o[at], o[at+1], c[at], c[at+1] = o[at+1], o[at], c[at+1], c[at] }
	flip()
	if us := s.time(t, o, c, early); us < best.us-plans.Tolerance(us, best.us) {
		best.us = us
		return true
	}
	flip()
	return false
}
