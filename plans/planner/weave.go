package planner

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"

	"lightpath/plans"
	"lightpath/plans/circuit"
)

// solveWeave looks for plans in which each plane has its own sequence of circuits. A plane serves some steps directly
// and others by forwarding, at the rate and latency that its routes allow: plane j in configuration c serves step i
// at bandwidth x theta(c, i). SWOT is the case of theta 0 or 1, HARVEST that of planes in lockstep. solveWeave starts
// from scratch while the other planners run, then continues from their plans and returns the best of all. So it is
// never above them. docs/planners.md says where it gains, and why.
func solveWeave(ctx context.Context, m *model, o Options) (*plans.Plan, error) {
	best, err := m.bestOfAll(ctx, o)
	if err == nil {
		best.Planner = "weave"
	}
	return best, err
}

// bestOfAll returns solveWeave's plan, with the name of the planner that made it.
func (m *model) bestOfAll(ctx context.Context, o Options) (*plans.Plan, error) {
	first := m.beginSWOT(ctx, o)
	if ctx.Err() != nil {
		return first.best, nil
	}
	s := newWeaving(ctx, m, o)
	early, cancel := ctx, context.CancelFunc(func() {})
	if s != nil { // it needs time after the others
		early, cancel = within(ctx, othersShare)
	}
	defer cancel()
	best, others, err := m.bestOfOthers(early, o, first, func() {
		if s != nil {
			s.start()
		}
	})
	if err == nil && s != nil {
		best = s.finish(best, others)
	}
	for _, plan := range others {
		if divided := m.dividedAs(plan); divided != nil {
			if plan, err := solveSWOT(ctx, divided, o); err == nil && m.better(plan, best) {
				best = plan
			}
		}
	}
	for _, plan := range others { // a bound that one of them proved holds for every plan
		if plan.LowerBoundUS > best.LowerBoundUS {
			best.LowerBoundUS, best.BoundProof = plan.LowerBoundUS, plan.BoundProof
		}
	}
	return best, err
}

// othersShare is the part of the time after which weave continues from the plans of the others.
const othersShare = 0.7

// bestOfOthers runs the other planners, each with all of the effort, and a function beside them.
func (m *model) bestOfOthers(ctx context.Context, o Options, first *swotStart,
	meanwhile func()) (best *plans.Plan, all []*plans.Plan, err error) {
	alone := func(ctx context.Context, m *model, o Options) (*plans.Plan, error) {
		plan, _, err := searchHarvest(ctx, m, o) // its competitors run here as well
		return plan, err
	}
	solvers := []struct {
		name  string
		solve solver
	}{{"static", solveStatic}, {"perstep", m.perStepBelow(first.best)}, {"harvest", alone},
		{"swot", func(ctx context.Context, _ *model, o Options) (*plans.Plan, error) {
			return first.solve(ctx, o)
		}}}
	found := make([]*plans.Plan, len(solvers))
	errs := make([]error, len(solvers))
	var wait sync.WaitGroup
	for i, s := range solvers {
		wait.Go(func() { found[i], errs[i] = s.solve(ctx, m, o) })
	}
	meanwhile()
	wait.Wait()
	var reasons []string
	for i, plan := range found {
		if errs[i] != nil {
			reasons = append(reasons, fmt.Sprintf("%s: %v", solvers[i].name, errs[i]))
			continue
		}
		all = append(all, plan)
		if m.better(plan, best) {
			best = plan
		}
	}
	if best == nil {
		return nil, nil, fmt.Errorf("%w: %s", ErrInfeasible, strings.Join(reasons, "; "))
	}
	return best, all, nil
}

// newWeaving prepares a search. It returns nil if a search is useless: without forwarding, swot searches the same
// plans, and with very many patterns the effort does not suffice.
func newWeaving(ctx context.Context, m *model, o Options) *weaving {
	if len(m.steps) == 0 || !m.p.Forwarding || len(m.pages) > maxWeaveKinds {
		return nil
	}
	s := &weaving{
		w:     newWeaver(m.arranged()),
		rng:   rand.New(rand.NewPCG(uint64(o.Seed), 0x3ea7e)),
		best:  woven{us: math.Inf(1)},
		floor: m.bound().total,
		fast:  true,
		total: int64(o.Effort.Seconds() * flopsPerSecond),
	}
	s.meter = &meter{ctx: ctx, t: &s.w.t, limit: s.total}
	return s
}

// greedy reports whether layouts can only be timed greedily.
func (s *weaving) greedy() bool {
	return !s.w.t.barriers() || len(s.w.kind) > exactTimingSteps
}

// start searches from scratch, with six tenths of the effort.
func (s *weaving) start() {
	w := s.w
	w.t.stop = s.meter.late
	defer func() { w.t.stop = nil }()
	for _, maps := range w.m.weaveSettings() {
		if s.meter.late() {
			return
		}
		w.add(maps)
	}
	s.list()
	s.rotations()
	s.staggered()
	s.sortPool()
	part := s.total * 6 / 10
	if s.greedy() {
		s.anneals(part, 4, 0.02, 0.005)
		return
	}
	s.anneals(part/6, 16, 0.03)
	s.retime()
	s.anneals(part, 4, 0.02, 0.05, 0.01)
}

