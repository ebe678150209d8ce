package flow

import (
	"math"

	"lightpath/plans/circuit"
)

// CostUS is what a joint transmit by these routes takes after alpha: hopUS for each hop of
// the longest path, and the time of a flow, wireUS on a circuit of its own, at rate Theta.
func (r *Result) CostUS(hopUS, wireUS float64) float64 {
	if len(r.Routes) == 0 {
		return 0
	}
	return hopUS*float64(r.Hops) + wireUS/r.Theta
}

// Best returns the routes of at most o.MaxHops hops with the least [Result.CostUS]: longer
// paths where the rate they add is worth their hops. bound is proven: no routes cost less.
// wireUS is what plans.WireUS says of the bytes of one flow. Arguments and errors are those
// of [Concurrent]; Upper belongs to the hops at which the search met the result.
func Best(maps []circuit.Permutation, flows [][2]int, o Options, hopUS, wireUS float64) (best *Result, bound float64, err error) {
	if len(flows) == 0 {
		r, err := Concurrent(maps, flows, o)
		return r, 0, err
	}
	s, err := newSolver(maps, flows, o)
	if err != nil {
		return nil, 0, err
	}
	upper := s.bounds()
	solved := make([]bool, len(upper))
	cost := math.Inf(1)
	for {
		// The most promising number of hops comes next. Lengths found for one of them
		// bound theta for all of them, so few are solved before the rest is out of question.
		next, least := -1, math.Inf(1)
		bound = cost
		for i, u := range upper {
			c := hopUS*float64(s.fewest+i) + wireUS/u
			bound = math.Min(bound, c)
			if !solved[i] && c < least {
				next, least = i, c
			}
		}
		if next < 0 || least >= cost*(1-max(s.epsilon, exactEpsilon)) || best != nil && s.budget <= 0 {
			best.Work = s.given - s.budget
			return best, bound, nil
		}
		s.solve(s.fewest + next)
		solved[next] = true
		s.curve(upper)
		theta, hops := s.summary()
		if c := hopUS*float64(hops) + wireUS/theta; c < cost {
			best = s.result()
			cost = best.CostUS(hopUS, wireUS)
		}
	}
}

// Frontier returns the routings among which Best chooses, whatever hops and bytes cost:
// Hops and Theta both rise from each to the next. The first has the fewest hops possible,
// the last the largest Theta. Steps of Theta that are smaller than the gap of the method may
// be missing.
func Frontier(maps []circuit.Permutation, flows [][2]int, o Options) ([]*Result, error) {
	if len(flows) == 0 {
		r, err := Concurrent(maps, flows, o)
		return []*Result{r}, err
	}
	s, err := newSolver(maps, flows, o)
	if err != nil {
		return nil, err
	}
	var all []*Result
	last := 0.0
	for limit := s.fewest; ; {
		s.solve(limit)
		if theta, _ := s.summary(); theta > last*(1+exactEpsilon) {
			all, last = append(all, s.result()), theta
		}
		upper := s.bounds()
		s.curve(upper)
		// Hops at which these lengths remain a proof need no look.
		known := upper[limit-s.fewest]
		for limit++; limit <= s.most && upper[limit-s.fewest] <= known*(1+1e-7); limit++ {
		}
		if limit > s.most || s.budget <= 0 {
			return all, nil
		}
	}
}

// bounds returns room for bounds of theta by hops, from s.fewest on, none of them known.
func (s *solver) bounds() []float64 {
	upper := make([]float64, s.most-s.fewest+1)
	for i := range upper {
		upper[i] = math.Inf(1)
	}
	return upper
}

// curve lowers upper, element i of which bounds theta on paths of at most s.fewest+i hops,
// to what the lengths of the last solve prove.
func (s *solver) curve(upper []float64) {
	for _, b := range s.w.blocks {
		total := make([]float64, len(upper))   // sum of distances
		later := make([]float64, len(upper)+1) // from this element on in addition
		for _, src := range b.sources {
			s.curveOf(src, b.length, total, later)
		}
		capacity := 0.0
		for c, k := range b.capacity {
			capacity += k * b.length[c]
		}
		rest := 0.0
		for i := range total {
			rest += later[i]
			upper[i] = math.Min(upper[i], capacity/(total[i]+rest))
		}
	}
}

// curveOf adds the distances of one source.
func (s *solver) curveOf(src int32, length, total, later []float64) {
	sum := func() float64 {
		d := 0.0
		for _, dst := range s.w.dst[src] {
			d += s.paths.dist[dst]
		}
		return d
	}
	end := 0
	s.paths.from(src, length, s.most, func(hops int) bool {
		if i := hops - s.fewest; i >= 0 {
			total[i] += sum()
			end = i + 1
		}
		return true
	})
	later[end] += sum()
}

// summary returns theta and the longest path of the last solve.
func (s *solver) summary() (theta float64, hops int) {
	theta = math.Inf(1)
	for _, b := range s.w.blocks {
		theta = math.Min(theta, b.theta)
		for _, flow := range b.parts {
			for _, p := range flow {
				hops = max(hops, len(p.edges))
			}
		}
	}
	return theta, hops
}
