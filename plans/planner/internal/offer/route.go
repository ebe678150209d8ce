package offer

import (
	"lightpath/plans"
	"lightpath/plans/circuit"
	"lightpath/plans/planner/internal/model"
	"lightpath/plans/planner/internal/timeline"
	"lightpath/plans/planner/internal/timing"
)

// routeOf returns the route of one plane with circuits c, which l is bound to, for a step.
func routeOf(m *model.Model, l *plans.Loader, c circuit.Permutation, st *model.Step, flows [][2]int) timeline.Route {
	if !m.P.Forwarding {
		if st.Pattern != nil && c.Covers(st.Pattern) {
			return timeline.Direct
		}
		return timeline.Route{}
	}
	hops, load, bad := l.Measure(flows)
	if bad >= 0 {
		return timeline.Route{}
	}
	return timeline.Route{Hops: hops, Load: load}
}

// Lanes returns the lanes of the planes of a unit set to maps that serve a step. loaders are bound to maps.
func Lanes(m *model.Model, loaders []plans.Loader, maps []circuit.Permutation, st *model.Step,
	flows [][2]int) []timing.Lane {
	routes := make([]timeline.Route, len(maps))
	for j := range maps {
		routes[j] = routeOf(m, &loaders[j], maps[j], st, flows)
	}
	return lanesOf(m, routes, nil)
}

// lanesOf appends the planes that can serve a step to buf.
func lanesOf(m *model.Model, routes []timeline.Route, buf []timing.Lane) []timing.Lane {
	for j, r := range routes {
		if r.OK() {
			buf = append(buf, timing.Lane{
				Plane: j, Setup: m.P.AlphaUS + m.P.HopUS*float64(r.Hops), PerByte: m.UsPerByte * float64(r.Load),
			})
		}
	}
	return buf
}

// Loaders returns one loader per plane, set to its map.
func Loaders(maps []circuit.Permutation) []plans.Loader {
	loaders := make([]plans.Loader, len(maps))
	for j, c := range maps {
		loaders[j].SetMap(c)
	}
	return loaders
}

// Unserved explains why circuits cannot serve a step.
func Unserved(m *model.Model, st *model.Step, maps []circuit.Permutation) error {
	var loaders []plans.Loader
	if m.P.Forwarding {
		loaders = Loaders(maps)
	}
	for _, f := range m.FlowsOf(st) {
		reach := model.Holds(maps, f)
		for j := range loaders {
			_, ok := loaders[j].Hops(f[0], f[1])
			reach = reach || ok
		}
		switch {
		case reach:
		case m.P.Forwarding:
			return model.Infeasible(st.Index, "rank %d cannot reach rank %d on any plane", f[0], f[1])
		default:
			return model.Infeasible(st.Index, "rank %d has no circuit to rank %d on any plane, and the fabric does not forward",
				f[0], f[1])
		}
	}
	if m.P.Forwarding {
		return model.Infeasible(st.Index, "no plane reaches all of its destinations")
	}
	return model.Infeasible(st.Index, "no plane has all of its circuits, and the fabric does not forward")
}
