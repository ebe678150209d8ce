package weave

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"

	"lightpath/plans/planner/internal/swot"
	"lightpath/plans/planner/internal/timing"
)

// Search improves a layout.
type Search struct {
	swot.Walk[layout, cell]
	w        *weaver
	short    [][]cell // per step: the cells that serve it best, quickest first
	opposite []int    // per setting: the one with its circuits turned round, or none
	total    int64    // operations of the whole search
	answer   responder
}

type woven = swot.Scored[layout]

// newSearch returns a search without seeds.
func newSearch(w *weaver, meter *timing.Meter, rng *rand.Rand, floor float64) *Search {
	s := &Search{w: w}
	s.Walk = swot.Walk[layout, cell]{Meter: meter, Rng: rng, Starts: 6, Best: woven{US: math.Inf(1)}, Floor: floor,
		Estimate: w.estimate, Evaluate: w.evaluate, Lean: w.lean, Mutate: s.mutate}
	return s
}

// shortlist is the number of cells per step for random changes.
const shortlist = 10

// try evaluates a seed into the pool.
func (s *Search) try(l layout) (float64, bool) {
	if l == nil || !s.w.served(l) {
		return 0, false
	}
	us, ok := s.Time(l, math.Inf(1))
	if !ok {
		return us, false
	}
	s.Record(l, us)
	s.Pool = append(s.Pool, woven{Pattern: slices.Clone(l), US: us})
	return us, true
}

// sortPool sorts the pool and removes duplicates.
func (s *Search) sortPool() {
	slices.SortStableFunc(s.Pool, func(a, b woven) int { return cmp.Compare(a.US, b.US) })
	s.Pool = slices.CompactFunc(s.Pool, func(a, b woven) bool { return a.US == b.US && slices.Equal(a.Pattern, b.Pattern) })
	s.Pool = s.Pool[:min(len(s.Pool), 64)]
	if len(s.Pool) > 0 {
		s.GoTo(s.Pool[0])
	}
}

// list fills the tables of settings; none may be added later.
func (s *Search) list() {
	w := s.w
	s.oppose()
	s.short = make([][]cell, len(w.kind))
	byKind := make([][]cell, len(w.kinds))
	for i, k := range w.kind {
		if byKind[k] == nil {
			byKind[k] = s.ranking(i)
		}
		s.short[i] = byKind[k]
	}
}

