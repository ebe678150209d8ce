package planner

import (
	"math"
	"slices"

	"lightpath/plans"
	"lightpath/plans/circuit"
)

// layout holds the cell of each unit in each step, at [step*units+unit]. A unit switches between two uses with
// different settings.
type layout []cell

// cell is the setting on which a unit works in a step, times four, plus the half of the
// flows that it carries; or idle.
type cell int16

const idle cell = -1

const (
	none          = -1      // no setting
	maxWeave      = 4096    // settings that are considered, and
	weaveServices = 1 << 20 // offers of all settings to all kinds of steps
	maxWeaveKinds = 512     // kinds of steps
	weaveFlows    = 3e7     // flows that may be measured; settings after that serve only directly
)

func cellOf(setting int, h half) cell { return cell(setting*4 + int(h)) }

func (c cell) setting() int { return int(c) >> 2 }

func (c cell) half() half { return half(c & 3) }

// service is the bandwidth and overhead that a unit on some setting offers a step.
type service struct {
	rate   float64 // in planes at full rate; 0: it does not reach all destinations
	o      float64 // us before the first byte
	routes [2]route
	halves [2]half // what each plane of a pair carries of the unit's flows
}

// weaver evaluates layouts of a model. Not safe for concurrent use.
type weaver struct {
	m        *model
	t        timing
	index    circuit.Index // the first maps of the settings
	sets     [][]circuit.Permutation
	kind     []int           // per step: its distinct pattern and size
	kinds    []*step         // one step of each kind
	serves   [][]service     // [setting][kind*3+half]
	start    []int           // per unit: setting of the given initial circuits, or unset
	costs    map[int]float64 // of switches, where they depend on the circuits
	loaders  [2]plans.Loader
	measured int         // flows so far
	flows    [3][][2]int // scratch of measure: all flows, flows up, flows down
}

// unset is the start of a unit whose first setting is free.
const unset = -2

