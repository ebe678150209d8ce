package planner

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"lightpath/plans"
	"lightpath/plans/circuit"
)

// solveSWOT divides every step unevenly over the planes and hides reconfigurations behind
// the other planes' transfers (SWOT, Section 3). The search is over patterns: which
// unit of planes works in which step. The best timing of a pattern is a linear program.
// It begins with periodic patterns, never forwards, and never returns anything worse than static
// (without forwarding) or perstep.
func solveSWOT(ctx context.Context, m *model, o Options) (*plans.Plan, error) {
	return m.beginSWOT(ctx, o).solve(ctx, o)
}

// swotStart is the start of a search of patterns.
type swotStart struct {
	w     *swot
	best  *plans.Plan   // of the best periodic pattern
	took  time.Duration // to write it
	seeds []pattern
}

// mostTried is how many periodic patterns a search begins with.
const mostTried = 16

// emitBudget is how many operations the timing of one plan may take.
func (o Options) emitBudget() float64 { return o.Effort.Seconds() * flopsPerSecond / 4 }

// beginSWOT finds the best periodic pattern.
func (m *model) beginSWOT(ctx context.Context, o Options) *swotStart {
	s := &swotStart{w: newSwot(m.arranged())}
	if len(m.steps) == 0 {
		s.best = newTimeline(m, m.startMaps(m.darkMaps())).finish("swot")
		return s
	}
	best, tried := s.w.bestPeriodic(ctx, math.Inf(1))
	if best.u == nil { // times that are not finite
		s.best = m.perStep(false).finish("swot")
		return s
	}
	began := time.Now()
	s.best = s.w.emit(best.u, o.emitBudget())
	s.took = time.Since(began)
	for _, t := range tried[:min(len(tried), mostTried)] {
		s.seeds = append(s.seeds, t.u)
	}
	return s
}

// solve goes on from the periodic patterns.
func (s *swotStart) solve(ctx context.Context, o Options) (*plans.Plan, error) {
	w, m, best := s.w, s.w.m, s.best
	if len(m.steps) == 0 {
		return best, nil
	}
	ctx, cancel := sooner(ctx, 2*s.took) // keep time to write the result
	defer cancel()
	keep := func(plan *plans.Plan, err error) {
		if err == nil && m.better(plan, best) {
			plan.Planner = "swot"
			best = plan
		}
	}
	keep(m.perStepBelow(best)(ctx, m, o))
	if ctx.Err() != nil {
		return best, nil
	}
	seeds := append(w.rotationSeeds(ctx), s.seeds...)
	static, err := solveStatic(ctx, m.withoutForwarding(), o)
	if keep(static, err); err == nil {
		if u := w.staticSeed(static.Initial); u != nil {
			seeds = append(seeds, u)
		}
	}
	pattern, proven := w.search(ctx, o, seeds, best.CCTUS)
	if pattern != nil {
		budget := o.emitBudget()
		plan := w.emit(pattern, budget)
		loop := &meter{ctx: ctx, t: &w.t, limit: w.t.flops() + int64(budget/2)}
		keep(w.shortenPeriod(pattern, plan, loop, budget/64), nil)
	}
	if proven {
		w.stateOptimum(best)
	}
	return best, nil
}

// staticSeed is the pattern of a plan that keeps its circuits.
func (w *swot) staticSeed(maps []circuit.Permutation) pattern {
	u := make(pattern, len(w.page))
	k := w.m.unitPlanes
	for i := range u {
		for unit := 0; unit < w.m.units; unit++ {
			if holdsPage(maps[unit*k:(unit+1)*k], w.m.pages[w.page[i]].maps) {
				u[i] |= 1 << unit
			}
		}
		if u[i] == 0 {
			return nil
		}
	}
	return u
}

// pattern says, per step, which units work in it (bit u: unit u).
type pattern []uint64

// swot evaluates patterns. Not safe for concurrent use.
type swot struct {
	m        *model
	t        timing
	page     []int // per step
	joins    [][]bool
	exclude  bool            // no two pages fit on one unit
	holds    [][]bool        // [unit][page]: the given initial circuits serve it; nil: free
	planes   []int           // per step: planes of a unit set to its page that serve it
	costs    map[int]float64 // switch cost by from*pages+to, where it depends on them
	segments []int           // scratch: pages of the setting being extended
}