// ranking orders the cells of a step by the time for an even part of it; half of the flows
// count as half of the work.
func (s *Search) ranking(step int) []cell {
	w := s.w
	type ranked struct {
		c  cell
		us float64
	}
	var all []ranked
	for c := range w.sets {
		for h := timing.Both; h <= timing.Down; h++ {
			c := cellOf(c, h)
			if v := w.service(c, step); v.rate > 0 {
				data := w.t.Work[step] / float64(w.m.Units)
				if h != timing.Both {
					data *= 2
				}
				all = append(all, ranked{c, v.o + data/v.rate})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b ranked) int { return cmp.Compare(a.us, b.us) })
	out := make([]cell, 0, shortlist)
	for _, r := range all[:min(len(all), shortlist)] {
		out = append(out, r.c)
	}
	return out
}

// retime switches from greedy to exact timing.
func (s *Search) retime() {
	s.Fast = false
	kept := slices.Clone(s.Pool[:min(len(s.Pool), 16)])
	best := s.Best
	if best.Pattern != nil {
		kept = append([]woven{best}, kept...)
	}
	s.Best, s.Pool = woven{US: math.Inf(1)}, nil
	for _, k := range kept {
		l := slices.Clone(k.Pattern)
		s.w.lean(l)
		s.try(l)
	}
	if s.Best.Pattern == nil { // out of time
		s.Best = best
	}
	s.sortPool()
}

// mutate changes a layout at random and reports whether it changed and serves every step.
func (s *Search) mutate(l layout) bool {
	units, steps := s.w.m.Units, len(s.w.kind)
	i, u := s.Rng.IntN(steps), s.Rng.IntN(units)
	switch k := s.Rng.IntN(24); {
	case k < 6: // a unit joins or leaves a step, or serves it otherwise
		return s.setCell(l, i, u, s.choose(l, i, u))
	case k < 9: // a unit goes idle
		return s.setCell(l, i, u, idle)
	case k < 13: // a unit keeps a setting for some steps more, or takes it some steps earlier
		return s.stretch(l, i, u)
	case k < 16: // another setting for all of a segment
		return s.recolour(l, i, u)
	case k < 20: // two units exchange what they do in a range of steps
		end := steps
		if k < 18 {
			end = min(steps, i+1+s.Rng.IntN(4))
		}
		return s.exchange(l, i, end, u, s.Rng.IntN(units))
	case k < 22: // a unit does what another does in a range of steps
		return s.follow(l, i, min(steps, i+1+s.Rng.IntN(4)), u, s.Rng.IntN(units))
	default: // the best answer of a unit, or of several together, to what the others do
		if s.Rng.IntN(4) > 0 {
			return s.setCell(l, i, u, s.choose(l, i, u))
		}
		return s.respond(l, s.someUnits(u), 0.3)
	}
}

// choose returns a cell for a step and unit: on the setting of the unit's use before or
// after, or one that serves the step well.
func (s *Search) choose(l layout, i, u int) cell {
	switch s.Rng.IntN(4) {
	case 0:
		if at, c := s.before(l, i, u); at >= 0 {
			return s.w.fit(c, i, timing.Half(s.Rng.IntN(3)))
		}
	case 1:
		if at, c := s.after(l, i, u); at >= 0 {
			return s.w.fit(c, i, timing.Half(s.Rng.IntN(3)))
		}
	}
	n := len(s.short[i])
	return s.short[i][min(s.Rng.IntN(n), s.Rng.IntN(n))]
}

// before returns the last use of a unit before step i and its setting; at is -1 if there is none.
func (s *Search) before(l layout, i, u int) (at, setting int) {
	for at = i - 1; at >= 0; at-- {
		if c := l[at*s.w.m.Units+u]; c != idle {
			return at, c.setting()
		}
	}
	return -1, s.w.start[u]
}

// after is before for the first use after step i.
func (s *Search) after(l layout, i, u int) (at, setting int) {
	for at = i + 1; at < len(s.w.kind); at++ {
		if c := l[at*s.w.m.Units+u]; c != idle {
			return at, c.setting()
		}
	}
	return -1, none
}

// setCell changes a cell. It reports whether the layout changed and still serves the step.
func (s *Search) setCell(l layout, i, u int, c cell) bool {
	at := &l[i*s.w.m.Units+u]
	if *at == c {
		return false
	}
	*at = c
	return s.w.manned(l, i)
}

// stretch gives unit u the cell of step i also in steps after or before i.
func (s *Search) stretch(l layout, i, u int) bool {
	c := l[i*s.w.m.Units+u]
	if c == idle {
		return false
	}
	way := 1 - 2*s.Rng.IntN(2)
	changed := false
	for n := 1 + s.Rng.IntN(4); n > 0; n-- {
		if i += way; i < 0 || i >= len(s.w.kind) {
			break
		}
		at := &l[i*s.w.m.Units+u]
		if to := s.w.fit(c.setting(), i, c.half()); to != idle && to != *at {
			*at, changed = to, true
			if !s.w.manned(l, i) {
				return false
			}
		}
	}
	return changed
}

// recolour changes the setting of unit u in step i and in adjacent uses with the same setting.
func (s *Search) recolour(l layout, i, u int) bool {
	units := s.w.m.Units
	if l[i*units+u] == idle {
		return false
	}
	c := l[i*units+u].setting()
	lo, hi := i, i
	for at, d := s.before(l, lo, u); at >= 0 && d == c; at, d = s.before(l, lo, u) {
		lo = at
	}
	for at, d := s.after(l, hi, u); at >= 0 && d == c; at, d = s.after(l, hi, u) {
		hi = at
	}
	to := s.choose(l, lo+s.Rng.IntN(hi-lo+1), u)
	if to == idle || to.setting() == c {
		return false
	}
	for j := lo; j <= hi; j++ {
		if at := &l[j*units+u]; *at != idle {
			if *at = s.w.fit(to.setting(), j, to.half()); !s.w.manned(l, j) {
				return false
			}
		}
	}
	return true
}

// exchange swaps the cells of two units in steps from..end-1.
func (s *Search) exchange(l layout, from, end, a, b int) bool {
	changed := false
	for i := from * s.w.m.Units; i < end*s.w.m.Units; i += s.w.m.Units {
		if l[i+a] != l[i+b] {
			l[i+a], l[i+b] = l[i+b], l[i+a]
			changed = true
		}
	}
	return changed
}

// follow copies the cells of unit b to unit a in steps from..end-1.
func (s *Search) follow(l layout, from, end, a, b int) bool {
	changed := false
	for i := from; i < end; i++ {
		x, y := &l[i*s.w.m.Units+a], l[i*s.w.m.Units+b]
		if *x != y {
			*x, changed = y, true
		}
		if !s.w.manned(l, i) {
			return false
		}
	}
	return changed
}

// someUnits returns u alone, or with others.
func (s *Search) someUnits(u int) []int {
	units := s.w.m.Units
	group := []int{u}
	for n := s.Rng.IntN(units) * s.Rng.IntN(2); n > 0; n-- {
		if v := s.Rng.IntN(units); !slices.Contains(group, v) {
			group = append(group, v)
		}
	}
	return group
}
