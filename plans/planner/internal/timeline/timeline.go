package timeline

import (
	"math"
	"slices"

	"lightpath/plans"
	"lightpath/plans/circuit"
	"lightpath/plans/planner/internal/model"
)

// Timeline builds a plan by appending activities. It tracks every plane's circuits and when the plane becomes idle. All
// durations are those of the cost model.
type Timeline struct {
	Current []circuit.Permutation // per plane
	Dry     bool                  // only the times are of interest: no entries are kept

	m       *model.Model
	planes  [][]plans.Entry
	initial []circuit.Permutation
	idle    []float64 // per plane: end of its last activity
	stepEnd float64   // end of the last finished step: no transmit begins earlier (P3)
	opened  float64   // latest end of the step that is being written
}

// New starts a plan on the given circuits, one map per plane.
func New(m *model.Model, initial []circuit.Permutation) *Timeline {
	return &Timeline{
		m:       m,
		planes:  make([][]plans.Entry, m.P.Planes),
		initial: slices.Clone(initial),
		Current: slices.Clone(initial),
		idle:    make([]float64, m.P.Planes),
	}
}

// Reconfigure switches the planes of a unit to maps, together and as soon as all of them
// are idle, and returns when the circuits are up.
func (t *Timeline) Reconfigure(unit int, maps []circuit.Permutation) float64 {
	first := unit * t.m.UnitPlanes
	start, cost := 0.0, t.m.SwitchUS(t.m.OfUnit(t.Current, unit), maps)
	for i := range maps {
		start = math.Max(start, t.idle[first+i])
	}
	for i, c := range maps {
		j := first + i
		if !t.Dry {
			t.planes[j] = append(t.planes[j], plans.Entry{Kind: plans.Reconfigure, To: c, StartUS: start, EndUS: start + cost})
		}
		t.Current[j], t.idle[j] = c, start+cost
	}
	return start + cost
}

// Route is how one plane serves the flows of a step; the zero value if it does not.
type Route struct {
	Hops int // of the longest way
	Load int // flows on the busiest circuit
}

// Direct is the route of flows that all have circuits of their own.
var Direct = Route{1, 1}

// OK reports whether the plane serves the flows.
func (r Route) OK() bool { return r.Load > 0 }

// Transmit appends bytes of every flow of a step on one plane, as early as the plane and the step barrier allow.
func (t *Timeline) Transmit(plane int, st *model.Step, bytes float64, r Route) {
	start := math.Max(t.idle[plane], t.stepEnd)
	end := start + plans.TransmitUS(t.m.P, r.Hops, r.Load, bytes)
	if !t.Dry {
		t.planes[plane] = append(t.planes[plane], plans.Entry{
			Kind: plans.Transmit, Step: st.Index, Bytes: bytes, Flows: st.Class, StartUS: start, EndUS: end,
		})
	}
	t.idle[plane] = end
	t.opened = math.Max(t.opened, end)
}

// TransmitJoint appends a joint transmit of planes that takes us, as early as the planes and the step barrier allow.
// id names it among the joint transmits of its step.
func (t *Timeline) TransmitJoint(planes []int, step int, id string, us float64, routes []plans.Route) {
	start := t.stepEnd
	for _, p := range planes {
		start = math.Max(start, t.idle[p])
	}
	end := start + us
	for i, p := range planes {
		e := plans.Entry{Kind: plans.Transmit, Step: step, Joint: id, StartUS: start, EndUS: end}
		if i == 0 {
			e.Routes = routes
		}
		t.planes[p] = append(t.planes[p], e)
		t.idle[p] = end
	}
	t.opened = math.Max(t.opened, end)
}

// End returns the end of the last finished step.
func (t *Timeline) End() float64 { return t.stepEnd }

// CloseStep ends the step being written.
func (t *Timeline) CloseStep() { t.stepEnd = math.Max(t.stepEnd, t.opened) }

// CloseAt ends Steps[i] of the model: a barrier follows the last sub-step of a step, but not the others.
func (t *Timeline) CloseAt(i int) {
	if t.m.LastOfStep(i) {
		t.CloseStep()
	}
}

// Finish switches the planes to the final maps of the problem and returns the plan. The trailing reconfigurations
// follow the last transmit of their unit and are not part of the CCT.
func (t *Timeline) Finish(name string) *plans.Plan {
	m := t.m
	final := t.initial
	switch m.P.Final.Kind {
	case plans.FinalAny:
		final = t.Current
	case plans.FinalGiven:
		final = m.P.Final.Maps
	}
	for u := range m.Units {
		if maps := m.OfUnit(final, u); !model.SameMaps(m.OfUnit(t.Current, u), maps) && !t.beginAtEnd(u) {
			t.Reconfigure(u, maps)
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

// Lockstep switches the planes to maps, one for each, as soon as they are idle. Unless all is true, units that have
// their maps do not switch. As everywhere in a timeline, other planes do not wait.
func (t *Timeline) Lockstep(maps []circuit.Permutation, all bool) {
	for u := range t.m.Units {
		if own := t.m.OfUnit(maps, u); all || !model.SameMaps(t.m.OfUnit(t.Current, u), own) {
			t.Reconfigure(u, own)
		}
	}
}
