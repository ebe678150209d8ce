package swot

import (
	"math"
	"slices"

	"lightpath/plans"
	"lightpath/plans/circuit"
	"lightpath/plans/planner/internal/model"
	"lightpath/plans/planner/internal/timeline"
	"lightpath/plans/planner/internal/timing"
)

// emit writes the plan of a pattern: at its best timing, if that takes at most budget
// operations, else at the greedy one.
func (w *swot) emit(u pattern, budget float64) *plans.Plan {
	timed := func(u pattern) (float64, []float64) { return w.timed(u, budget) }
	drop := func(u pattern, k int) { u[w.t.Uses[k].Step] &^= 1 << w.t.Uses[k].Unit }
	served := func(u pattern) bool { return !slices.Contains(u, 0) }
	u, share := timing.Trim(u, timed, drop, served, func(float64) (dust, slack float64) { return timing.Eps, timing.Eps })
	return w.write(u, share)
}

// timed returns the CCT of a pattern and the time for which each use transmits.
func (w *swot) timed(u pattern, budget float64) (float64, []float64) {
	w.load(u, len(u))
	return w.t.Best(len(u), budget)
}

// write turns a pattern and the time for which each use transmits into a plan, everything
// as early as possible.
func (w *swot) write(u pattern, share []float64) *plans.Plan {
	m := w.m
	w.load(u, len(u))
	settings := w.settings(u)
	free := make([]circuit.Permutation, 0, m.P.Planes)
	for unit := range settings {
		if len(settings[unit]) > 0 {
			free = append(free, settings[unit][0].maps...)
		} else {
			free = append(free, m.Pages[w.page[0]]...)
		}
	}
	line := timeline.New(m, m.StartMaps(free))
	shares := make([]float64, m.Units)
	for i := range u {
		st := &m.Steps[i]
		total := 0.0
		for unit := range shares {
			shares[unit] = 0
			if k := w.t.At(i, unit); k >= 0 {
				shares[unit] = math.Max(share[k], math.SmallestNonzeroFloat64) // a step may be too short to be timed
				total += shares[unit]
			}
		}
		rest := st.Bytes
		for unit, x := range shares {
			if w.t.At(i, unit) < 0 {
				continue
			}
			if s := settings[unit]; len(s) > 0 && s[0].step <= i {
				if s[0].switches {
					line.Reconfigure(unit, s[0].maps)
				}
				settings[unit] = s[1:]
			}
			bytes := st.Bytes / float64(w.planes[i]) * (x / total)
			w.writeUse(line, st, unit, w.planes[i], bytes, &rest)
		}
		line.CloseAt(i)
	}
	return line.Finish("swot")
}

// writeUse transmits bytes on each of the unit's planes that serve the step.
func (w *swot) writeUse(line *timeline.Timeline, st *model.Step, unit, planes int, bytes float64, rest *float64) {
	m := w.m
	for j := unit * m.UnitPlanes; j < (unit+1)*m.UnitPlanes && planes > 0; j++ {
		if !line.Current[j].Covers(st.Pattern) {
			continue
		}
		planes--
		b := math.Min(bytes, *rest)
		if b <= 0 {
			continue
		}
		*rest -= b
		if *rest < 1e-9*st.Bytes { // rounding: nothing is left for the others
			b, *rest = b+*rest, 0
		}
		line.Transmit(j, st, b, timeline.Direct)
	}
}

// setting is the maps of a unit from step on.
type setting struct {
	step     int
	switches bool // false: it begins like this
	maps     []circuit.Permutation
}

// settings returns the settings of every unit of a pattern.
func (w *swot) settings(u pattern) [][]setting {
	out := make([][]setting, w.m.Units)
	for unit := range out {
		state := unitState{start: w.startState()}
		for i := range u {
			if u[i]&(1<<unit) == 0 {
				continue
			}
			q := w.page[i]
			before := len(state.pages)
			switched := w.next(&state, unit, q)
			switch {
			case switched || before == 0 && len(state.pages) > 0:
				out[unit] = append(out[unit], setting{i, switched, w.m.Pages[q]})
			case len(state.pages) > before:
				at := &out[unit][len(out[unit])-1]
				at.maps, _ = model.Union(at.maps, w.m.Pages[q])
			}
		}
	}
	return out
}
