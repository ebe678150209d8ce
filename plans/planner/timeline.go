package planner

import (
	"cmp"
	"math"
	"slices"

	"lightpath/plans"
	"lightpath/plans/circuit"
)

// timeline builds a plan by appending activities. It tracks every plane's circuits and when the plane becomes idle. All
// durations are those of the cost model.
type timeline struct {
	m       *model
	planes  [][]plans.Entry
	initial []circuit.Permutation
	current []circuit.Permutation
	idle    []float64 // per plane: end of its last activity
	stepEnd float64   // end of the last finished step: no transmit begins earlier (P3)
	opened  float64   // latest end of the step that is being written
	dry     bool      // only the times are of interest: no entries are kept
}

// newTimeline starts a plan on the given circuits, one map per plane.
func newTimeline(m *model, initial []circuit.Permutation) *timeline {
	return &timeline{
		m:       m,
		planes:  make([][]plans.Entry, m.p.Planes),
		initial: slices.Clone(initial),
		current: slices.Clone(initial),
		idle:    make([]float64, m.p.Planes),
	}
}

// reconfigure switches the planes of a unit to maps, together and as soon as all of them
// are idle, and returns when the circuits are up.
func (t *timeline) reconfigure(unit int, maps []circuit.Permutation) float64 {
	first := unit * t.m.unitPlanes
	start, cost := 0.0, 0.0
	for i, c := range maps {
		start = math.Max(start, t.idle[first+i])
		cost = math.Max(cost, plans.ReconfigUS(t.m.p, t.current[first+i], c))
	}
	for i, c := range maps {
		j := first + i
		if !t.dry {
			t.planes[j] = append(t.planes[j], plans.Entry{Kind: plans.Reconfigure, To: c, StartUS: start, EndUS: start + cost})
		}
		t.current[j], t.idle[j] = c, start+cost
	}
	return start + cost
}

// transmit appends bytes of every flow of a step on one plane, as early as the plane and
// the step barrier allow.
func (t *timeline) transmit(plane int, st *step, bytes float64, hops, load int) {
	start := math.Max(t.idle[plane], t.stepEnd)
	end := start + plans.TransmitUS(t.m.p, hops, load, bytes)
	if !t.dry {
		t.planes[plane] = append(t.planes[plane], plans.Entry{
			Kind: plans.Transmit, Step: st.index, Bytes: bytes, Flows: st.class, StartUS: start, EndUS: end,
		})
	}
	t.idle[plane] = end
	t.opened = math.Max(t.opened, end)
}

// closeStep ends the step being written.
func (t *timeline) closeStep() { t.stepEnd = math.Max(t.stepEnd, t.opened) }

// closeAt ends steps[i]: a barrier follows the last sub-step of a step, but not the others.
func (t *timeline) closeAt(i int) {
	if t.m.lastOfStep(i) {
		t.closeStep()
	}
}

// finish switches the planes to the final maps of the problem and returns the plan. The trailing reconfigurations
// follow the last transmit of their unit and are not part of the CCT.
func (t *timeline) finish(name string) *plans.Plan {
	m := t.m
	final := t.initial
	switch m.p.Final.Kind {
	case plans.FinalAny:
		final = t.current
	case plans.FinalGiven:
		final = m.p.Final.Maps
	}
	for u := 0; u < m.units; u++ {
		lo, hi := u*m.unitPlanes, (u+1)*m.unitPlanes
		same := true
		for j := lo; j < hi; j++ {
			same = same && t.current[j].Equal(final[j])
		}
		if !same && !t.beginAtEnd(u) {
			t.reconfigure(u, final[lo:hi])
		}
	}
	return &plans.Plan{
		Version: plans.Version,
		Planner: name,
		CCTUS:   t.stepEnd,
		Initial: t.initial,
		Planes:  t.planes,
	}
}

// route is the service that a plane offers a step.
type route struct {
	ok         bool
	hops, load int
}

// routes measures each of maps for one step: direct circuits, or the way round where the
// fabric forwards.
func (m *model) routes(loaders []plans.Loader, maps []circuit.Permutation, st *step, flows [][2]int) []route {
	out := make([]route, len(maps))
	for j := range maps {
		out[j] = m.route(&loaders[j], maps[j], st, flows)
	}
	return out
}