func newSwot(m *model) *swot {
	w := &swot{m: m, costs: map[int]float64{}}
	w.t.units = m.units
	for i := range m.steps {
		st := &m.steps[i]
		k := servers(m.pages[st.page].maps, st.pattern)
		w.page = append(w.page, st.page)
		w.planes = append(w.planes, k)
		w.t.work = append(w.t.work, m.usPerByte*st.bytes/float64(k))
		w.t.joined = append(w.t.joined, i > 0 && !m.lastOfStep(i-1))
	}
	w.t.useAt = make([]int32, len(m.steps)*m.units)
	w.compileJoins()
	for u := range m.initial {
		holds := make([]bool, len(m.pages))
		for q := range m.pages {
			holds[q] = holdsPage(m.initial[u], m.pages[q].maps)
		}
		w.holds = append(w.holds, holds)
	}
	return w
}

// compileJoins finds the pages that fit on one unit together. If the cost of a switch depends on the changed circuits,
// no pages are joined, so that the cost depends on two pages only.
func (w *swot) compileJoins() {
	n := len(w.m.pages)
	w.joins = make([][]bool, n)
	w.exclude = true
	for p := range w.joins {
		w.joins[p] = make([]bool, n)
		w.joins[p][p] = true
	}
	if n > maxCandidates || w.m.p.ReconfigPerPort > 0 {
		w.exclude = w.m.p.ReconfigPerPort == 0 && w.fullPages()
		return
	}
	for p := 0; p < n; p++ {
		for q := p + 1; q < n; q++ {
			if _, ok := union(w.m.pages[p].maps, w.m.pages[q].maps); ok {
				w.joins[p][q], w.joins[q][p], w.exclude = true, true, false
			}
		}
	}
}

// fullPages reports whether every page uses every port: then no two fit on one unit.
func (w *swot) fullPages() bool {
	return !slices.ContainsFunc(w.m.pages, func(q page) bool { return slices.Contains(q.maps[0], circuit.Dark) })
}

// holdsPage reports whether a unit's circuits include those of maps.
func holdsPage(current, maps []circuit.Permutation) bool {
	if len(maps) == 1 {
		return current[0].Covers(maps[0])
	}
	return current[0].Covers(maps[0]) && current[1].Covers(maps[1]) ||
		current[0].Covers(maps[1]) && current[1].Covers(maps[0])
}

// initialPage is the state of a unit with its given initial circuits, freePage that of a unit whose first setting is
// free.
const (
	initialPage = -1
	freePage    = -2
)

// unitState walks a unit through the steps it works in.
type unitState struct {
	pages []int // the setting is the union of these
	start int   // initialPage or freePage before the first setting
}

// next brings the unit to a setting that serves q, and reports whether it has to switch.
func (w *swot) next(s *unitState, unit, q int) bool {
	if len(s.pages) == 0 {
		if s.start == initialPage && w.holds[unit][q] {
			return false
		}
		s.pages = append(s.pages, q)
		return s.start == initialPage
	}
	for _, p := range s.pages {
		if !w.joins[p][q] {
			s.pages = append(s.pages[:0], q)
			return true
		}
	}
	if !slices.Contains(s.pages, q) {
		s.pages = append(s.pages, q)
	}
	return false
}

func (w *swot) startState() int {
	if w.holds != nil {
		return initialPage
	}
	return freePage
}

// switchCost returns the time to switch unit from page from (or initialPage) to page to.
func (w *swot) switchCost(unit, from, to int) float64 {
	p := w.m.p
	if p.ReconfigPerPort == 0 {
		return p.ReconfigUS
	}
	key := (unit*len(w.m.pages)+to)*(len(w.m.pages)+1) + from + 1
	if from != initialPage {
		key = to*(len(w.m.pages)+1) + from + 1 + w.m.units*len(w.m.pages)*(len(w.m.pages)+1)
	}
	if c, ok := w.costs[key]; ok {
		return c
	}
	before := w.m.pages[max(from, 0)].maps
	if from == initialPage {
		before = w.m.initial[unit]
	}
	cost := 0.0
	for j, c := range w.m.pages[to].maps {
		cost = math.Max(cost, plans.ReconfigUS(p, before[j], c))
	}
	w.costs[key] = cost
	return cost
}

