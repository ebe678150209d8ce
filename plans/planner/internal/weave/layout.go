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

func cellOf(setting int, h timing.Half) cell { return cell(setting*4 + int(h)) }

func (c cell) setting() int { return int(c) >> 2 }

func (c cell) half() timing.Half { return timing.Half(c & 3) }

// service is the bandwidth and overhead that a unit on some setting offers a step.
type service struct {
	rate   float64 // in planes at full rate; 0: it does not reach all destinations
	o      float64 // us before the first byte
	routes [2]timeline.Route
	halves [2]timing.Half // what each plane of a pair carries of the unit's flows
}

// weaver evaluates layouts of a model. Not safe for concurrent use.
type weaver struct {
	m        *model.Model
	t        timing.Timing
	index    circuit.Index // the first maps of the settings
	sets     [][]circuit.Permutation
	kind     []int           // per step: its distinct pattern and size
	kinds    []*model.Step   // one step of each kind
	serves   [][]service     // [setting][kind*3+half]
	start    []int           // per unit: setting of the given initial circuits, or unset
	costs    map[int]float64 // of switches, where they depend on the circuits
	loaders  [2]plans.Loader
	measured int         // flows so far
	flows    [3][][2]int // scratch of measure: all flows, flows up, flows down
}

// unset is the start of a unit whose first setting is free.
const unset = -2

func newWeaver(m *model.Model) *weaver {
	w := &weaver{m: m, costs: map[int]float64{}}
	var kinds model.Kinds
	var work []float64
	for i := range m.Steps {
		st := &m.Steps[i]
		work = append(work, m.UsPerByte*st.Bytes)
		kind, fresh := kinds.Add(st)
		w.kind = append(w.kind, kind)
		if fresh {
			w.kinds = append(w.kinds, st)
		}
	}
	w.t = timing.New(m.Units, work, m.Joined())
	w.start = make([]int, m.Units)
	for u := range w.start {
		w.start[u] = unset
		if m.Initial != nil {
			w.start[u] = w.add(m.Initial[u])
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
		w.loaders[j].SetMap(c)
	}
	for k, st := range w.kinds {
		w.halve(st)
		out[3*k] = w.offer(st, timing.Both)
		if len(w.flows[timing.Up]) > 0 && len(w.flows[timing.Down]) > 0 {
			out[3*k+int(timing.Up)] = w.offer(st, timing.Up)
			out[3*k+int(timing.Down)] = w.offer(st, timing.Down)
		}
	}
	w.measured += len(w.kinds) * w.m.P.Ranks
	w.t.Spend(len(w.kinds) * w.m.P.Ranks * 8)
	return out
}

// serveDirect is offer over direct circuits only.
func (w *weaver) serveDirect(maps []circuit.Permutation, st *model.Step) service {
	s := service{o: w.m.DirectUS}
	for j, c := range maps {
		if c.Covers(st.Pattern) {
			s.routes[j] = timeline.Direct
			s.rate++
		}
	}
	return s
}

// halve lists the flows of a step in w.flows, and in both halves if one plane may carry one half. On the two ways
// round a ring, patterns of exchanges then need a few hops instead of nearly all.
func (w *weaver) halve(st *model.Step) {
	n := w.m.P.Ranks
	for h := range w.flows {
		w.flows[h] = w.flows[h][:0]
	}
	for r, d := range st.Pattern {
		if d == circuit.Dark {
			continue
		}
		w.flows[timing.Both] = append(w.flows[timing.Both], [2]int{r, d})
		if st.Class == nil && w.m.P.Planes > 1 {
			h := halfOf(n, r, d)
			w.flows[h] = append(w.flows[h], [2]int{r, d})
		}
	}
}

func halfOf(n, src, dst int) timing.Half {
	if ahead := (dst - src + n) % n; 2*ahead < n || 2*ahead == n && src < dst {
		return timing.Up
	}
	return timing.Down
}

// offer combines the planes of a unit in the quickest way for an even part of the step. This is the better plane, both
// planes or, on a pair, each plane for the flows in its direction. The loaders are bound to the planes of the unit.
func (w *weaver) offer(st *model.Step, h timing.Half) service {
	part := w.m.UsPerByte * st.Bytes / float64(w.m.Units)
	best, least := service{}, math.Inf(1)
	try := func(s service) {
		if us := s.o + part/s.rate; us < least {
			best, least = s, us
		}
	}
	planes := w.m.UnitPlanes
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
		routes: [2]timeline.Route{single[0].routes[0], single[1].routes[1]},
	})
	for g := timing.Up; h == timing.Both && g <= timing.Down; g++ {
		a, b := w.alone(0, g), w.alone(1, timing.Up+timing.Down-g)
		try(service{
			rate: math.Min(a.rate, b.rate), o: math.Max(a.o, b.o),
			routes: [2]timeline.Route{a.routes[0], b.routes[1]}, halves: [2]timing.Half{g, timing.Up + timing.Down - g},
		})
	}
	return best
}

