package flow

import (
	"fmt"
	"math"
	"slices"

	"lightpath/plans"
	"lightpath/plans/circuit"
)

// The exact method is for up to exactSize variables. From tinySize on it is given the paths of
// an equilibrium within roughEpsilon, for which at most one part in roughPart of the work
// is spent.
const (
	tinySize     = 60
	exactSize    = 800
	roughEpsilon = 3e-2
	roughPart    = 20
)

// solver solves the blocks of one network under one budget.
type solver struct {
	w       *network
	paths   *pather
	epsilon float64 // 0: the best the method gives
	budget  int64   // work allowed
	work    int64   // work done, shortest paths apart
	fewest  int     // hops without which some flow has no path
	most    int     // hops that are allowed
	unit    []float64
}

func newSolver(maps []circuit.Permutation, flows [][2]int, o Options) (*solver, error) {
	w, err := newNetwork(maps, flows)
	if err != nil {
		return nil, err
	}
	s := &solver{w: w, paths: newPather(w), epsilon: o.Epsilon, budget: o.Work, most: o.MaxHops}
	if s.budget <= 0 {
		s.budget = defaultWork
	}
	if s.most <= 0 || s.most > len(w.dst) {
		s.most = len(w.dst)
	}
	s.unit = slices.Repeat([]float64{1}, len(w.head))
	return s, s.reach(flows)
}

// reach finds a path of fewest hops for every flow, or names the first flow that has none
// of the allowed hops.
func (s *solver) reach(flows [][2]int) error {
	lost := false
	for _, b := range s.w.blocks {
		b.short = make([][]part, b.flows)
		s.trees(b, s.unit, s.most, func(f int, dst int32) {
			lost = lost || s.paths.label[dst] < 0
			s.fewest = max(s.fewest, int(s.paths.hops[dst]))
			b.hops += s.paths.dist[dst]
			b.short[f] = []part{{s.paths.path(dst, nil), 1}}
		})
	}
	if !lost {
		return nil
	}
	src := -1
	for _, f := range flows {
		if f[0] != src {
			src = f[0]
			s.paths.from(int32(src), s.unit, s.most, nil)
		}
		if s.paths.label[f[1]] < 0 {
			if s.most < len(s.w.dst) {
				return fmt.Errorf("flow: %d -> %d within %d hops: %w", f[0], f[1], s.most, plans.ErrUnreachable)
			}
			return fmt.Errorf("flow: %d -> %d: %w", f[0], f[1], plans.ErrUnreachable)
		}
	}
	return plans.ErrUnreachable
}

// trees calls visit for every flow of b, numbered in the order of sources and their
// destinations, when the shortest paths of its source are known.
func (s *solver) trees(b *block, length []float64, limit int, visit func(flow int, dst int32)) {
	f := 0
	for _, src := range b.sources {
		s.paths.from(src, length, limit, nil)
		for _, d := range s.w.dst[src] {
			visit(f, d)
			f++
		}
	}
}

// solve solves every block on paths of at most limit hops, of which all flows have one, to within epsilon (0: the best
// possible) or until work is spent.
func (s *solver) solve(limit int, epsilon float64, work int64) {
	end := s.spent() + work
	for i, b := range s.w.blocks {
		// Blocks share the remaining work evenly, so that no block starves the others.
		s.solveBlock(b, limit, epsilon, s.spent()+work/int64(len(s.w.blocks)-i))
		work = max(0, end-s.spent())
	}
}

// spent returns the work done so far, left what remains of the budget.
func (s *solver) spent() int64 { return s.paths.work + s.work }

func (s *solver) left() int64 { return max(0, s.budget-s.spent()) }

// solveBlock leaves in b a routing and a bound. It stops when the work spent reaches until.
func (s *solver) solveBlock(b *block, limit int, epsilon float64, until int64) {
	s.direct(b)
	size := len(b.capacity) + b.flows
	if size > tinySize && size <= exactSize && b.gap() > max(epsilon, exactEpsilon) {
		// A rough equilibrium finds the paths that matter much faster than the program does.
		newEquilibrium(s, b, limit).solve(max(epsilon, roughEpsilon), s.spent()+(until-s.spent())/roughPart)
	}
	if size <= exactSize && b.gap() > max(epsilon, exactEpsilon) {
		newExact(s, b, limit).solve(max(epsilon, exactEpsilon), s.spent()+(until-s.spent())/2)
	}
	if b.gap() > max(epsilon, defaultEpsilon) {
		newEquilibrium(s, b, limit).solve(max(epsilon, defaultEpsilon), until)
	}
}

// gap returns how much theta may be improved, relatively.
func (b *block) gap() float64 { return b.upper/b.theta - 1 }

// direct sends every flow on a path of fewest hops. The other methods start from it. It is
// optimal where all circuits get equal loads.
func (s *solver) direct(b *block) {
	b.parts, b.upper = b.short, math.Inf(1)
	b.prove(s.unit, b.hops)
	busiest := 0
	b.theta, busiest = b.attains(s.w, b.parts)
	if len(s.w.maps) == 1 { // routes are unique, so all must cross the busiest circuit
		b.upper = b.theta
		clear(b.length)
		b.length[busiest] = 1
	}
}

// prove takes lengths under which the flows' distances sum to total as a bound, if it is
// better than the one known.
func (b *block) prove(length []float64, total float64) {
	sum := 0.0
	for c, k := range b.capacity {
		sum += k * length[c]
	}
	if total > 0 && sum/total < b.upper {
		b.upper = sum / total
		b.length = append(b.length[:0], length[:len(b.capacity)]...)
	}
}

// attains returns the theta of parts, and which class limits it.
func (b *block) attains(w *network, parts [][]part) (theta float64, busiest int) {
	load := make([]float64, len(b.capacity))
	for _, flow := range parts {
		for _, p := range flow {
			for _, e := range p.edges {
				load[w.class[e]] += p.share
			}
		}
	}
	for c, x := range load {
		if x/b.capacity[c] > load[busiest]/b.capacity[busiest] {
			busiest = c
		}
	}
	return b.capacity[busiest] / load[busiest], busiest
}

// take makes parts the routing of b, unless the present one is better. It divides the parts of each flow by their sum.
func (b *block) take(w *network, parts [][]part) {
	for f := range parts {
		parts[f] = normalize(parts[f])
	}
	if theta, _ := b.attains(w, parts); theta > b.theta {
		b.theta, b.parts = theta, parts
	}
}

// negligible is the fraction of a flow below which a route is dropped.
const negligible = 1e-9

func normalize(flow []part) []part {
	sum := 0.0
	for _, p := range flow {
		sum += p.share
	}
	kept, rest := flow[:0], 0.0
	for _, p := range flow {
		if p.share > negligible*sum {
			kept, rest = append(kept, p), rest+p.share
		}
	}
	for i := range kept {
		kept[i].share /= rest
	}
	return kept
}
