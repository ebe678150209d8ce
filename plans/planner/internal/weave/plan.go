package weave

import (
	"math"
	"slices"

	"lightpath/plans"
	"lightpath/plans/circuit"
	"lightpath/plans/planner/internal/model"
	"lightpath/plans/planner/internal/timeline"
	"lightpath/plans/planner/internal/timing"
)

// emit writes the plan of a layout.
func (w *weaver) emit(l layout, budget float64) *plans.Plan {
	timed := func(l layout) (float64, []float64) {
		w.load(l)
		return w.t.Best(len(w.kind), budget)
	}
	drop := func(l layout, k int) { l[w.t.Uses[k].Step*w.m.Units+w.t.Uses[k].Unit] = idle }
	l, data := timing.Trim(l, timed, drop, w.served, func(us float64) (dust, slack float64) {
		return timing.Eps * us, model.Tolerance(us)
	})
	return w.write(l, data)
}

// write turns a layout and the us of data of each use into a plan, everything as early as
// possible.
func (w *weaver) write(l layout, data []float64) *plans.Plan {
	m := w.m
	w.load(l)
	at := w.begin(l)
	free := make([]circuit.Permutation, 0, m.P.Planes)
	for _, c := range at {
		free = append(free, w.sets[c]...)
	}
	line := timeline.New(m, m.StartMaps(free))
	for i := range w.kind {
		bytes := w.bytesOf(i, data)
		for u := range at {
			c := l[i*m.Units+u]
			if c == idle {
				continue
			}
			if c.setting() != at[u] {
				at[u] = c.setting()
				line.Reconfigure(u, w.sets[at[u]])
			}
			w.writeUse(line, i, u, c, bytes[u])
		}
		line.CloseAt(i)
	}
	return line.Finish("weave")
}

// begin returns the setting of each unit at the start of a layout.
func (w *weaver) begin(l layout) []int {
	at := slices.Clone(w.start)
	for i := len(w.kind) - 1; i >= 0 && w.m.Initial == nil; i-- {
		for u := range at {
			if c := l[i*w.m.Units+u]; c != idle {
				at[u] = c.setting()
			}
		}
	}
	for u := range at {
		at[u] = max(at[u], 0) // a unit that never works
	}
	return at
}

// bytesOf returns the bytes that each unit carries of its flows in a step, given the us of data of each use. Together
// they are exactly the bytes of the step, without the rounding errors and idle capacity of the timing.
func (w *weaver) bytesOf(i int, data []float64) []float64 {
	asked := w.m.Steps[i].Bytes
	out := make([]float64, w.m.Units)
	factor := 0.0
	for _, h := range w.t.Halves(i) {
		sum, carriers := 0.0, w.carriers(i, h)
		for _, u := range carriers {
			out[u] = data[w.t.At(i, u)]
			sum += out[u]
		}
		if sum == 0 { // too short to be timed beside its latency
			for _, u := range carriers {
				out[u] = 1
			}
			sum = float64(len(carriers))
		}
		factor = math.Max(factor, asked/sum)
	}
	rest := [3]float64{asked, asked, asked}
	for _, h := range []timing.Half{timing.Both, timing.Up, timing.Down} { // circuits that carry all flows first
		if h != timing.Both {
			rest[h] = rest[timing.Both]
		}
		for u := range out {
			if k := w.t.At(i, u); k < 0 || w.t.Uses[k].Half != h {
				continue
			}
			b := math.Min(out[u]*factor, rest[h])
			if rest[h] -= b; rest[h] < 1e-9*asked { // rounding: nothing is left for the others
				b, rest[h] = b+rest[h], 0
			}
			out[u] = b
		}
	}
	return out
}

// carriers returns the units that carry a half of the flows of a step.
func (w *weaver) carriers(i int, h timing.Half) (units []int) {
	for u := range w.m.Units {
		if k := w.t.At(i, u); k >= 0 && w.t.Uses[k].Half.Carries(h) {
			units = append(units, u)
		}
	}
	return units
}

// writeUse transmits bytes of a step on the planes of a unit that serve it.
func (w *weaver) writeUse(line *timeline.Timeline, i, unit int, c cell, bytes float64) {
	s := w.service(c, i)
	for j, r := range s.routes {
		st := w.m.Steps[i]
		b := bytes / float64(r.Load) / s.rate
		h := c.half()
		if s.halves[j] != timing.Both {
			b, h = bytes, s.halves[j]
		}
		if h != timing.Both {
			st.Class = w.indexes(i, h)
		}
		if r.OK() && b > 0 {
			line.Transmit(unit*w.m.UnitPlanes+j, &st, b, r)
		}
	}
}

// indexes returns the flows of one half of a step, as a plan lists them.
func (w *weaver) indexes(step int, h timing.Half) []int {
	var out []int
	for f, flow := range w.m.FlowsOf(&w.m.Steps[step]) {
		if halfOf(w.m.P.Ranks, flow[0], flow[1]) == h {
			out = append(out, f)
		}
	}
	return out
}

// layoutOf returns the layout of a plan, or nil if none represents it (joint transmits, other divisions of the flows).
func (w *weaver) layoutOf(plan *plans.Plan) layout {
	m := w.m
	at := make(map[int]int, len(m.Steps)) // step of the problem -> its first sub-step
	for i := len(m.Steps) - 1; i >= 0; i-- {
		at[m.Steps[i].Index] = i
	}
	l := newLayout(len(m.Steps), m.Units)
	for u := range m.Units {
		for j := u * m.UnitPlanes; j < (u+1)*m.UnitPlanes; j++ {
			current := m.OfUnit(plan.Initial, u)
			for _, e := range plan.Planes[j] {
				switch e.Kind {
				case plans.Reconfigure:
					current = w.pair(e.To, j)
				case plans.Transmit:
					i, c := w.read(&e, at[e.Step], current)
					if c == idle {
						return nil
					}
					l[i*m.Units+u] = c
				case plans.Hold:
					return nil
				}
			}
		}
	}
	if !w.served(l) {
		return nil
	}
	return l
}

// read returns the step and the cell of a transmit on a unit set to maps; from is the first
// sub-step of the entry's step.
func (w *weaver) read(e *plans.Entry, from int, maps []circuit.Permutation) (int, cell) {
	setting := w.add(maps)
	if e.Joint != "" || setting == none {
		return 0, idle
	}
	for i := from; i < len(w.kind) && w.m.Steps[i].Index == e.Step; i++ {
		if slices.Equal(w.m.Steps[i].Class, e.Flows) {
			if c := cellOf(setting, timing.Both); w.can(c, i) {
				return i, c
			}
			return 0, idle
		}
	}
	for h := timing.Up; h <= timing.Down; h++ {
		if c := cellOf(setting, h); w.m.Steps[from].Class == nil && w.can(c, from) &&
			slices.Equal(w.indexes(from, h), e.Flows) {
			return from, c
		}
	}
	return 0, idle
}

// pair returns the maps of the unit whose plane j is set to c.
func (w *weaver) pair(c circuit.Permutation, j int) []circuit.Permutation {
	switch {
	case w.m.UnitPlanes == 1:
		return []circuit.Permutation{c}
	case j%2 == 0:
		return []circuit.Permutation{c, c.Inverse()}
	default:
		return []circuit.Permutation{c.Inverse(), c}
	}
}
