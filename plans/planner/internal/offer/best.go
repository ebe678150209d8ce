package offer

import (
	"math"

	"lightpath/plans/planner/internal/model"
)

// BestState returns the state with the least sum of all pieces' times. It refines only times that affect the choice.
func (t *Table) BestState() int {
	for looks := FinalLooks; ; {
		at, promised := t.leastState(t.Floor)
		if promised.Unserved > 0 && t.MeasureRest() {
			continue // rather late than wrong
		}
		open := false
		for k := range t.kinds {
			open = open || t.IsOpen(k, at)
		}
		if !open {
			return at
		}
		if !t.Spent() {
			t.refineSome(at)
			continue
		}
		known, s := t.leastState(t.US)
		if looks--; s.Unserved == 0 && (looks < 0 || t.Late()) {
			return known
		}
		for k := range t.kinds {
			if s.Unserved == 0 && t.Late() {
				break
			}
			t.Refine(k, at)
		}
	}
}

// refineSome makes the next search for a quarter of the open times of a state: the times with the fewest searches. So a
// state with too low floors is dropped early.
func (t *Table) refineSome(at int) {
	open, least := 0, closed
	for k := range t.kinds {
		if t.IsOpen(k, at) {
			open++
			least = min(least, t.tier[k][at])
		}
	}
	left := (open + 3) / 4
	for k := range t.kinds {
		if left > 0 && !t.Spent() && t.IsOpen(k, at) && t.tier[k][at] == least {
			t.Refine(k, at)
			left--
		}
	}
}

// leastState returns the state with the best sum of the given times.
func (t *Table) leastState(times [][]float64) (at int, least Score) {
	least.Unserved = len(t.Pieces) + 1
	for c := range t.States {
		var s Score
		for i := range t.Pieces {
			if us := times[t.Pieces[i].Kind][c]; math.IsInf(us, 1) {
				s.Unserved++
			} else {
				s.US += us
			}
		}
		if s.Better(least) {
			at, least = c, s
		}
	}
	return at, least
}

// Score orders sets of circuits: first by steps that cannot be served, then by time.
type Score struct {
	Unserved int // steps
	US       float64
}

// Better reports whether a comes before b.
func (a Score) Better(b Score) bool {
	if a.Unserved != b.Unserved {
		return a.Unserved < b.Unserved
	}
	return a.US < b.US-model.Tolerance(b.US)
}
