package flow

import (
	"math"
	"slices"

	"lightpath/plans/circuit"
)

// CostUS is the time of a joint transmit by these routes, without alpha. It is hopUS for each hop of the longest path,
// plus the time of a flow at rate Theta. wireUS is that time on a circuit of its own.
func (r *Result) CostUS(hopUS, wireUS float64) float64 {
	if len(r.Routes) == 0 {
		return 0
	}
	return hopUS*float64(r.Hops) + wireUS/r.Theta
}

// Best returns the routes of at most o.MaxHops hops with the least [Result.CostUS]: longer
// paths where the rate they add is worth their hops. bound is proven: no routes cost less. wireUS is plans.WireUS of
// the bytes of one flow. Arguments and errors are those of [Concurrent]. Upper belongs to the number of hops at which
// the search found the result.
func Best(maps []circuit.Permutation, flows [][2]int, o Options,
	hopUS, wireUS float64) (best *Result, bound float64, err error) {
	if len(flows) == 0 {
		r, err := Concurrent(maps, flows, o)
		return r, 0, err
	}
	s, err := newSolver(maps, flows, o)
	if err != nil {
		return nil, 0, err
	}
	c := chooser{s: s, hopUS: hopUS, wireUS: wireUS, upper: s.bounds(), cost: math.Inf(1)}
	c.gap = slices.Repeat([]float64{math.Inf(1)}, len(c.upper))
	// A rough look at all hops leaves few that need a close one.
	c.search(max(s.epsilon, roughEpsilon))
	if s.epsilon < roughEpsilon {
		c.search(s.epsilon)
	}
	return c.best, c.bound(), nil
}

// chooser searches the best number of hops. Element i of its lists is about s.fewest+i hops.
type chooser struct {
	s             *solver
	hopUS, wireUS float64
	upper         []float64 // bound of theta
	gap           []float64 // of the last solve
	best          *Result
	cost          float64 // of best
}

// price returns a lower bound of the cost of routes of element i.
func (c *chooser) price(i int) float64 {
	return c.hopUS*float64(c.s.fewest+i) + c.wireUS/c.upper[i]
}

// bound returns a lower bound of the cost of all routes.
func (c *chooser) bound() float64 {
	least := c.cost
	for i := range c.upper {
		least = math.Min(least, c.price(i))
	}
	return least
}

// search solves for one number of hops after another, the most promising first, until no other can be better by more
// than epsilon. Lengths found for one number bound theta for all numbers, so it solves few of them.
func (c *chooser) search(epsilon float64) {
	s := c.s
	epsilon = max(epsilon, exactEpsilon)
	tried := make([]bool, len(c.upper))
	for {
		at := -1
		for i, gap := range c.gap {
			if gap > epsilon && !tried[i] && (at < 0 || c.price(i) < c.price(at)) {
				at = i
			}
		}
		if at < 0 || c.price(at) >= c.cost*(1-epsilon) || c.best != nil && s.left() == 0 {
			return
		}
		tried[at] = true
		s.solve(s.fewest+at, epsilon, s.left()/2)
		s.curve(c.upper)
		theta, hops := s.summary()
		c.gap[at] = c.upper[at]/theta - 1
		if cost := c.hopUS*float64(hops) + c.wireUS/theta; cost < c.cost {
			c.best = s.result()
			c.cost = c.best.CostUS(c.hopUS, c.wireUS)
		}
	}
}

// bounds returns room for bounds of theta by hops, from s.fewest on, none of them known.
func (s *solver) bounds() []float64 {
	upper := slices.Repeat([]float64{math.Inf(1)}, s.most-s.fewest+1)
	return upper
}

// curve lowers upper to the bounds that the lengths of the last solve prove. Element i of upper bounds theta on paths
// of at most s.fewest+i hops.
func (s *solver) curve(upper []float64) {
	for _, b := range s.w.blocks {
		if slices.Min(b.length) == slices.Max(b.length) { // more hops lead no nearer
			for i := range upper {
				upper[i] = math.Min(upper[i], b.upper)
			}
			continue
		}
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
	s.paths.from(src, length, s.most, func(hops int) {
		if i := hops - s.fewest; i >= 0 {
			total[i] += sum()
			end = i + 1
		}
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
