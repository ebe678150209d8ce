package swot

import (
	"math"
	"math/rand/v2"
	"slices"

	"lightpath/plans/planner/internal/model"
	"lightpath/plans/planner/internal/timing"
)

// Walk improves a pattern by random changes. Package weave has patterns of its own, with other cells.
type Walk[P ~[]C, C any] struct {
	Meter  *timing.Meter
	Rng    *rand.Rand
	Fast   bool        // time greedily
	Pool   []Scored[P] // evaluated seeds, best first
	Starts int         // most seeds, beside the best one, to start again from
	Cur    Scored[P]
	Best   Scored[P] // Pattern is nil until one is better than US
	Floor  float64   // proven lower bound

	Estimate func(p P, cutoff float64) (us float64, ok bool) // greedily
	Evaluate func(p P, cutoff float64) (us float64, ok bool) // exactly
	Lean     func(p P) float64                               // drops what the greedy timing leaves empty; the time
	Mutate   func(p P) bool                                  // at random; false: no change, or a step lost its units
}

// Scored is a pattern and its time.
type Scored[P any] struct {
	Pattern P
	US      float64
}

// Done reports whether the best known CCT is the proven bound.
func (w *Walk[P, C]) Done() bool { return w.Best.US <= w.Floor+model.Tolerance(w.Floor) }

// Time times a pattern exactly or, while Fast, greedily.
func (w *Walk[P, C]) Time(p P, cutoff float64) (us float64, ok bool) {
	if w.Fast {
		return w.Estimate(p, cutoff)
	}
	return w.Evaluate(p, cutoff)
}

// Record keeps a pattern that is better than the best. It first drops the uses that the greedy timing leaves empty.
func (w *Walk[P, C]) Record(p P, us float64) {
	if us >= w.Best.US-model.Tolerance(us) {
		return
	}
	w.Best = Scored[P]{slices.Clone(p), us}
	if w.Fast {
		w.Best.US = w.Lean(w.Best.Pattern)
	}
}

// GoTo makes a pattern the current one.
func (w *Walk[P, C]) GoTo(from Scored[P]) { w.Cur = Scored[P]{slices.Clone(from.Pattern), from.US} }

// Anneals restarts until limit operations, each time for one of the given number of parts, with the heats in turn.
func (w *Walk[P, C]) Anneals(limit, parts int64, heats ...float64) {
	b := w.Meter
	for round := 0; w.Cur.Pattern != nil && !w.Done() && b.Timing.Flops() < limit && !b.Late(); round++ {
		b.Limit = min(limit, b.Timing.Flops()+max(1, limit/parts))
		if round%3 == 2 && len(w.Pool) > 1 {
			w.GoTo(w.Pool[1+(round/3)%min(w.Starts, len(w.Pool)-1)])
		} else if w.Best.Pattern != nil {
			w.GoTo(w.Best)
		}
		w.Anneal(heats[round%len(heats)])
	}
}

// Anneal walks from the current pattern until the meter's limit. It accepts a random change if the new CCT is below a
// random threshold, so the timing program can give up on a bad pattern early. The temperature falls from heat times
// the CCT.
func (w *Walk[P, C]) Anneal(heat float64) {
	begin := w.Meter.Timing.Flops()
	span := float64(w.Meter.Limit - begin)
	next := make(P, len(w.Cur.Pattern))
	for !w.Meter.Spent() && !w.Done() {
		progress := float64(w.Meter.Timing.Flops()-begin) / span
		temperature := heat * w.Cur.US * math.Pow(0.005, progress)
		copy(next, w.Cur.Pattern)
		if !w.Mutate(next) {
			w.Meter.Timing.Spend(len(next))
			continue
		}
		cutoff := w.Cur.US - temperature*math.Log(1-w.Rng.Float64())
		us, ok := w.Time(next, cutoff)
		if !ok {
			continue
		}
		w.Cur, next = Scored[P]{next, us}, w.Cur.Pattern
		w.Record(w.Cur.Pattern, us)
	}
}
