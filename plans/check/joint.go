package check

import (
	"math"

	"lightpath/plans"
	"lightpath/plans/circuit"
)

// jointKey names a joint transmit: its id is unique within its step.
type jointKey struct {
	step int
	id   string
}

// jointMember is one entry of a joint transmit and the map of its plane at that time.
type jointMember struct {
	plane, entry int
	to           circuit.Permutation
}

// jointSet collects the members of joint transmits plane by plane.
type jointSet struct {
	members map[jointKey][]jointMember
	keys    []jointKey // in order of first appearance
}

func (s *jointSet) add(j, i int, e *plans.Entry, to circuit.Permutation) {
	if s.members == nil {
		s.members = make(map[jointKey][]jointMember)
	}
	key := jointKey{e.Step, e.Joint}
	if s.members[key] == nil {
		s.keys = append(s.keys, key)
	}
	s.members[key] = append(s.members[key], jointMember{j, i, to})
}

func (s *jointSet) check(c *stepsChecker) {
	for _, key := range s.keys {
		c.joint(s.members[key])
	}
}

// joint checks the members of one joint transmit: equal times, routes only in the first member, every route on existing
// circuits, and a duration that fits the busiest circuit.
func (c *stepsChecker) joint(members []jointMember) {
	first := members[0]
	e := &c.plan.Planes[first.plane][first.entry]
	if len(members) < 2 {
		c.entryf(first.plane, first.entry, "joint %q has no entry on another plane", e.Joint)
	}
	maps := make(map[int]circuit.Permutation, len(members))
	for k, m := range members {
		f := &c.plan.Planes[m.plane][m.entry]
		if f.Bytes != 0 || f.Flows != nil {
			c.entryf(m.plane, m.entry, "a joint entry states no bytes and no flows of its own")
		}
		if k > 0 && f.Routes != nil {
			c.entryf(m.plane, m.entry, "joint %q has its routes in its first entry only, on planes[%d][%d]", e.Joint,
				first.plane, first.entry)
		}
		if !plans.SameUS(f.StartUS, e.StartUS) || !plans.SameUS(f.EndUS, e.EndUS) {
			c.entryf(m.plane, m.entry, "joint %q has other times on planes[%d][%d]", e.Joint, first.plane, first.entry)
		}
		if maps[m.plane] != nil {
			c.entryf(m.plane, m.entry, "joint %q is on this plane twice in one step", e.Joint)
		}
		maps[m.plane] = m.to
	}
	if e.Routes == nil {
		c.entryf(first.plane, first.entry, "joint %q has no routes", e.Joint)
		return
	}
	if hops, bytes, ok := c.routes(first, e, maps); ok {
		c.lasts(first.plane, first.entry, e, plans.JointUS(c.p, hops, bytes))
	}
}

// routes follows every route, adds its bytes to its flow, and returns the hops of the
// longest and the bytes on the busiest circuit.
func (c *stepsChecker) routes(m jointMember, e *plans.Entry,
	maps map[int]circuit.Permutation) (hops int, most float64, ok bool) {
	s := &c.state[e.Step]
	flows := c.flows(e.Step)
	index := make(map[[2]int]int, len(flows))
	for f, flow := range flows {
		index[flow] = f
	}
	load := make(map[[2]int]float64) // by {plane, transmitter}
	ok = true
	for k := range e.Routes {
		r := &e.Routes[k]
		flow, known := index[r.Flow]
		switch {
		case !known:
			c.entryf(m.plane, m.entry, "routes[%d]: %d -> %d is no flow of the step", k, r.Flow[0], r.Flow[1])
			ok = false
			continue
		case !finite(r.Bytes) || r.Bytes < 0:
			c.entryf(m.plane, m.entry, "routes[%d]: %v bytes", k, r.Bytes)
			ok = false
			continue
		case !c.follow(m, k, r, maps):
			ok = false
			continue
		}
		s.add(flow, len(flows), r.Bytes)
		if r.Bytes == 0 {
			continue
		}
		hops = max(hops, len(r.Path))
		at := r.Flow[0]
		for _, hop := range r.Path {
			circuit := [2]int{hop[0], at}
			load[circuit] += r.Bytes
			most = math.Max(most, load[circuit])
			at = hop[1]
		}
	}
	if !c.p.Forwarding && hops > 1 {
		c.entryf(m.plane, m.entry, "a route has %d hops, and forwarding is off", hops)
	}
	return hops, most, ok
}

// follow reports a route that leaves the circuits of its planes or misses its flow's end.
func (c *stepsChecker) follow(m jointMember, k int, r *plans.Route, maps map[int]circuit.Permutation) bool {
	at := r.Flow[0]
	for h, hop := range r.Path {
		to, member := maps[hop[0]]
		switch {
		case !member:
			c.entryf(m.plane, m.entry, "routes[%d].path[%d]: plane %d is not part of the joint transmit", k, h, hop[0])
			return false
		case hop[1] == circuit.Dark || to[at] != hop[1]:
			c.entryf(m.plane, m.entry, "routes[%d].path[%d]: plane %d has no circuit %d -> %d (P1)", k, h, hop[0], at, hop[1])
			return false
		}
		at = hop[1]
	}
	if at != r.Flow[1] {
		c.entryf(m.plane, m.entry, "routes[%d]: ends at rank %d, not %d", k, at, r.Flow[1])
		return false
	}
	return true
}
