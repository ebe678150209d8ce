package swot

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"lightpath/plans"
	"lightpath/plans/circuit"
	"lightpath/plans/planner/internal/baseline"
	"lightpath/plans/planner/internal/effort"
	"lightpath/plans/planner/internal/model"
	"lightpath/plans/planner/internal/timeline"
	"lightpath/plans/planner/internal/timing"
)

// Solve divides every step unevenly over the planes and hides reconfigurations behind
// the other planes' transfers (SWOT, Section 3). The search is over patterns: which
// unit of planes works in which step. The best timing of a pattern is a linear program.
// It begins with periodic patterns, never forwards, and never returns anything worse than static
// (without forwarding) or perstep.
func Solve(ctx context.Context, m *model.Model, o effort.Search) (*plans.Plan, error) {
	return Begin(ctx, m, o).Solve(ctx, o)
}

// Start is the start of a search of patterns.
type Start struct {
	w     *swot
	Best  *plans.Plan   // of the best periodic pattern
	took  time.Duration // to write it
	seeds []pattern
}

// mostTried is how many periodic patterns a search begins with.
const mostTried = 16

// Begin finds the best periodic pattern.
func Begin(ctx context.Context, m *model.Model, o effort.Search) *Start {
	s := &Start{w: newSwot(m.Arranged())}
	if len(m.Steps) == 0 {
		s.Best = timeline.New(m, m.StartMaps(m.DarkMaps())).Finish("swot")
		return s
	}
	best, tried := s.w.bestPeriodic(ctx, math.Inf(1))
	if best.Pattern == nil { // times that are not finite
		s.Best = baseline.PerStep(m)
		s.Best.Planner = "swot"
		return s
	}
	began := time.Now()
	s.Best = s.w.emit(best.Pattern, o.Operations()/4)
	s.took = time.Since(began)
	for _, t := range tried[:min(len(tried), mostTried)] {
		s.seeds = append(s.seeds, t.Pattern)
	}
	return s
}

