package planner

import (
	"math"
	"slices"

	"lightpath/plans"
	"lightpath/plans/circuit"
)

// emit writes the plan of a layout.
func (w *weaver) emit(l layout, budget float64) *plans.Plan {
	for {
		us, data := w.timed(l, budget)
		lean := slices.Clone(l)
		for k, x := range data {
			if use := w.t.uses[k]; x <= timingEps*us {
				lean[use.step*w.m.units+use.unit] = idle
			}
		}
		if !slices.Equal(lean, l) && w.served(lean) {
			// Uses without bytes are dropped, unless their switches were useful.
			if leanUS, _ := w.timed(lean, budget); leanUS <= us+tolerance(us) {
				l = lean
				continue
			}
			w.load(l)
		}
		return w.write(l, data)
	}
}

// write turns a layout and the us of data of each use into a plan, everything as early as
// possible.
func (w *weaver) write(l layout, data []float64) *plans.Plan {
	m := w.m
	at := w.begin(l)
	free := make([]circuit.Permutation, 0, m.p.Planes)
	for _, c := range at {
		free = append(free, w.sets[c]...)
	}
	line := newTimeline(m, m.startMaps(free))
	for i := range w.kind {
		bytes := w.bytesOf(i, data)
		for u := range at {
			c := l[i*m.units+u]
			if c == idle {
				continue
			}
			if c.setting() != at[u] {
				at[u] = c.setting()
				line.reconfigure(u, w.sets[at[u]])
			}
			w.writeUse(line, i, u, c, bytes[u])
		}
		line.closeAt(i)
	}
	return line.finish("weave")
}

// begin returns the setting of each unit at the start of a layout.
func (w *weaver) begin(l layout) []int {
	at := slices.Clone(w.start)
	for i := len(w.kind) - 1; i >= 0 && w.m.initial == nil; i-- {
		for u := range at {
			if c := l[i*w.m.units+u]; c != idle {
				at[u] = c.setting()
			}
		}
	}
	for u := range at {
		at[u] = max(at[u], 0) // a unit that never works
	}
	return at
}

// bytesOf returns the bytes that each unit carries of its flows in a step, given the us of
// data of each use: exactly the bytes of the step, without the rounding errors and idle capacity of the timing.
func (w *weaver) bytesOf(i int, data []float64) []float64 {
	units := w.m.units
	asked := w.m.steps[i].bytes
	out := make([]float64, units)
	uses := w.t.useAt[i*units : (i+1)*units]
	factor := 0.0
	for _, h := range w.t.halves(i) {
		sum := 0.0
		for u, k := range uses {
			if k >= 0 && w.t.uses[k].half.carries(h) {
				out[u] = data[k]
				sum += data[k]
			}
		}
		factor = math.Max(factor, asked/sum)
	}
	rest := [3]float64{asked, asked, asked}
	for _, h := range []half{both, up, down} { // circuits that carry all flows first
		if h != both {
			rest[h] = rest[both]
		}
		for u, k := range uses {
			if k < 0 || w.t.uses[k].half != h {
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

// writeUse transmits bytes of a step on the planes of a unit that serve it.
func (w *weaver) writeUse(line *timeline, i, unit int, c cell, bytes float64) {
	s := w.service(c, i)
	for j, r := range s.routes {
		st := w.m.steps[i]
		b := bytes / float64(r.load) / s.rate
		h := c.half()
		if s.halves[j] != both {
			b, h = bytes, s.halves[j]
		}
		if h != both {
			st.class = w.indexes(i, h)
		}
		if r.ok && b > 0 {
			line.transmit(unit*w.m.unitPlanes+j, &st, b, r.hops, r.load)
		}
	}
}

// indexes returns the flows of one half of a step, as a plan lists them.
func (w *weaver) indexes(step int, h half) []int {
	var out []int
	for f, flow := range w.m.flowsOf(&w.m.steps[step]) {
		if halfOf(w.m.p.Ranks, flow[0], flow[1]) == h {
			out = append(out, f)
		}
	}
	return out
}

// layoutOf returns the layout of a plan, or nil if none represents it (joint transmits, other divisions of the flows).
func (w *weaver) layoutOf(plan *plans.Plan) layout {
	m := w.m
	at := make(map[int]int, len(m.steps)) // step of the problem -> its first sub-step
	for i := len(m.steps) - 1; i >= 0; i-- {
		at[m.steps[i].index] = i
	}
	l := newLayout(len(m.steps), m.units)
	for u := range m.units {
		for j := u * m.unitPlanes; j < (u+1)*m.unitPlanes; j++ {
			current := plan.Initial[u*m.unitPlanes : (u+1)*m.unitPlanes]
			for _, e := range plan.Planes[j] {
				switch e.Kind {
				case plans.Reconfigure:
					current = w.pair(e.To, j)
				case plans.Transmit:
					i, c := w.read(&e, at[e.Step], current)
					if c == idle {
						return nil
					}
					l[i*m.units+u] = c
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
	for i := from; i < len(w.kind) && w.m.steps[i].index == e.Step; i++ {
		if slices.Equal(w.m.steps[i].class, e.Flows) {
			if c := cellOf(setting, both); w.can(c, i) {
				return i, c
			}
			return 0, idle
		}
	}
	for h := up; h <= down; h++ {
		if c := cellOf(setting, h); w.m.steps[from].class == nil && w.can(c, from) &&
			slices.Equal(w.indexes(from, h), e.Flows) {
			return from, c
		}
	}
	return 0, idle
}

// pair returns the maps of the unit whose plane j is set to c.
func (w *weaver) pair(c circuit.Permutation, j int) []circuit.Permutation {
	switch {
	case w.m.unitPlanes == 1:
		return []circuit.Permutation{c}
	case j%2 == 0:
		return []circuit.Permutation{c, c.Inverse()}
	default:
		return []circuit.Permutation{c.Inverse(), c}
	}
}
