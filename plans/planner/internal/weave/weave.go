package weave

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"

	"lightpath/plans"
	"lightpath/plans/circuit"
	"lightpath/plans/planner/internal/effort"
	"lightpath/plans/planner/internal/model"
	"lightpath/plans/planner/internal/swot"
	"lightpath/plans/planner/internal/timeline"
	"lightpath/plans/planner/internal/timing"
)

// New prepares a search. It returns nil if a search is useless: without forwarding, swot searches the same
// plans, and with very many patterns the effort does not suffice.
func New(ctx context.Context, m *model.Model, o effort.Search) *Search {
	if len(m.Steps) == 0 || !m.P.Forwarding || len(m.Pages) > maxWeaveKinds {
		return nil
	}
	w, total := newWeaver(m.Arranged()), int64(o.Operations())
	s := newSearch(w, &timing.Meter{Ctx: ctx, Timing: &w.t, Limit: total},
		rand.New(rand.NewPCG(uint64(o.Seed), 0x3ea7e)), m.Bound.Total)
	s.Fast, s.total = true, total
	return s
}

// greedy reports whether layouts can only be timed greedily.
func (s *Search) greedy() bool {
	return !s.w.t.Barriers() || len(s.w.kind) > timing.ExactSteps
}

// Start searches from scratch, with six tenths of the effort.
func (s *Search) Start() {
	w := s.w
	w.t.Stop = s.Meter.Late
	defer func() { w.t.Stop = nil }()
	for _, maps := range weaveSettings(w.m) {
		if s.Meter.Late() {
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
		s.Anneals(part, 4, 0.02, 0.005)
		return
	}
	s.Anneals(part/6, 16, 0.03)
	s.retime()
	s.Anneals(part, 4, 0.02, 0.05, 0.01)
}

// Finish goes on from the plans of the others and returns the best plan of all.
func (s *Search) Finish(known *plans.Plan, others []*plans.Plan) *plans.Plan {
	w := s.w
	var seeds []layout
	for _, plan := range others {
		if l := w.layoutOf(plan); l != nil {
			w.lean(l)
			seeds = append(seeds, l)
		}
	}
	s.list()
	w.t.Stop = s.Meter.Late
	for _, l := range seeds {
		s.try(l)
	}
	s.sortPool()
	s.Anneals(s.total, 3, 0.01, 0.03)
	w.t.Stop = nil
	if s.Best.Pattern == nil {
		return known
	}
	budget := float64(s.total) / 8
	plan := w.emit(s.Best.Pattern, budget)
	s.Meter.Limit = w.t.Flops() + s.total/8
	if plan = s.shortenPeriod(plan, budget/32); timeline.Better(w.m, plan, known) {
		return plan
	}
	return known
}

// rotations are the seeds of swot, whose units work on direct circuits only.
func (s *Search) rotations() {
	w := s.w
	page := make([]cell, len(w.m.Pages))
	for q := range page {
		page[q] = idle
		if id, ok := w.index.Find(w.m.Pages[q][0]); ok {
			page[q] = cellOf(id, timing.Both)
		}
	}
	for _, u := range swot.Rotations(s.Meter.Ctx, w.m) {
		l := newLayout(len(w.kind), w.m.Units)
		for at := range l {
			if i := at / w.m.Units; u[i]>>(at%w.m.Units)&1 != 0 {
				l[at] = page[w.m.Steps[i].Page]
			}
		}
		s.try(l)
	}
}

// staggered builds seeds by best answers: all units in lockstep, then parts of them in turn
// while that helps, so that some switch while others still forward.
func (s *Search) staggered() {
	units := s.w.m.Units
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
	for _, from := range slices.Clone(s.Pool[:min(len(s.Pool), 4)]) {
		for part := 1; part < units; part++ {
			l := slices.Clone(from.Pattern)
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
func (s *Search) settle(l layout, groups [][]int) {
	least := math.Inf(1)
	for stale, g := 0, 0; stale < len(groups) && !s.Meter.Spent(); g = (g + 1) % len(groups) {
		next := slices.Clone(l)
		stale++
		if !s.respond(next, groups[g], 0) {
			continue
		}
		if us, ok := s.try(next); ok && us < least-model.Tolerance(us) {
			least, stale = us, 0
			copy(l, next)
		}
	}
}

// weaveSettings returns promising settings of a unit: rings, of all ranks and of the ranks that consecutive steps join,
// then the candidates of every planner. Rings come first because they serve most, should there be too many settings to
// measure.
func weaveSettings(m *model.Model) [][]circuit.Permutation {
	var all [][]circuit.Permutation
	if m.P.Circuits != plans.Duplex {
		rings := orbitRings(m)
		for _, d := range m.RingShifts() {
			rings = append(rings, circuit.Shift(m.P.Ranks, d))
		}
		for _, c := range rings {
			for _, c := range []circuit.Permutation{c, c.Inverse()} {
				if maps, ok := m.MapsFor(c); ok {
					all = append(all, maps)
				}
			}
		}
	}
	all = append(all, m.Candidates(model.MaxCandidates)...)
	for q := min(model.MaxCandidates, len(m.Pages)); q < len(m.Pages); q++ {
		all = append(all, m.Pages[q])
	}
	return all
}

// maxRuns is the most pages of whose runs orbitRings makes rings.
const maxRuns = 64

// orbitRings returns, for every run of consecutive steps, the circuits that join each set of
// ranks that these steps connect into a ring, in order of rank. With cyclic doubling
// from distance d on that is the shift by d; with patterns by exclusive or, on which no
// ring of all ranks is short, rings of 4, 8, ... ranks, on which c ranks share a rate of 2/c.
func orbitRings(m *model.Model) []circuit.Permutation {
	var runs []int // pages of the steps, without repetition
	for i := range m.Steps {
		if q := m.Steps[i].Page; !slices.Contains(runs, q) {
			if runs = append(runs, q); len(runs) > maxRuns {
				return nil
			}
		}
	}
	var out []circuit.Permutation
	for from := range runs {
		parent := make([]int, m.P.Ranks)
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
			for r, d := range m.Pages[runs[to]][0] {
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
