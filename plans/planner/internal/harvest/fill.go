package harvest

import (
	"lightpath/plans"
	"lightpath/plans/circuit"
	"lightpath/plans/planner/internal/model"
)

// Several settings of a plane may serve the flows of one step in turn, even if the plane could hold all of them at
// once. Existing circuits serve some flows. Circuits that also serve the next step serve the rest. That saves a switch.
// Fills are such settings.

// filler joins flows into a setting of one unit.
type filler struct {
	kind plans.CircuitKind
	to   circuit.Permutation // of the unit's first plane
	from circuit.Permutation // its inverse
}

func newFiller(m *model.Model) *filler {
	return &filler{m.P.Circuits, circuit.AllDark(m.P.Ranks), circuit.AllDark(m.P.Ranks)}
}

// join adds a circuit from src to dst if the unit has none and the two ports are free. It reports whether the unit now
// serves the flow.
func (f *filler) join(src, dst int) bool {
	switch {
	case f.to[src] == dst || f.kind == plans.Interleaved && f.to[dst] == src:
		return true
	case f.kind == plans.Duplex:
		if f.to[src] != circuit.Dark || f.to[dst] != circuit.Dark {
			return false
		}
		f.to[dst], f.from[src] = src, dst
	case f.to[src] != circuit.Dark || f.from[dst] != circuit.Dark:
		if f.kind != plans.Interleaved || f.to[dst] != circuit.Dark || f.from[src] != circuit.Dark {
			return false
		}
		src, dst = dst, src // the other plane of the pair has the way back
	}
	f.to[src], f.from[dst] = dst, src
	return true
}

// maps returns the setting.
func (f *filler) maps() []circuit.Permutation {
	if f.kind == plans.Interleaved {
		return []circuit.Permutation{f.to, f.from}
	}
	return []circuit.Permutation{f.to}
}

const (
	fillSteps  = 4       // how many steps a fill looks ahead
	fillWork   = 1 << 22 // flows that are looked at, all fills together
	mostBefore = 6       // settings that a fill may follow
)

// fills returns, by step, settings of a unit that serve the rest of the step after another setting. They hold the flows
// of the step that the setting before does not serve, or all flows of the next step. If ports are free, they also hold
// flows of later steps. The setting before is one that the problem gives or a fill of the step before.
func fills(m *model.Model) [][][]circuit.Permutation {
	all := make([][][]circuit.Permutation, len(m.Asked))
	if len(m.Asked)*m.P.Ranks*fillSteps > fillWork {
		return all
	}
	flows := make([][][2]int, len(m.Asked))
	for i := range m.Asked {
		flows[i] = m.FlowsOf(&m.Asked[i])
	}
	for i := range m.Asked {
		before := [][]circuit.Permutation{nil}
		if before = append(before, m.Initial...); i > 0 {
			before = append(before, all[i-1]...)
		}
		if i+1 < len(flows) {
			all[i] = append(all[i], fill(m, flows[i+1:min(i+1+fillSteps, len(flows))], nil))
		}
		for _, held := range before[:min(len(before), mostBefore)] {
			all[i] = append(all[i], fill(m, flows[i:min(i+fillSteps, len(flows))], held))
		}
	}
	return all
}

// fill joins the flows of steps, in order; of the first step only the flows that a unit
// set to held does not serve.
func fill(m *model.Model, steps [][][2]int, held []circuit.Permutation) []circuit.Permutation {
	f := newFiller(m)
	for i, flows := range steps {
		for _, flow := range flows {
			if i > 0 || !model.Holds(held, flow) {
				f.join(flow[0], flow[1])
			}
		}
	}
	return f.maps()
}

// near returns, by step, settings that may serve a part of it: the initial ones, the fills of
// the steps around it, and its own matchings.
func near(m *model.Model, fills [][][]circuit.Permutation) [][][]circuit.Permutation {
	out := make([][][]circuit.Permutation, len(fills))
	at := 0 // of m.steps
	for i := range out {
		if len(fills[i]) > 0 {
			out[i] = append(out[i], m.Initial...)
			for _, list := range fills[max(0, i-2):min(len(fills), i+2)] {
				out[i] = append(out[i], list...)
			}
		}
		for ; at < len(m.Steps) && m.Steps[at].Index == m.Asked[i].Index; at++ {
			if len(fills[i]) > 0 {
				out[i] = append(out[i], m.Pages[m.Steps[at].Page])
			}
		}
	}
	return out
}
