package planner

import (
	"math"
	"slices"

	"lightpath/plans"
	"lightpath/plans/circuit"
)

// layout says what each unit does in each step: at [step*units+unit] the setting on which
// it works, or idle. Where the setting is another than that of the unit's last use,
// the unit switches in between.
type layout []int16

const (
	idle       = -1
	maxWeave   = 2048 // settings that are considered; layouts hold them as int16
	weaveFlows = 6e7  // flows that may be measured to tell settings from steps
)

// service is what a unit on some setting offers a step.
type service struct {
	rate   float64 // in planes at full rate; 0: it does not reach all destinations
	o      float64 // us before the first byte
	routes [2]route
}

// weaver evaluates layouts of a model. For one goroutine.
type weaver struct {
	m       *model
	t       timing
	index   circuit.Index // the first maps of the settings
	sets    [][]circuit.Permutation
	kind    []int   // per step: its distinct pattern and size
	kinds   []*step // one step of each kind
	serves  [][]service
	start   []int           // per unit: setting of the given initial circuits, or unset
	costs   map[int]float64 // of switches, where they depend on the circuits
	loaders [2]plans.Loader
	flows   [][2]int // scratch of measure
}

// unset is the start of a unit whose first setting is free.
const unset = -2

func newWeaver(m *model) *weaver {
	w := &weaver{m: m, costs: map[int]float64{}}
	w.t.units = m.units
	w.t.useAt = make([]int32, len(m.steps)*m.units)
	type key struct {
		digest uint64
		bytes  float64
	}
	seen := map[key][]int{}
	for i := range m.steps {
		st := &m.steps[i]
		w.t.work = append(w.t.work, m.usPerByte*st.bytes)
		w.t.joined = append(w.t.joined, i > 0 && !m.lastOfStep(i-1))
		k := key{st.pattern.Digest(), st.bytes}
		at := slices.IndexFunc(seen[k], func(q int) bool { return w.kinds[q].pattern.Equal(st.pattern) })
		if at >= 0 {
			w.kind = append(w.kind, seen[k][at])
			continue
		}
		seen[k] = append(seen[k], len(w.kinds))
		w.kind = append(w.kind, len(w.kinds))
		w.kinds = append(w.kinds, st)
	}
	w.start = make([]int, m.units)
	for u := range w.start {
		w.start[u] = unset
		if m.initial != nil {
			w.start[u] = w.add(m.initial[u])
		}
	}
	return w
}

// add returns the number of a setting, or idle where there are too many.
func (w *weaver) add(maps []circuit.Permutation) int {
	if id, ok := w.index.Find(maps[0]); ok {
		return id
	}
	if len(w.sets) == maxWeave || float64(len(w.sets)*len(w.kinds)*w.m.p.Ranks) > weaveFlows && len(w.sets) > 2*w.m.units {
		return idle
	}
	id, _ := w.index.Add(maps[0])
	w.sets = append(w.sets, maps)
	w.serves = append(w.serves, w.measure(maps))
	return id
}

// measure finds what a unit set to maps offers every kind of step.
func (w *weaver) measure(maps []circuit.Permutation) []service {
	out := make([]service, len(w.kinds))
	for j, c := range maps {
		w.loaders[j].Bind(c)
	}
	for k, st := range w.kinds {
		w.flows = w.flows[:0]
		for r, d := range st.pattern {
			if d != circuit.Dark {
				w.flows = append(w.flows, [2]int{r, d})
			}
		}
		out[k] = w.offer(maps, st)
	}
	w.t.greeds += int64(len(w.kinds) * len(w.flows) * 4)
	return out
}

// offer combines the planes of a unit: both where that is quicker for an even part of the
// step, else the better one.
func (w *weaver) offer(maps []circuit.Permutation, st *step) service {
	var s service
	part := w.m.usPerByte * st.bytes / float64(w.m.units)
	best, least := -1, math.Inf(1)
	for j, c := range maps {
		r := w.m.route(&w.loaders[j], c, st, w.flows)
		if !r.ok {
			continue
		}
		s.routes[j] = r
		if us := w.overhead(r) + part*float64(r.load); us < least {
			best, least = j, us
		}
	}
	if best < 0 {
		return service{}
	}
	for _, r := range s.routes {
		if r.ok {
			s.rate += 1 / float64(r.load)
			s.o = math.Max(s.o, w.overhead(r))
		}
	}
	if s.o+part/s.rate > least {
		r := s.routes[best]
		s.routes = [2]route{}
		s.routes[best] = r
		s.rate, s.o = 1/float64(r.load), w.overhead(r)
	}
	return s
}

func (w *weaver) overhead(r route) float64 {
	return w.m.p.AlphaUS + w.m.p.HopUS*float64(r.hops)
}

// service returns what a unit on a setting offers a step.
func (w *weaver) service(setting, step int) *service { return &w.serves[setting][w.kind[step]] }

// can reports whether a setting serves a step.
func (w *weaver) can(setting, step int) bool { return w.service(setting, step).rate > 0 }

// switchCost is the time a unit needs to leave one setting for another.
func (w *weaver) switchCost(from, to int) float64 {
	p := w.m.p
	if p.ReconfigPerPort == 0 {
		return p.ReconfigUS
	}
	key := from*maxWeave + to
	if c, ok := w.costs[key]; ok {
		return c
	}
	cost := 0.0
	for j, c := range w.sets[to] {
		cost = math.Max(cost, plans.ReconfigUS(p, w.sets[from][j].Changes(c)))
	}
	w.costs[key] = cost
	return cost
}

