package swot

import (
	"cmp"
	"context"
	"math"
	"math/rand/v2"
	"slices"

	"lightpath/plans/planner/internal/effort"
	"lightpath/plans/planner/internal/model"
	"lightpath/plans/planner/internal/timing"
)

// exactUnits is the most units for which branch and bound is tried, and exactLeaves the most patterns for which it is
// tried first.
const (
	exactUnits  = 6
	exactLeaves = 2e5
)

// search returns the best pattern that it finds, or nil if none beats the known CCT, and whether it is proven that none
// is better.
func (w *swot) search(ctx context.Context, o effort.Search, seeds []pattern, known float64) (pattern, bool) {
	total := int64(o.Operations())
	s := &searcher{w: w, suffix: w.m.Suffix()}
	s.Walk = Walk[pattern, uint64]{
		Meter:    &timing.Meter{Ctx: ctx, Timing: &w.t, Limit: total},
		Rng:      rand.New(rand.NewPCG(uint64(o.Seed), 0x5107)),
		Starts:   4,
		Best:     scored{US: known},
		Floor:    w.m.Bound.Total,
		Estimate: w.estimate,
		Evaluate: func(u pattern, cutoff float64) (float64, bool) { return w.evaluate(u, len(u), cutoff) },
		Lean:     w.lean,
		Mutate:   s.mutate,
	}
	w.t.Stop = s.Meter.Late
	defer func() { w.t.Stop = nil }() // the plan of what is found is timed in any case
	switch {
	case w.m.Units == 1: // there is one pattern, and nothing to divide
		s.Fast = true
		s.seed(seeds)
		return s.Best.Pattern, w.exclude && w.t.Barriers()
	case len(w.page) > timing.ExactSteps || !w.t.Barriers():
		s.Fast = true
		s.seed(seeds)
		s.Anneals(total, 4, 0.02)
		return s.Best.Pattern, false
	}
	return s.Best.Pattern, s.small(seeds, total) && w.exclude
}

// small searches a problem on which every pattern can be timed exactly. It reports whether branch and bound has closed.
func (s *searcher) small(seeds []pattern, total int64) bool {
	b := s.Meter
	leaves := math.Pow(math.Exp2(float64(s.w.m.Units))-1, float64(len(s.w.page)))
	if leaves <= exactLeaves {
		if s.seed(seeds); !s.Done() && s.exact() {
			return true
		}
	}
	s.Fast = true
	s.seed(seeds)
	b.Limit = b.Timing.Flops() + total/20
	if s.Cur.Pattern != nil {
		s.Anneal(0.03)
	}
	s.retime()
	b.Limit = b.Timing.Flops() + total/3
	if !s.Done() && s.w.m.Units <= exactUnits && s.exact() {
		return true
	}
	s.Anneals(total, 4, 0.02, 0.05, 0.01)
	return false
}

// retime switches from greedy to exact timing.
func (s *searcher) retime() {
	s.Fast = false
	kept := s.Pool
	if s.Best.Pattern != nil {
		kept = append(kept, s.Best)
	}
	patterns := make([]pattern, len(kept))
	for i := range kept {
		patterns[i] = kept[i].Pattern
		s.w.lean(patterns[i])
	}
	s.seed(patterns)
}

// searcher improves a pattern.
type searcher struct {
	Walk[pattern, uint64]
	w      *swot
	suffix []float64 // proven least time of the steps from i on
}

type scored = Scored[pattern]

func (s *searcher) seed(seeds []pattern) {
	s.Pool = nil
	for i, u := range seeds {
		if i > 0 && s.Meter.Late() {
			break
		}
		if us, ok := s.Time(u, math.Inf(1)); ok {
			s.Pool = append(s.Pool, scored{u, us})
			s.Record(u, us)
		}
	}
	slices.SortStableFunc(s.Pool, func(a, b scored) int { return cmp.Compare(a.US, b.US) })
	if len(s.Pool) > 0 {
		s.GoTo(s.Pool[0])
	}
}

// mutate changes a pattern at random; every step keeps a unit. It reports whether
// anything changed.
func (s *searcher) mutate(u pattern) bool {
	units := s.w.m.Units
	i := s.Rng.IntN(len(u))
	a := s.Rng.IntN(units)
	bit := uint64(1) << a
	switch k := s.Rng.IntN(10); {
	case k < 5 || units == 1: // a unit joins or leaves a step
		u[i] ^= bit
		return u[i] != 0
	case k < 7: // another unit takes its place
		other := uint64(1) << s.Rng.IntN(units)
		if u[i]&bit == 0 || u[i]&other != 0 {
			return false
		}
		u[i] ^= bit | other
		return true
	case k < 9: // two units exchange what they do in a range of steps
		c := s.Rng.IntN(units)
		end := len(u)
		if k == 8 {
			end = min(len(u), i+1+s.Rng.IntN(4))
		}
		return exchangeBits(u[i:end], a, c)
	default: // a unit moves its work in one step to a neighbouring step
		j := i + 1
		if j == len(u) || u[i]>>a&1 == u[j]>>a&1 {
			return false
		}
		u[i] ^= bit
		u[j] ^= bit
		return u[i] != 0 && u[j] != 0
	}
}