// load describes the first steps of a pattern to the timing program.
func (w *swot) load(u pattern, steps int) {
	t := &w.t
	t.uses, t.switches = t.uses[:0], t.switches[:0]
	for i := range t.useAt[:steps*t.units] {
		t.useAt[i] = -1
	}
	for unit := 0; unit < t.units; unit++ {
		state := unitState{pages: w.segments[:0], start: w.startState()}
		last, bit := -1, uint64(1)<<unit
		from := state.start
		for i := 0; i < steps; i++ {
			if u[i]&bit == 0 {
				continue
			}
			k := use{step: i, unit: unit, before: -1, after: -1, rate: 1, o: w.m.directUS}
			q := w.page[i]
			if w.next(&state, unit, q) {
				k.before = len(t.switches)
				if last >= 0 {
					t.uses[t.useAt[last*t.units+unit]].after = k.before
				}
				t.switches = append(t.switches, swap{unit, last, i, w.switchCost(unit, from, q)})
			}
			if len(state.pages) > 0 {
				from = state.pages[0]
			}
			t.useAt[i*t.units+unit] = int32(len(t.uses))
			t.uses = append(t.uses, k)
			last = i
		}
		w.segments = state.pages[:0]
	}
}

// evaluate returns the least CCT of the first steps of a pattern, or false once this is known to be at least cutoff.
func (w *swot) evaluate(u pattern, steps int, cutoff float64) (float64, bool) {
	w.load(u, steps)
	return w.t.solve(steps, cutoff)
}

// estimate is evaluate with the greedy timing, which is fast. Its result is never below evaluate's.
func (w *swot) estimate(u pattern, cutoff float64) (float64, bool) {
	w.load(u, len(u))
	return w.t.greedy(len(u), cutoff)
}

// lean drops the uses that the greedy timing leaves without bytes, until all have bytes, and returns the greedy CCT.
// Dropping a use only makes its unit ready earlier.
func (w *swot) lean(u pattern) float64 {
	for {
		us, _ := w.estimate(u, math.Inf(1))
		dropped := false
		for k, x := range w.t.shares {
			if use := w.t.uses[k]; x == 0 {
				u[use.step] &^= 1 << use.unit
				dropped = true
			}
		}
		if !dropped {
			return us
		}
	}
}

// stateOptimum records that branch and bound has closed: the plan's CCT is the least of
// all SWOT plans. That is a bound of the problem where some rank sees the whole structure.
func (w *swot) stateOptimum(plan *plans.Plan) {
	rank, ok := w.witness()
	if !ok {
		return
	}
	plan.LowerBoundUS = plan.CCTUS
	plan.BoundProof = fmt.Sprintf("optimal: branch and bound over every assignment of planes to steps, each timed by an "+
		"exact linear program; every plan, seen from rank %d, is one of these", rank)
}

// witness finds a rank with different destinations on all pages. In every plan, the circuits of this rank alone form a
// SWOT plan. So the SWOT optimum bounds all plans that do not forward.
func (w *swot) witness() (int, bool) {
	p := w.m.p
	if len(w.m.asked) < len(w.m.steps) { // the order of sub-steps is free
		return 0, false
	}
	if p.Forwarding || !w.exclude || p.ReconfigPerPort > 0 || p.Circuits == plans.Interleaved {
		return 0, false
	}
next:
	for r := 0; r < p.Ranks; r++ {
		for i := range w.m.steps {
			if w.m.steps[i].pattern[r] == circuit.Dark {
				continue next // a duplex circuit may be there for the way back only
			}
		}
		seen := map[int]bool{}
		for _, q := range w.m.pages {
			d := q.maps[0][r]
			if d == circuit.Dark || seen[d] {
				continue next
			}
			seen[d] = true
		}
		for j := range w.m.initial {
			for q := range w.m.pages {
				if (p.Initial[j][r] == w.m.pages[q].maps[0][r]) != w.holds[j][q] {
					continue next
				}
			}
		}
		return r, true
	}
	return 0, false
}