// finish goes on from the plans of the others and returns the best plan of all.
func (s *weaving) finish(known *plans.Plan, others []*plans.Plan) *plans.Plan {
	w := s.w
	var seeds []layout
	for _, plan := range others {
		if l := w.layoutOf(plan); l != nil {
			w.lean(l)
			seeds = append(seeds, l)
		}
	}
	s.list()
	w.t.stop = s.meter.late
	for _, l := range seeds {
		s.try(l)
	}
	s.sortPool()
	s.anneals(s.total, 3, 0.01, 0.03)
	w.t.stop = nil
	if s.best.l == nil {
		return known
	}
	budget := float64(s.total) / 8
	plan := w.emit(s.best.l, budget)
	s.meter.limit = w.t.flops() + s.total/8
	if plan = s.shortenPeriod(plan, budget/32); w.m.better(plan, known) {
		return plan
	}
	return known
}

// rotations are the seeds of swot, whose units work on direct circuits only.
func (s *weaving) rotations() {
	w := s.w
	page := make([]cell, len(w.m.pages))
	for q := range page {
		page[q] = idle
		if id, ok := w.index.Find(w.m.pages[q].maps[0]); ok {
			page[q] = cellOf(id, both)
		}
	}
	for _, u := range newSwot(w.m).rotationSeeds(s.meter.ctx) {
		l := newLayout(len(w.kind), w.m.units)
		for at := range l {
			if i := at / w.m.units; u[i]>>(at%w.m.units)&1 != 0 {
				l[at] = page[w.m.steps[i].page]
			}
		}
		s.try(l)
	}
}

// staggered builds seeds by best answers: all units in lockstep, then parts of them in turn
// while that helps, so that some switch while others still forward.
func (s *weaving) staggered() {
	units := s.w.m.units
	l := newLayout(len(s.w.kind), units)
	everyone := make([]int, units)
	for u := range everyone {
		everyone[u] = u
	}
	if !s.respond(l, everyone, 0) {
		return
	}
	s.try(l)
	s.sortPool()
	for _, from := range slices.Clone(s.pool[:min(len(s.pool), 4)]) {
		for part := 1; part < units; part++ {
			l := slices.Clone(from.l)
			s.settle(l, [][]int{everyone[:part], everyone[part:]})
			var singles [][]int
			for u := range units {
				singles = append(singles, everyone[u:u+1])
			}
			s.settle(l, singles)
		}
	}
}

// settle lets the groups answer in turn while this improves the layout.
func (s *weaving) settle(l layout, groups [][]int) {
	least := math.Inf(1)
	for stale, g := 0, 0; stale < len(groups) && !s.meter.spent(); g = (g + 1) % len(groups) {
		next := slices.Clone(l)
		stale++
		if !s.respond(next, groups[g], 0) {
			continue
		}
		if us, ok := s.try(next); ok && us < least-tolerance(us) {
			least, stale = us, 0
			copy(l, next)
		}
	}
}

// weaveSettings returns promising settings of a unit: rings, of all ranks and of the ranks that consecutive steps join,
// then the candidates of every planner. Rings come first because they serve most, should there be too many settings to
// measure.
func (m *model) weaveSettings() [][]circuit.Permutation {
	var all [][]circuit.Permutation
	if m.p.Circuits != plans.Duplex {
		rings := m.orbitRings()
		for _, d := range m.ringShifts() {
			rings = append(rings, circuit.Shift(m.p.Ranks, d))
		}
		for _, c := range rings {
			for _, c := range []circuit.Permutation{c, c.Inverse()} {
				if maps, ok := m.mapsFor(c); ok {
					all = append(all, maps)
				}
			}
		}
	}
	all = append(all, m.candidates(maxCandidates)...)
	for q := min(maxCandidates, len(m.pages)); q < len(m.pages); q++ {
		all = append(all, m.pages[q].maps)
	}
	return all
}

// orbitRings returns, for every run of consecutive steps, the circuits that join each set of
// ranks that these steps connect into a ring, in order of rank. With cyclic doubling
// from distance d on that is the shift by d; with patterns by exclusive or, on which no
// ring of all ranks is short, rings of 4, 8, ... ranks, on which c ranks share a rate of 2/c.
func (m *model) orbitRings() []circuit.Permutation {
	var runs []int // pages of the steps, without repetition
	for i := range m.steps {
		if q := m.steps[i].page; !slices.Contains(runs, q) {
			if runs = append(runs, q); len(runs) > maxUnionPages {
				return nil
			}
		}
	}
	var out []circuit.Permutation
	for from := range runs {
		parent := make([]int, m.p.Ranks)
		for r := range parent {
			parent[r] = r
		}
		find := func(r int) int {
			for parent[r] != r {
				parent[r] = parent[parent[r]]
				r = parent[r]
			}
			return r
		}
		for to := from; to < len(runs); to++ {
			for r, d := range m.pages[runs[to]].maps[0] {
				if d != circuit.Dark {
					a, b := find(r), find(d)
					parent[max(a, b)] = min(a, b)
				}
			}
			if to == from {
				continue
			}
			ring, rings := orbits(parent, find)
			out = append(out, ring)
			if rings == 1 {
				break
			}
		}
	}
	return out
}

// orbits joins the ranks with the same root into rings, in order of rank.
func orbits(parent []int, find func(int) int) (ring circuit.Permutation, rings int) {
	last := make([]int, len(parent))
	ring = circuit.AllDark(len(parent))
	for r := range parent {
		root := find(r)
		if root == r {
			rings++
		} else {
			ring[last[root]] = r
		}
		last[root] = r
	}
	for r := range parent {
		if find(r) == r && last[r] != r {
			ring[last[r]] = r
		}
	}
	return ring, rings
}