// route measures one plane's map, which l is bound to, for a step.
func (m *model) route(l *plans.Loader, c circuit.Permutation, st *step, flows [][2]int) route {
	if !m.p.Forwarding {
		return route{ok: st.pattern != nil && c.Covers(st.pattern), hops: 1, load: 1}
	}
	hops, load, bad := l.Measure(flows)
	return route{ok: bad < 0, hops: hops, load: load}
}

// lane is a plane in a split: us before its first byte and us per byte.
type lane struct {
	plane      int
	setup      float64
	perByte    float64
	hops, load int
}

// fewLanes is the most lanes for which insertion sort is fastest.
const fewLanes = 12

// split divides bytes over lanes so that they finish together as early as possible: the
// water level T with sum over lanes of (T-setup)+/perByte = bytes. Shares, by lane, go to
// out; a lane whose setup exceeds the level gets 0. It returns T. Lanes must not be empty;
// they are reordered by setup.
func split(lanes []lane, bytes float64, out []float64) float64 {
	if len(lanes) > fewLanes {
		slices.SortFunc(lanes, func(a, b lane) int { return cmp.Or(cmp.Compare(a.setup, b.setup), a.plane-b.plane) })
	}
	for i := 1; i < len(lanes); i++ { // insertion sort: few lanes, often equal
		for k := i; k > 0 && lanes[k].setup < lanes[k-1].setup; k-- {
			lanes[k], lanes[k-1] = lanes[k-1], lanes[k]
		}
	}
	rate, weighted, level, used := 0.0, 0.0, 0.0, 0
	for i, l := range lanes {
		if i > 0 && l.setup >= level {
			break
		}
		rate += 1 / l.perByte
		weighted += l.setup / l.perByte
		level = (bytes + weighted) / rate
		used = i + 1
	}
	rest := bytes
	for i := range lanes {
		switch {
		case i >= used:
			out[i] = 0
		case i == used-1:
			out[i] = math.Max(0, rest)
		default:
			out[i] = math.Min(rest, math.Max(0, (level-lanes[i].setup)/lanes[i].perByte))
			rest -= out[i]
		}
	}
	return level
}

// lanesOf appends the planes that can serve a step to buf.
func (m *model) lanesOf(routes []route, buf []lane) []lane {
	for j, r := range routes {
		if r.ok {
			buf = append(buf, lane{
				plane: j, hops: r.hops, load: r.load,
				setup:   m.p.AlphaUS + m.p.HopUS*float64(r.hops),
				perByte: m.usPerByte * float64(r.load),
			})
		}
	}
	return buf
}

// bind returns one loader per plane, bound to its map.
func bind(maps []circuit.Permutation) []plans.Loader {
	loaders := make([]plans.Loader, len(maps))
	for j, c := range maps {
		loaders[j].Bind(c)
	}
	return loaders
}

// unserved explains why circuits cannot serve a step.
func (m *model) unserved(st *step, maps []circuit.Permutation) error {
	var loaders []plans.Loader
	if m.p.Forwarding {
		loaders = bind(maps)
	}
	for _, f := range m.flowsOf(st) {
		reach := holds(maps, f)
		for j := range loaders {
			_, ok := loaders[j].Hops(f[0], f[1])
			reach = reach || ok
		}
		switch {
		case reach:
		case m.p.Forwarding:
			return infeasible(st.index, "rank %d cannot reach rank %d on any plane", f[0], f[1])
		default:
			return infeasible(st.index, "rank %d has no circuit to rank %d on any plane, and the fabric does not forward",
				f[0], f[1])
		}
	}
	if m.p.Forwarding {
		return infeasible(st.index, "no plane reaches all of its destinations")
	}
	return infeasible(st.index, "no plane has all of its circuits, and the fabric does not forward")
}

// startMaps returns the circuits a plan begins with: the given ones, else free ones.
func (m *model) startMaps(free []circuit.Permutation) []circuit.Permutation {
	if m.p.Initial != nil {
		return m.p.Initial
	}
	return free
}

// darkMaps is the start of a plan that sends nothing on a free fabric.
func (m *model) darkMaps() []circuit.Permutation {
	maps := make([]circuit.Permutation, m.p.Planes)
	for j := range maps {
		maps[j] = circuit.AllDark(m.p.Ranks)
	}
	return maps
}
