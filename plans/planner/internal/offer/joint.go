package offer

import (
	"math"

	"lightpath/plans"
	"lightpath/plans/planner/internal/flow"
	"lightpath/plans/planner/internal/model"
)

// joint is a transmit of several planes as one graph.
type joint struct {
	hops   int     // of the longest route
	bytes  float64 // on the busiest circuit
	routes []plans.Route
}

// flowTiers are the options of searches for routes, from a rough search to the best possible.
var flowTiers = [...]flow.Options{
	{Work: 1, Epsilon: 5e-2}, // shortest paths
	{Work: 5e6, Epsilon: 1e-2},
	{Work: 1e8, Epsilon: 1e-3},
}

// jointly returns the best joint transmit of st that a search of the given tier finds, and a lower bound of the time of
// joint transmits. work is the work spent, roughly in nanoseconds.
func (s *server) jointly(st *model.Step, flows [][2]int, tier int) (o offer, least float64, work int64) {
	r, bound, err := flow.Best(s.maps, flows, flowTiers[tier], s.m.P.HopUS, plans.WireUS(s.m.P, st.Bytes))
	if err != nil { // unreachable
		return nothing, math.Inf(1), int64(len(flows))
	}
	j := &joint{routes: make([]plans.Route, len(r.Routes))}
	for i, route := range r.Routes {
		route.Bytes *= st.Bytes
		j.routes[i] = route
	}
	j.measure(s.m.P.Planes, s.m.P.Ranks)
	us := plans.JointUS(s.m.P, j.hops, j.bytes)
	return offer{us: us, joint: j}, math.Min(us, s.m.P.AlphaUS+bound), r.Work + int64(len(flows))
}

// measure computes the cost of the routes.
func (j *joint) measure(planes, ranks int) {
	load := make([]float64, planes*ranks) // by plane and transmitter
	for _, r := range j.routes {
		j.hops = max(j.hops, len(r.Path))
		at := r.Flow[0]
		for _, hop := range r.Path {
			c := hop[0]*ranks + at
			load[c] += r.Bytes
			j.bytes = math.Max(j.bytes, load[c])
			at = hop[1]
		}
	}
}

// size counts the hops of all routes.
func (j *joint) size() int {
	size := 0
	for _, r := range j.routes {
		size += len(r.Path)
	}
	return size
}

// planes lists the planes that a joint transmit occupies: those on its routes, and a second
// one where there is only one, since a joint transmit has at least two.
func (j *joint) planes(k int) []int {
	used := make([]bool, k)
	count := 0
	for _, r := range j.routes {
		for _, hop := range r.Path {
			if !used[hop[0]] {
				used[hop[0]] = true
				count++
			}
		}
	}
	var list []int
	for p := range used {
		if used[p] || count < 2 {
			if !used[p] {
				count++
			}
			list = append(list, p)
		}
	}
	return list
}