// Rotations returns patterns for the steps of m to begin a search with; see rotationSeeds.
func Rotations(ctx context.Context, m *model.Model) []pattern { return newSwot(m).rotationSeeds(ctx) }

// rotationSeeds are the patterns to begin with: all units on large steps, and on small
// ones few units in turn, so that the others have time to switch.
func (w *swot) rotationSeeds(ctx context.Context) []pattern {
	levels := slices.Clone(w.t.Work)
	slices.Sort(levels)
	levels = slices.Compact(levels)
	if len(levels) > 12 {
		thin := make([]float64, 12)
		for i := range thin {
			thin[i] = levels[i*(len(levels)-1)/11]
		}
		levels = thin
	}
	var seeds []pattern
	for few := 1; few <= min(2, w.m.Units); few++ {
		count := func(int) int { return few }
		for _, level := range append([]float64{-1}, levels...) {
			if ctx.Err() != nil {
				return seeds
			}
			seeds = append(seeds, w.rotation(level, count, true), w.rotation(level, count, false))
		}
	}
	return seeds
}

// rotation uses all units in steps with more work than level, else few(step) of them: with reuse
// units that hold the page already, then the units idle for longest.
func (w *swot) rotation(level float64, few func(step int) int, reuse bool) pattern {
	units := w.m.Units
	u := make(pattern, len(w.page))
	holds := make([]int, units) // page of each unit's last use
	idle := make([]int, units)  // units, idle for longest first
	busy := make([]int, 0, units)
	for j := range holds {
		holds[j], idle[j] = -1, j
	}
	for i, q := range w.page {
		count := min(few(i), units)
		if w.t.Work[i] > level {
			count = units
		}
		for _, j := range idle {
			if reuse && holds[j] == q && count > 0 {
				u[i] |= 1 << j
				count--
			}
		}
		for _, j := range idle {
			if count > 0 && u[i]>>j&1 == 0 {
				u[i] |= 1 << j
				count--
			}
		}
		// Units that work go to the end.
		rest := idle[:0]
		busy = busy[:0]
		for _, j := range idle {
			if u[i]>>j&1 != 0 {
				holds[j] = q
				busy = append(busy, j)
			} else {
				rest = append(rest, j)
			}
		}
		idle = append(rest, busy...)
	}
	return u
}

// exact is branch and bound over the steps in order. The time of a prefix alone plus the proven bound of the remaining
// steps bounds a pattern from below. It reports whether the tree was closed within the meter's limit.
func (s *searcher) exact() bool {
	b := &brancher{s: s, u: make(pattern, len(s.w.page))}
	b.class = make([]int, (len(b.u)+1)*s.w.m.Units)
	b.initialClasses()
	return b.branch(0)
}

type brancher struct {
	s     *searcher
	u     pattern
	class []int // [step][unit]: units of a class have had the same past
}

// initialClasses puts units with equal circuits into one class.
func (b *brancher) initialClasses() {
	w := b.s.w
	for j := 0; j < w.m.Units; j++ {
		b.class[j] = j
		for i := 0; i < j; i++ {
			if w.holds == nil || model.SameMaps(w.m.Initial[i], w.m.Initial[j]) {
				b.class[j] = b.class[i]
				break
			}
		}
	}
}

func (b *brancher) branch(i int) bool {
	s := b.s
	if s.Meter.Spent() {
		return false
	}
	if i == len(b.u) {
		return true // recorded when its last step was timed
	}
	units := s.w.m.Units
	for mask := uint64(1)<<units - 1; mask > 0; mask-- {
		if !b.refine(i, mask) {
			continue
		}
		b.u[i] = mask
		cutoff := s.Best.US - model.Tolerance(s.Best.US)
		us, ok := s.w.evaluate(b.u, i+1, cutoff-s.suffix[i+1])
		if !ok {
			if us < cutoff-s.suffix[i+1] {
				return false // the timing gave up: nothing is proven
			}
			continue
		}
		if i+1 == len(b.u) {
			s.Record(b.u, us)
			continue
		}
		if !b.branch(i + 1) {
			return false
		}
	}
	return true
}

// refine computes the classes after step i with the given units in it. It returns false if the search has tried a
// permutation of equal units.
func (b *brancher) refine(i int, mask uint64) bool {
	units := b.s.w.m.Units
	now, then := b.class[i*units:(i+1)*units], b.class[(i+1)*units:(i+2)*units]
	for j := range then {
		then[j] = j
		for k := 0; k < j; k++ {
			if now[k] != now[j] {
				continue
			}
			if mask>>j&1 != 0 && mask>>k&1 == 0 {
				return false // of equal units the first ones work
			}
			if mask>>j&1 == mask>>k&1 {
				then[j] = then[k]
				break
			}
		}
	}
	return true
}