// alone returns the service of one plane of a unit for one half of a step's flows.
func (w *weaver) alone(plane int, h timing.Half) service {
	var s service
	flows := w.flows[h]
	if len(flows) == 0 {
		return s
	}
	hops, load, bad := w.loaders[plane].Measure(flows)
	if bad >= 0 {
		return s
	}
	s.routes[plane] = timeline.Route{Hops: hops, Load: load}
	s.rate, s.o = 1/float64(load), w.m.P.AlphaUS+w.m.P.HopUS*float64(hops)
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
func (w *weaver) fit(setting, step int, h timing.Half) cell {
	if c := cellOf(setting, h); w.can(c, step) {
		return c
	}
	for h := timing.Both; h <= timing.Down; h++ {
		if c := cellOf(setting, h); w.can(c, step) {
			return c
		}
	}
	return idle
}

// switchCost returns the time to switch a unit from one setting to another.
func (w *weaver) switchCost(from, to int) float64 {
	p := w.m.P
	if p.ReconfigPerPort == 0 {
		return p.ReconfigUS
	}
	key := from*maxWeave + to
	if c, ok := w.costs[key]; ok {
		return c
	}
	cost := w.m.SwitchUS(w.sets[from], w.sets[to])
	w.costs[key] = cost
	return cost
}

// load describes a layout to the timing program.
func (w *weaver) load(l layout) {
	w.t.Clear(len(w.kind))
	for unit, at := range w.start {
		for i := range w.kind {
			cell := l[i*w.m.Units+unit]
			if cell == idle {
				continue
			}
			s, c, us := w.service(cell, i), cell.setting(), timing.NoSwitch
			if c != at && at != unset {
				us = w.switchCost(at, c)
			}
			w.t.Add(timing.Use{Step: i, Unit: unit, Rate: s.rate, O: s.o, Half: cell.half()}, us)
			at = c
		}
	}
}

// evaluate returns the least CCT of a layout, or false once it is known to be at least cutoff.
func (w *weaver) evaluate(l layout, cutoff float64) (float64, bool) {
	w.load(l)
	return w.t.Solve(len(w.kind), cutoff)
}

// estimate is evaluate with the greedy timing.
func (w *weaver) estimate(l layout, cutoff float64) (float64, bool) {
	w.load(l)
	return w.t.Greedy(len(w.kind), cutoff)
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
	for _, c := range l[step*w.m.Units : (step+1)*w.m.Units] {
		if c != idle {
			carried[c.half()] = true
		}
	}
	return carried[timing.Both] || carried[timing.Up] && carried[timing.Down]
}

// lean drops the uses that the greedy timing leaves without bytes, and returns the greedy CCT.
func (w *weaver) lean(l layout) float64 {
	return w.t.Lean(len(w.kind), func() { w.load(l) }, func(step, unit int) { l[step*w.m.Units+unit] = idle })
}

func newLayout(steps, units int) layout {
	return slices.Repeat(layout{idle}, steps*units)
}
