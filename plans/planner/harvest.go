package planner

import (
	"context"
	"math"

	"lightpath/plans"
	"lightpath/plans/circuit"
)

// harvestMeasure bounds the work of measuring steps on candidates, in flows; beyond it a
// pattern serves only its own steps and the rings serve all.
const harvestMeasure = 3e8

// solveHarvest decides when to switch, and to what, with all planes in lockstep and
// forwarding where the fabric forwards (HARVEST, Algorithm 1). The dynamic program runs
// over (step, circuits), which finds the same optimum over the candidates as the paper's
// recurrence over intervals and numbers of switches, and also takes a given start and
// switches that cost by the port.
func solveHarvest(_ context.Context, m *model, _ Options) (*plans.Plan, error) {
	if len(m.steps) == 0 {
		return newTimeline(m, m.startMaps(m.darkMaps())).finish("harvest"), nil
	}
	if steps, ok := m.doublingSteps(); ok {
		return m.solveDoubling(steps), nil
	}
	h := newHarvest(m)
	path, err := h.solve()
	if err != nil {
		return nil, err
	}
	return h.write(path), nil
}

// harvest is the dynamic program. State c < len(maps) is "all units set to maps[c]", the
// last state, if the initial circuits are given, "not switched yet".
type harvest struct {
	m      *model
	maps   [][]circuit.Permutation
	kind   []int       // per step: index of its distinct kind
	cost   [][]float64 // [kind][state]: us, +Inf where a flow has no route
	states int
}

func newHarvest(m *model) *harvest {
	h := &harvest{m: m, maps: m.harvestCandidates()}
	h.states = len(h.maps)
	if m.p.Initial != nil {
		h.states++
	}
	h.measure()
	return h
}

// harvestCandidates are the candidates, and every pattern even where they are many.
func (m *model) harvestCandidates() [][]circuit.Permutation {
	all := m.candidates(maxCandidates)
	for i := maxCandidates; i < len(m.pages); i++ {
		all = append(all, m.pages[i].maps)
	}
	return all
}

// measure fills the costs of all kinds of steps in all states.
func (h *harvest) measure() {
	m := h.m
	kinds := m.distinctSteps()
	flows := make([][][2]int, len(kinds))
	h.cost = make([][]float64, len(kinds))
	for k := range kinds {
		h.cost[k] = make([]float64, h.states)
		if m.p.Forwarding {
			flows[k] = m.flowsOf(kinds[k].st)
		}
	}
	everything := float64(len(kinds))*float64(h.states)*float64(m.p.Ranks) <= harvestMeasure
	out := make([]float64, m.p.Planes)
	for c := 0; c < h.states; c++ {
		maps := h.stateMaps(c)
		loaders := bind(maps)
		for k := range kinds {
			st := kinds[k].st
			if !everything && c < len(h.maps) && st.page >= 0 && h.isPage(c) && !holdsPage(h.maps[c], m.pages[st.page].maps) {
				h.cost[k][c] = math.Inf(1)
				continue
			}
			lanes := m.lanesOf(m.routes(loaders, maps, st, flows[k]), nil)
			h.cost[k][c] = math.Inf(1)
			if len(lanes) > 0 {
				h.cost[k][c] = split(h.replicate(c, lanes), st.bytes, out)
			}
		}
	}
	h.assignKinds(kinds)
}

// isPage reports whether candidate c is a pattern and not a ring: candidates holds the
// patterns first, up to its limit, and the others follow last.
func (h *harvest) isPage(c int) bool {
	return c < min(len(h.m.pages), maxCandidates) || c >= len(h.maps)-max(0, len(h.m.pages)-maxCandidates)
}

// stateMaps returns one unit's maps of a candidate, or the maps of all planes of the start.
func (h *harvest) stateMaps(c int) []circuit.Permutation {
	if c < len(h.maps) {
		return h.maps[c]
	}
	return h.m.p.Initial
}

// replicate turns the lanes of one unit into those of all units.
func (h *harvest) replicate(c int, lanes []lane) []lane {
	if c >= len(h.maps) {
		return lanes
	}
	all := make([]lane, 0, len(lanes)*h.m.units)
	for range h.m.units {
		all = append(all, lanes...)
	}
	return all
}