// load describes a layout to the timing program.
func (w *weaver) load(l layout) {
	t := &w.t
	t.uses, t.switches = t.uses[:0], t.switches[:0]
	for unit := range t.units {
		last, at := -1, w.start[unit]
		for i := range w.kind {
			c := int(l[i*t.units+unit])
			if c == idle {
				t.useAt[i*t.units+unit] = -1
				continue
			}
			s := w.service(c, i)
			k := use{step: i, unit: unit, before: -1, after: -1, rate: s.rate, o: s.o}
			if c != at && at != unset {
				k.before = len(t.switches)
				if last >= 0 {
					t.uses[t.useAt[last*t.units+unit]].after = k.before
				}
				t.switches = append(t.switches, swap{unit, last, i, w.switchCost(at, c)})
			}
			t.useAt[i*t.units+unit] = int32(len(t.uses))
			t.uses = append(t.uses, k)
			last, at = i, c
		}
	}
}

// evaluate returns the least CCT of a layout, or false once it is known to be at least cutoff.
func (w *weaver) evaluate(l layout, cutoff float64) (float64, bool) {
	w.load(l)
	return w.t.solve(len(w.kind), cutoff)
}

// estimate is evaluate with the greedy timing.
func (w *weaver) estimate(l layout, cutoff float64) (float64, bool) {
	w.load(l)
	return w.t.greedy(len(w.kind), cutoff)
}

// served reports whether every step of a layout has a unit.
func (w *weaver) served(l layout) bool {
	for i := range w.kind {
		if !slices.ContainsFunc(l[i*w.m.units:(i+1)*w.m.units], func(c int16) bool { return c != idle }) {
			return false
		}
	}
	return true
}

// lean drops from l what the greedy timing leaves without bytes, and returns the greedy CCT.
func (w *weaver) lean(l layout) float64 {
	for {
		us, _ := w.estimate(l, math.Inf(1))
		dropped := false
		for k, x := range w.t.shares {
			if use := w.t.uses[k]; x == 0 {
				l[use.step*w.m.units+use.unit] = idle
				dropped = true
			}
		}
		if !dropped {
			return us
		}
	}
}

// timed returns the CCT of a layout and the us of data of each use: at its best timing
// where that can be computed within budget operations, else at the greedy one.
func (w *weaver) timed(l layout, budget float64) (float64, []float64) {
	w.load(l)
	if w.t.barriers() && w.t.solveFlops(len(w.kind)) <= budget {
		if us, ok := w.t.solve(len(w.kind), math.Inf(1)); ok {
			data := make([]float64, len(w.t.uses))
			for k := range data {
				data[k] = w.t.data(k)
			}
			return us, data
		}
	}
	us, _ := w.t.greedy(len(w.kind), math.Inf(1))
	return us, slices.Clone(w.t.shares)
}

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
	at := slices.Clone(w.start)
	for i := len(w.kind) - 1; i >= 0 && m.initial == nil; i-- {
		for u := range at {
			if c := int(l[i*m.units+u]); c != idle {
				at[u] = c
			}
		}
	}
	free := make([]circuit.Permutation, 0, m.p.Planes)
	for u := range at {
		at[u] = max(at[u], 0) // a unit that never works: any setting
		free = append(free, w.sets[at[u]]...)
	}
	line := newTimeline(m, m.startMaps(free))
	for i := range w.kind {
		st := &m.steps[i]
		total := 0.0
		for u := range at {
			if k := w.t.useAt[i*m.units+u]; k >= 0 {
				total += data[k]
			}
		}
		rest := st.bytes
		for u := range at {
			k := w.t.useAt[i*m.units+u]
			if k < 0 {
				continue
			}
			if c := int(l[i*m.units+u]); c != at[u] {
				line.reconfigure(u, w.sets[c])
				at[u] = c
			}
			w.writeUse(line, i, u, at[u], st.bytes*data[k]/total, &rest)
		}
		line.closeAt(i)
	}
	return line.finish("weave")
}

// writeUse transmits bytes of a step on the planes of a unit that serve it.
func (w *weaver) writeUse(line *timeline, i, unit, setting int, bytes float64, rest *float64) {
	s, st := w.service(setting, i), &w.m.steps[i]
	for j, r := range s.routes {
		if !r.ok {
			continue
		}
		b := math.Min(bytes/float64(r.load)/s.rate, *rest)
		if b <= 0 {
			continue
		}
		*rest -= b
		if *rest < 1e-9*st.bytes { // rounding: nothing is left for the others
			b, *rest = b+*rest, 0
		}
		line.transmit(unit*w.m.unitPlanes+j, st, b, r.hops, r.load)
	}
}

// layoutOf reads a plan's settings; nil where it does something that no layout says (joint
// transmits, some of the flows).
func (w *weaver) layoutOf(plan *plans.Plan) layout {
	m := w.m
	at := make(map[[2]int]int, len(m.steps)) // {step, first flow of the sub-step} -> index
	for i := range m.steps {
		at[stepKey(m.steps[i].index, m.steps[i].class)] = i
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
					i, ok := at[stepKey(e.Step, e.Flows)]
					if e.Joint != "" || !ok {
						return nil
					}
					c := w.add(current)
					if c == idle || !w.can(c, i) {
						return nil
					}
					l[i*m.units+u] = int16(c)
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

func stepKey(step int, flows []int) [2]int {
	if len(flows) == 0 {
		return [2]int{step, -1}
	}
	return [2]int{step, flows[0]}
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

func newLayout(steps, units int) layout {
	l := make(layout, steps*units)
	for i := range l {
		l[i] = idle
	}
	return l
}