func newWeaver(m *model) *weaver {
	w := &weaver{m: m, costs: map[int]float64{}}
	w.t.units = m.units
	w.t.useAt = make([]int32, len(m.steps)*m.units)
	var kinds stepKinds
	for i := range m.steps {
		st := &m.steps[i]
		w.t.work = append(w.t.work, m.usPerByte*st.bytes)
		w.t.joined = append(w.t.joined, i > 0 && !m.lastOfStep(i-1))
		kind, fresh := kinds.add(st)
		w.kind = append(w.kind, kind)
		if fresh {
			w.kinds = append(w.kinds, st)
		}
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

// add returns the number of a setting, or none if there are too many.
func (w *weaver) add(maps []circuit.Permutation) int {
	if id, ok := w.index.Find(maps[0]); ok {
		return id
	}
	if len(w.sets) >= min(maxWeave, weaveServices/len(w.kinds)) {
		return none
	}
	id, _ := w.index.Add(maps[0])
	w.sets = append(w.sets, maps)
	w.serves = append(w.serves, w.measure(maps))
	return id
}

// measure returns the service of a unit with the given maps for every kind of step.
func (w *weaver) measure(maps []circuit.Permutation) []service {
	out := make([]service, 3*len(w.kinds))
	if w.measured > weaveFlows {
		for k, st := range w.kinds {
			out[3*k] = w.serveDirect(maps, st)
		}
		return out
	}
	for j, c := range maps {
		w.loaders[j].Bind(c)
	}
	for k, st := range w.kinds {
		w.halve(st)
		out[3*k] = w.offer(st, both)
		if len(w.flows[up]) > 0 && len(w.flows[down]) > 0 {
			out[3*k+int(up)] = w.offer(st, up)
			out[3*k+int(down)] = w.offer(st, down)
		}
	}
	w.measured += len(w.kinds) * w.m.p.Ranks
	w.t.greeds += int64(len(w.kinds) * w.m.p.Ranks * 8)
	return out
}

// serveDirect is offer over direct circuits only.
func (w *weaver) serveDirect(maps []circuit.Permutation, st *step) service {
	s := service{o: w.m.directUS}
	for j, c := range maps {
		if c.Covers(st.pattern) {
			s.routes[j] = route{ok: true, hops: 1, load: 1}
			s.rate++
		}
	}
	return s
}

// halve lists the flows of a step in w.flows, and in both halves if one plane may carry one half. On the two ways
// round a ring, patterns of exchanges then need a few hops instead of nearly all.
func (w *weaver) halve(st *step) {
	n := w.m.p.Ranks
	for h := range w.flows {
		w.flows[h] = w.flows[h][:0]
	}
	for r, d := range st.pattern {
		if d == circuit.Dark {
			continue
		}
		w.flows[both] = append(w.flows[both], [2]int{r, d})
		if st.class == nil && w.m.p.Planes > 1 {
			h := halfOf(n, r, d)
			w.flows[h] = append(w.flows[h], [2]int{r, d})
		}
	}
}

func halfOf(n, src, dst int) half {
	if ahead := (dst - src + n) % n; 2*ahead < n || 2*ahead == n && src < dst {
		return up
	}
	return down
}

// offer combines the planes of a unit in the quickest way for an even part of the step. This is the better plane, both
// planes or, on a pair, each plane for the flows in its direction. The loaders are bound to the planes of the unit.
func (w *weaver) offer(st *step, h half) service {
	part := w.m.usPerByte * st.bytes / float64(w.m.units)
	best, least := service{}, math.Inf(1)
	try := func(s service) {
		if us := s.o + part/s.rate; us < least {
			best, least = s, us
		}
	}
	planes := w.m.unitPlanes
	var single [2]service
	for j := range planes {
		single[j] = w.alone(j, h)
		try(single[j])
	}
	if planes == 1 {
		return best
	}
	try(service{
		rate: single[0].rate + single[1].rate, o: math.Max(single[0].o, single[1].o),
		routes: [2]route{single[0].routes[0], single[1].routes[1]},
	})
	for g := up; h == both && g <= down; g++ {
		a, b := w.alone(0, g), w.alone(1, up+down-g)
		try(service{
			rate: math.Min(a.rate, b.rate), o: math.Max(a.o, b.o),
			routes: [2]route{a.routes[0], b.routes[1]}, halves: [2]half{g, up + down - g},
		})
	}
	return best
}

// alone returns the service of one plane of a unit for one half of a step's flows.
func (w *weaver) alone(plane int, h half) service {
	var s service
	flows := w.flows[h]
	if len(flows) == 0 {
		return s
	}
	hops, load, bad := w.loaders[plane].Measure(flows)
	if bad >= 0 {
		return s
	}
	r := route{ok: true, hops: hops, load: load}
	s.routes[plane] = r
	s.rate, s.o = 1/float64(load), w.m.p.AlphaUS+w.m.p.HopUS*float64(hops)
	return s
}

// service returns the service of a cell, not idle, for a step.
func (w *weaver) service(c cell, step int) *service {
	return &w.serves[c.setting()][3*w.kind[step]+int(c.half())]
}

// can reports whether a cell that is not idle serves a step.
func (w *weaver) can(c cell, step int) bool { return w.service(c, step).rate > 0 }

// fit returns a cell in which a unit with the setting serves a step, the given half if it
// can; idle if it cannot at all.
func (w *weaver) fit(setting, step int, h half) cell {
	if c := cellOf(setting, h); w.can(c, step) {
		return c
	}
	for h := both; h <= down; h++ {
		if c := cellOf(setting, h); w.can(c, step) {
			return c
		}
	}
	return idle
}

// switchCost returns the time to switch a unit from one setting to another.
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
		cost = math.Max(cost, plans.ReconfigUS(p, w.sets[from][j], c))
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
			cell := l[i*t.units+unit]
			if cell == idle {
				t.useAt[i*t.units+unit] = -1
				continue
			}
			s, c := w.service(cell, i), cell.setting()
			k := use{step: i, unit: unit, before: -1, after: -1, rate: s.rate, o: s.o, half: cell.half()}
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

// served reports whether every flow of every step has a unit.
func (w *weaver) served(l layout) bool {
	for i := range w.kind {
		if !w.manned(l, i) {
			return false
		}
	}
	return true
}

// manned reports whether every flow of one step has a unit.
func (w *weaver) manned(l layout, step int) bool {
	carried := [3]bool{}
	for _, c := range l[step*w.m.units : (step+1)*w.m.units] {
		if c != idle {
			carried[c.half()] = true
		}
	}
	return carried[both] || carried[up] && carried[down]
}

// lean drops the uses that the greedy timing leaves without bytes, and returns the greedy CCT.
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

func newLayout(steps, units int) layout {
	l := slices.Repeat(layout{idle}, steps*units)
	return l
}
