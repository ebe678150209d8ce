package offer

import (
	"math"
	"slices"
	"strconv"

	"lightpath/plans"
	"lightpath/plans/circuit"
	"lightpath/plans/planner/internal/effort"
	"lightpath/plans/planner/internal/model"
	"lightpath/plans/planner/internal/timeline"
	"lightpath/plans/planner/internal/timing"
)

// offer is a way to serve a step, or a part of it, on the circuits of all planes.
type offer struct {
	us    float64 // +Inf: not at all
	parts []part
	joint *joint // instead of parts
}

// part is the transmit of one plane.
type part struct {
	plane int
	bytes float64
	flows []int // indexes into the flows served; nil: all
	route timeline.Route
}

// nothing is the offer if some flow has no route.
var nothing = offer{us: math.Inf(1)}

// server computes the offer of all planes on given circuits. An offer serves flows in one of four ways:
//   - split: every plane carries some bytes of all flows.
//   - direct: every flow uses the circuits from its source to its destination, on all planes that have one. If the flow
//     with the fewest such planes has s of them, the step takes at least alpha + hop + bytes/s. It takes no longer if
//     every flow uses s.
//   - joint: the planes form one graph, in which flows divide (package flow).
//   - spread: every flow goes over one plane, forwarded there. This replaces joint where joint transmits are off.
//
// The first two are cheap and exact. Without forwarding, only the parts of an offer depend on the flows of a step
// with a pattern; its time does not. A server is for one goroutine.
type server struct {
	m       *model.Model
	joint   bool // joint transmits are allowed
	partial bool // planes may serve parts of a pattern direct
	maps    []circuit.Permutation
	same    []int                 // per plane: the first plane with the same map
	unlike  []circuit.Permutation // maps that differ, and how many planes have each
	count   []int
	loaders []plans.Loader
	routes  []timeline.Route // of split, by plane
	lanes   []timing.Lane
	out     []float64
	dist    distances
}

func newServer(m *model.Model, o effort.Search, partial bool) *server {
	return &server{
		m: m, joint: m.P.Forwarding && !o.SinglePlane && m.P.Planes > 1, partial: partial,
		same: make([]int, m.P.Planes), loaders: make([]plans.Loader, m.P.Planes), out: make([]float64, m.P.Planes),
	}
}

// setMaps selects the circuits, one map per plane, for the other methods.
func (s *server) setMaps(maps []circuit.Permutation) {
	if len(s.maps) > 0 && &s.maps[0] == &maps[0] {
		return
	}
	s.maps, s.dist.known = maps, false
	s.unlike, s.count = s.unlike[:0], s.count[:0]
	for j, c := range maps {
		i := slices.IndexFunc(s.unlike, c.Equal)
		if i >= 0 {
			s.same[j] = slices.IndexFunc(maps, c.Equal)
			s.count[i]++
			continue
		}
		s.same[j], s.unlike, s.count = j, append(s.unlike, c), append(s.count, 1)
		if s.m.P.Forwarding {
			s.loaders[j].SetMap(c)
		}
	}
}

// uniform reports whether all planes have the same map: no flow gains from another plane.
func (s *server) uniform() bool {
	for _, i := range s.same {
		if i != 0 {
			return false
		}
	}
	return true
}

// split divides the bytes over the planes that can carry all flows of st, which it puts into lanes. It returns the
// time, or +Inf if there is no such plane.
func (s *server) split(st *model.Step, flows [][2]int) float64 {
	s.routes = s.routes[:0]
	for j, i := range s.same {
		if i == j {
			s.routes = append(s.routes, routeOf(s.m, &s.loaders[j], s.maps[j], st, flows))
		} else {
			s.routes = append(s.routes, s.routes[i])
		}
	}
	s.lanes = lanesOf(s.m, s.routes, s.lanes[:0])
	if len(s.lanes) == 0 {
		return math.Inf(1)
	}
	return timing.Split(s.lanes, st.Bytes, s.out)
}