// Solve goes on from the periodic patterns.
func (s *Start) Solve(ctx context.Context, o effort.Search) (*plans.Plan, error) {
	w, m, best := s.w, s.w.m, s.Best
	if len(m.Steps) == 0 {
		return best, nil
	}
	ctx, cancel := effort.Sooner(ctx, 2*s.took) // keep time to write the result
	defer cancel()
	keep := func(plan *plans.Plan, err error) {
		if err == nil && timeline.Better(m, plan, best) {
			plan.Planner = "swot"
			best = plan
		}
	}
	keep(baseline.PerStepBelow(m, best))
	if ctx.Err() != nil {
		return best, nil
	}
	seeds := append(w.rotationSeeds(ctx), s.seeds...)
	static, err := baseline.Static(ctx, m.WithoutForwarding(), o)
	if keep(static, err); err == nil {
		if u := w.staticSeed(static.Initial); u != nil {
			seeds = append(seeds, u)
		}
	}
	pattern, proven := w.search(ctx, o, seeds, best.CCTUS)
	if pattern != nil {
		budget := o.Operations() / 4
		plan := w.emit(pattern, budget)
		loop := &timing.Meter{Ctx: ctx, Timing: &w.t, Limit: w.t.Flops() + int64(budget/2)}
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
	for i := range u {
		for unit := range w.m.Units {
			if model.HoldsPage(w.m.OfUnit(maps, unit), w.m.Pages[w.page[i]]) {
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
	m        *model.Model
	t        timing.Timing
	page     []int // per step
	joins    [][]bool
	exclude  bool            // no two pages fit on one unit
	holds    [][]bool        // [unit][page]: the given initial circuits serve it; nil: free
	planes   []int           // per step: planes of a unit set to its page that serve it
	costs    map[int]float64 // switch cost by from*pages+to, where it depends on them
	segments []int           // scratch: pages of the setting being extended
}

func newSwot(m *model.Model) *swot {
	w := &swot{m: m, costs: map[int]float64{}}
	var work []float64
	for i := range m.Steps {
		st := &m.Steps[i]
		k := model.Servers(m.Pages[st.Page], st.Pattern)
		w.page = append(w.page, st.Page)
		w.planes = append(w.planes, k)
		work = append(work, m.UsPerByte*st.Bytes/float64(k))
	}
	w.t = timing.New(m.Units, work, m.Joined())
	w.compileJoins()
	for u := range m.Initial {
		holds := make([]bool, len(m.Pages))
		for q := range m.Pages {
			holds[q] = model.HoldsPage(m.Initial[u], m.Pages[q])
		}
		w.holds = append(w.holds, holds)
	}
	return w
}

// compileJoins finds the pages that fit on one unit together. If the cost of a switch depends on the changed circuits,
// no pages are joined, so that the cost depends on two pages only.
func (w *swot) compileJoins() {
	n := len(w.m.Pages)
	w.joins = make([][]bool, n)
	w.exclude = true
	for p := range w.joins {
		w.joins[p] = make([]bool, n)
		w.joins[p][p] = true
	}
	if n > model.MaxCandidates || w.m.P.ReconfigPerPort > 0 {
		w.exclude = w.m.P.ReconfigPerPort == 0 && w.fullPages()
		return
	}
	for p := 0; p < n; p++ {
		for q := p + 1; q < n; q++ {
			if _, ok := model.Union(w.m.Pages[p], w.m.Pages[q]); ok {
				w.joins[p][q], w.joins[q][p], w.exclude = true, true, false
			}
		}
	}
}

// fullPages reports whether every page uses every port: then no two fit on one unit.
func (w *swot) fullPages() bool {
	return !slices.ContainsFunc(w.m.Pages, func(maps []circuit.Permutation) bool {
		return slices.Contains(maps[0], circuit.Dark)
	})
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
	p := w.m.P
	if p.ReconfigPerPort == 0 {
		return p.ReconfigUS
	}
	key := (unit*len(w.m.Pages)+to)*(len(w.m.Pages)+1) + from + 1
	if from != initialPage {
		key = to*(len(w.m.Pages)+1) + from + 1 + w.m.Units*len(w.m.Pages)*(len(w.m.Pages)+1)
	}
	if c, ok := w.costs[key]; ok {
		return c
	}
	before := w.m.Pages[max(from, 0)]
	if from == initialPage {
		before = w.m.Initial[unit]
	}
	cost := w.m.SwitchUS(before, w.m.Pages[to])
	w.costs[key] = cost
	return cost
}

// load describes the first steps of a pattern to the timing program.
func (w *swot) load(u pattern, steps int) {
	w.t.Clear(steps)
	for unit := range w.m.Units {
		state := unitState{pages: w.segments[:0], start: w.startState()}
		bit, from := uint64(1)<<unit, state.start
		for i := range steps {
			if u[i]&bit == 0 {
				continue
			}
			q, us := w.page[i], timing.NoSwitch
			if w.next(&state, unit, q) {
				us = w.switchCost(unit, from, q)
			}
			if len(state.pages) > 0 {
				from = state.pages[0]
			}
			w.t.Add(timing.Use{Step: i, Unit: unit, Rate: 1, O: w.m.DirectUS}, us)
		}
		w.segments = state.pages[:0]
	}
}

// evaluate returns the least CCT of the first steps of a pattern, or false once this is known to be at least cutoff.
func (w *swot) evaluate(u pattern, steps int, cutoff float64) (float64, bool) {
	w.load(u, steps)
	return w.t.Solve(steps, cutoff)
}

// estimate is evaluate with the greedy timing, which is fast. Its result is never below that of evaluate.
func (w *swot) estimate(u pattern, cutoff float64) (float64, bool) {
	w.load(u, len(u))
	return w.t.Greedy(len(u), cutoff)
}

// lean drops the uses that the greedy timing leaves without bytes, until all have bytes, and returns the greedy CCT.
// Dropping a use only makes its unit ready earlier.
func (w *swot) lean(u pattern) float64 {
	return w.t.Lean(len(u), func() { w.load(u, len(u)) }, func(step, unit int) { u[step] &^= 1 << unit })
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
	p := w.m.P
	if len(w.m.Asked) < len(w.m.Steps) { // the order of sub-steps is free
		return 0, false
	}
	if p.Forwarding || !w.exclude || p.ReconfigPerPort > 0 || p.Circuits == plans.Interleaved {
		return 0, false
	}
next:
	for r := 0; r < p.Ranks; r++ {
		for i := range w.m.Steps {
			if w.m.Steps[i].Pattern[r] == circuit.Dark {
				continue next // a duplex circuit may be there for the way back only
			}
		}
		seen := map[int]bool{}
		for _, maps := range w.m.Pages {
			d := maps[0][r]
			if d == circuit.Dark || seen[d] {
				continue next
			}
			seen[d] = true
		}
		for j := range w.m.Initial {
			for q := range w.m.Pages {
				if (p.Initial[j][r] == w.m.Pages[q][0][r]) != w.holds[j][q] {
					continue next
				}
			}
		}
		return r, true
	}
	return 0, false
}