func (h *harvest) assignKinds(kinds []weighted) {
	byDigest := map[uint64][]int{}
	for k, w := range kinds {
		if w.st.pattern != nil {
			d := w.st.pattern.Digest()
			byDigest[d] = append(byDigest[d], k)
		}
	}
	h.kind = make([]int, len(h.m.steps))
	for i := range h.m.steps {
		st := &h.m.steps[i]
		if st.pattern == nil {
			for k, w := range kinds {
				if w.st.index == st.index {
					h.kind[i] = k
				}
			}
			continue
		}
		for _, k := range byDigest[st.pattern.Digest()] {
			if kinds[k].st.bytes == st.bytes && kinds[k].st.pattern.Equal(st.pattern) {
				h.kind[i] = k
			}
		}
	}
}

// solve returns the state of every step on the best path.
func (h *harvest) solve() ([]int, error) {
	steps := len(h.m.steps)
	best := make([]float64, h.states)
	next := make([]float64, h.states)
	from := make([][]int32, steps)
	start := len(h.maps) // the state of the given initial circuits
	for c := range best {
		if h.m.p.Initial != nil && c != start {
			best[c] = math.Inf(1)
		}
	}
	for i := 0; i < steps; i++ {
		from[i] = make([]int32, h.states)
		free := i == 0 && h.m.p.Initial == nil
		feasible := false
		for c := range next {
			next[c], from[i][c] = best[c], int32(c)
		}
		if !free {
			h.relax(best, next, from[i])
		}
		for c := range next {
			next[c] += h.cost[h.kind[i]][c]
			feasible = feasible || !math.IsInf(next[c], 1)
		}
		if !feasible {
			st := &h.m.steps[i]
			return nil, h.m.unserved(st, h.allMaps())
		}
		best, next = next, best
	}
	at := 0
	for c := range best {
		if best[c] < best[at]-tolerance(best[c]) {
			at = c
		}
	}
	path := make([]int, steps)
	for i := steps - 1; i >= 0; i-- {
		path[i] = at
		at = int(from[i][at])
	}
	return path, nil
}

// relax lets every state be reached by a switch from another one; staying wins ties.
func (h *harvest) relax(best, next []float64, from []int32) {
	if h.m.p.ReconfigPerPort == 0 {
		cheapest := 0
		for c := range best {
			if best[c] < best[cheapest] {
				cheapest = c
			}
		}
		v := best[cheapest] + h.m.p.ReconfigUS
		for c := range h.maps {
			if v < next[c]-tolerance(v) {
				next[c], from[c] = v, int32(cheapest)
			}
		}
		return
	}
	for b := range best {
		if math.IsInf(best[b], 1) {
			continue
		}
		for c := range h.maps {
			if best[b]+h.m.p.ReconfigUS >= next[c] {
				continue
			}
			if v := best[b] + h.switchCost(b, c); v < next[c]-tolerance(v) {
				next[c], from[c] = v, int32(b)
			}
		}
	}
}

// switchCost is what it takes to bring all planes from state b to candidate c.
func (h *harvest) switchCost(b, c int) float64 {
	before := h.stateMaps(b)
	cost := 0.0
	for j := range before {
		after := h.maps[c][j%len(h.maps[c])]
		cost = math.Max(cost, plans.ReconfigUS(h.m.p, before[j].Changes(after)))
	}
	return cost
}

// allMaps lists the circuits that were considered, for the reason of a refusal.
func (h *harvest) allMaps() []circuit.Permutation {
	var all []circuit.Permutation
	for c := 0; c < h.states; c++ {
		all = append(all, h.stateMaps(c)...)
	}
	return all
}

// lockstep switches the planes to maps, one for each, and lets what follows wait for the
// last of them; unless all is set, units that have their maps already do not switch.
func (t *timeline) lockstep(maps []circuit.Permutation, all bool) {
	ready := t.stepEnd
	k := t.m.unitPlanes
	for u := 0; u < t.m.units; u++ {
		if lo, hi := u*k, (u+1)*k; all || !sameMaps(t.current[lo:hi], maps[lo:hi]) {
			ready = math.Max(ready, t.reconfigure(u, maps[lo:hi]))
		}
	}
	t.stepEnd = ready
}

// write turns a path into the plan.
func (h *harvest) write(path []int) *plans.Plan {
	m := h.m
	first := h.stateMaps(path[0])
	if m.p.Initial == nil {
		first = m.everyUnit(first)
	} else {
		first = m.p.Initial
	}
	t := newTimeline(m, first)
	loaders := bind(t.current)
	state := path[0]
	if m.p.Initial != nil {
		state = len(h.maps)
	}
	for i, c := range path {
		if c != state {
			t.lockstep(m.everyUnit(h.maps[c]), true)
			loaders, state = bind(t.current), c
		}
		t.serve(&m.steps[i], loaders) // the path has finite cost, so every step is served
	}
	return t.finish("harvest")
}