// planesOf returns the least number of planes that have a circuit for a flow of st.
func (s *server) planesOf(st *model.Step, flows [][2]int) int {
	least := len(s.maps)
	count := func(src, dst int) {
		planes := 0
		for i, c := range s.unlike {
			if c[src] == dst {
				planes += s.count[i]
			}
		}
		least = min(least, planes)
	}
	for src, dst := range st.Pattern { // flows may be left out then
		if dst != circuit.Dark {
			count(src, dst)
		}
		if least == 0 {
			return 0
		}
	}
	if st.Pattern == nil {
		for _, f := range flows {
			if count(f[0], f[1]); least == 0 {
				return 0
			}
		}
	}
	return least
}

// directUS returns the time of a step that is served direct.
func (s *server) directUS(st *model.Step, flows [][2]int) float64 {
	if planes := s.planesOf(st, flows); planes > 0 {
		return s.m.DirectUS + s.m.UsPerByte*st.Bytes/float64(planes)
	}
	return math.Inf(1)
}

// divides reports whether flows of st may go over different planes.
func (s *server) divides(st *model.Step) bool { return s.partial || st.Pattern == nil }

// simpleUS returns the time of the better of split and direct.
func (s *server) simpleUS(st *model.Step, flows [][2]int) float64 {
	us := s.split(st, flows)
	if s.divides(st) && !s.uniform() {
		us = math.Min(us, s.directUS(st, flows))
	}
	return us
}

// simple returns the better of split and direct.
func (s *server) simple(st *model.Step, flows [][2]int) offer {
	best := offer{us: s.split(st, flows)}
	for i, l := range s.lanes {
		if s.out[i] > 0 {
			best.parts = append(best.parts, part{l.Plane, s.out[i], nil, s.routes[l.Plane]})
		}
	}
	if !s.divides(st) || s.uniform() {
		return best
	}
	planes := s.planesOf(st, flows)
	if planes == 0 {
		return best
	}
	us := s.m.DirectUS + s.m.UsPerByte*st.Bytes/float64(planes)
	if us >= best.us-model.Tolerance(us) {
		return best
	}
	return offer{us: us, parts: s.directParts(st.Bytes, flows, planes)}
}

// directParts gives every flow some of the planes that have its circuit.
func (s *server) directParts(bytes float64, flows [][2]int, planes int) []part {
	takes := make([][]int, len(s.maps))
	for i, f := range flows {
		left := planes
		for j, c := range s.maps {
			if left > 0 && c[f[0]] == f[1] {
				takes[j] = append(takes[j], i)
				left--
			}
		}
	}
	return partsOf(takes, func(int) part { return part{bytes: bytes / float64(planes), route: timeline.Direct} })
}

// partsOf makes the parts of planes that take flows.
func partsOf(takes [][]int, of func(plane int) part) []part {
	var parts []part
	for j, flows := range takes {
		if len(flows) == 0 {
			continue
		}
		p := of(j)
		p.plane, p.flows = j, flows
		parts = append(parts, p)
	}
	return parts
}

// spread sends every flow over the plane on which it has the fewest hops; of several, one with little load.
func (s *server) spread(st *model.Step, flows [][2]int) offer {
	if !s.m.P.Forwarding || !s.divides(st) || s.uniform() {
		return nothing
	}
	takes := make([][]int, len(s.maps))
	busy := make([]int, len(s.maps)) // hops of the flows taken
	for i, f := range flows {
		at, fewest := -1, 0
		for j := range s.maps {
			h, ok := s.loaders[s.same[j]].Hops(f[0], f[1])
			if ok && (at < 0 || h < fewest || h == fewest && busy[j] < busy[at]) {
				at, fewest = j, h
			}
		}
		if at < 0 {
			return nothing
		}
		takes[at] = append(takes[at], i)
		busy[at] += fewest
	}
	out := offer{}
	list := make([][2]int, 0, len(flows))
	out.parts = partsOf(takes, func(j int) part {
		list = list[:0]
		for _, i := range takes[j] {
			list = append(list, flows[i])
		}
		hops, load, _ := s.loaders[s.same[j]].Measure(list)
		out.us = math.Max(out.us, plans.TransmitUS(s.m.P, hops, load, st.Bytes))
		return part{bytes: st.Bytes, route: timeline.Route{Hops: hops, Load: load}}
	})
	return out
}

