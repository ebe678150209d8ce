package spectra

import (
	"cmp"
	"context"
	"math"
	"slices"

	"lightpath/plans"
)

// limits say when a search ends.
type limits struct {
	ctx   context.Context
	work  int64
	floor float64 // a proven bound
}

// over reports whether the work is done, or the time.
func (s *searcher) over(lim *limits, until int64) bool {
	return s.work() >= until || lim.ctx.Err() != nil
}

// optimal reports whether nothing can be much better than l.
func (lim *limits) optimal(l *layout) bool { return l.span <= lim.floor*(1+1e-8) }

// search improves the best of the starts within the limits. How many permutations are best is
// not known before: layouts with different numbers compete for the work that is left, and the
// worse half of them leaves the race after each heat.
func (s *searcher) search(starts []*layout, lim *limits) *layout {
	field := s.field(starts, lim)
	best := fastest(field)
	heats := 1 + int(math.Ceil(math.Log2(float64(len(field)))))
	begin := min(s.work(), lim.work)
	for heat := range heats {
		end := begin + (lim.work-begin)/int64(heats)*int64(heat+1)
		for i := range field {
			now := s.work()
			field[i] = s.run(field[i], lim, now+max(0, end-now)/int64(len(field)-i))
		}
		slices.SortStableFunc(field, func(a, b *layout) int { return cmp.Compare(a.span, b.span) })
		if field[0].span < best.span {
			best = field[0]
		}
		if lim.optimal(best) {
			break
		}
		field = field[:(len(field)+1)/2]
	}
	return best
}

func fastest(all []*layout) *layout {
	best := all[0]
	for _, l := range all {
		if l.span < best.span {
			best = l
		}
	}
	return best
}

// field returns the starts, each also with more permutations, as many as their
// reconfigurations leave room for.
func (s *searcher) field(starts []*layout, lim *limits) []*layout {
	field := slices.Clone(starts)
	best := fastest(starts).span
	widest := s.w.scale()
	for _, l := range starts {
		for _, more := range []int{1, 2, 3, 4, 6, 8, 12, 16, 24} {
			n := len(l.holds) + more
			least := (widest + float64(n)*s.delta) / float64(s.units)
			if s.w.kind == plans.Interleaved { // a unit serves a port twice at a time
				least = (widest/2 + float64(n)*s.delta) / float64(s.units)
			}
			if more > 2*len(l.holds) || least >= best || s.over(lim, lim.work/2) {
				break
			}
			if next := s.extend(l, more); s.weigh(next) {
				field = append(field, next)
			}
		}
	}
	return field
}

// restless is the part of the makespan by which a worse layout may be accepted, at first.
const restless = 0.002

// run improves a layout until the given amount of work, and returns the best that it met.
func (s *searcher) run(l *layout, lim *limits, until int64) *layout {
	best, cur := l, l
	begin := s.work()
	for !s.over(lim, until) && !lim.optimal(best) {
		next := s.round(cur)
		if next == nil {
			continue
		}
		heat := restless * (1 - float64(s.work()-begin)/float64(until-begin))
		if next.span > cur.span*(1+max(0, heat)*s.rng.ExpFloat64()) {
			continue
		}
		if cur = next; cur.span < best.span {
			best = cur
		}
	}
	return best
}