// floorUS returns a lower bound of all offers' times: the hops of the farthest flow, and the time to carry the bytes of
// all flows over all their hops. simple is the time of the simple offers. It returns +Inf if some flow has no route.
func (s *server) floorUS(st *model.Step, flows [][2]int, simple float64) float64 {
	s.dist.measure(s.maps)
	sum, longest, ok := s.dist.sum(flows)
	if !ok {
		return math.Inf(1)
	}
	least := s.m.UsPerByte * st.Bytes * math.Max(float64(sum)/float64(s.dist.circuits), s.dist.busiest(flows))
	far := s.m.P.AlphaUS + s.m.P.HopUS*float64(longest)
	if s.joint {
		return math.Min(simple, far+least)
	}
	return math.Min(simple, math.Max(far, s.m.DirectUS+least)) // not every plane has the longest route
}

// send writes an offer for a piece of a step. The step stays open.
func send(m *model.Model, t *timeline.Timeline, pc *Piece, o offer) {
	if j := o.joint; j != nil {
		us := plans.JointUS(m.P, j.hops, j.bytes)
		t.TransmitJoint(j.planes(m.P.Planes), pc.Index, strconv.Itoa(pc.From), us, j.routes)
		return
	}
	for _, p := range o.parts {
		st := pc.Step
		if p.flows != nil {
			st.Class = pc.flowsAt(p.flows)
		}
		t.Transmit(p.plane, &st, p.bytes, p.route)
	}
}

// distances holds the hops between all ranks in the graph of several planes.
type distances struct {
	known    bool
	n        int
	hops     []int16 // [src*n+dst], -1: no route
	out, in  []int   // circuits per rank
	circuits int
	queue    []int32
	use      [2][]int
}

// measure fills the table for maps, unless it is up to date.
func (d *distances) measure(maps []circuit.Permutation) {
	if d.known {
		return
	}
	n := len(maps[0])
	if d.n == 0 {
		d.n, d.hops, d.out, d.in = n, make([]int16, n*n), make([]int, n), make([]int, n)
		d.use = [2][]int{make([]int, n), make([]int, n)}
	}
	d.known, d.circuits = true, 0
	clear(d.out)
	clear(d.in)
	for _, c := range maps {
		for r, to := range c {
			if to != circuit.Dark && to != r {
				d.circuits++
				d.out[r]++
				d.in[to]++
			}
		}
	}
	for src := range n {
		d.from(maps, src)
	}
}

// from fills the row of one source, breadth first.
func (d *distances) from(maps []circuit.Permutation, src int) {
	row := d.hops[src*d.n : (src+1)*d.n]
	for r := range row {
		row[r] = -1
	}
	row[src] = 0
	d.queue = append(d.queue[:0], int32(src))
	for i := 0; i < len(d.queue); i++ {
		r := d.queue[i]
		for _, c := range maps {
			if to := c[r]; to != circuit.Dark && row[to] < 0 {
				row[to] = row[r] + 1
				d.queue = append(d.queue, int32(to))
			}
		}
	}
}

// sum returns the sum and the largest of the flows' hops, or false if a flow has no route.
func (d *distances) sum(flows [][2]int) (sum, longest int, ok bool) {
	for _, f := range flows {
		h := int(d.hops[f[0]*d.n+f[1]])
		if h < 0 {
			return 0, 0, false
		}
		sum += h
		longest = max(longest, h)
	}
	return sum, longest, true
}

// busiest returns the most flows per circuit that begin or end at one rank.
func (d *distances) busiest(flows [][2]int) float64 {
	for side := range d.use {
		clear(d.use[side])
	}
	for _, f := range flows {
		d.use[0][f[0]]++
		d.use[1][f[1]]++
	}
	most := 0.0
	for r := range d.n {
		if d.use[0][r] > 0 {
			most = math.Max(most, float64(d.use[0][r])/float64(d.out[r]))
		}
		if d.use[1][r] > 0 {
			most = math.Max(most, float64(d.use[1][r])/float64(d.in[r]))
		}
	}
	return most
}
