package model

import (
	"math/bits"
	"slices"
	"sort"

	"lightpath/plans"
	"lightpath/plans/circuit"
	"lightpath/plans/internal/matching"
)

// A step whose flows are no partial permutation is divided into matchings. By Konig's theorem it takes as many as its
// busiest port has flows. A good choice of matchings repeats circuits that other steps use. So split removes matchings
// from the step in this order: patterns of the problem, shifts, exclusive ors. It removes one only if the rest then
// needs one matching fewer. It colours the rest. Duplex planes join ranks in pairs, so there the matchings are those of
// an undirected graph. That may need one or more beyond its degree if it is not bipartite.

// splitPages is the most patterns of other steps that are tried for each step. A pattern counts if it has a
// circuit for one of the flows of the step.
const splitPages = 512

// split divides a step without pattern into sub-steps with one.
func (m *Model) split(st *Step) []Step {
	s := newSplitter(m, st.Flows)
	s.known()
	if m.P.Circuits == plans.Duplex {
		s.pairs()
	} else {
		s.shifts()
		s.xors()
		s.rest()
	}
	subs := make([]Step, 0, len(s.classes))
	for _, class := range s.classes {
		sub := Step{Index: st.Index, Bytes: st.Bytes, Pattern: circuit.AllDark(m.P.Ranks), Class: class, Page: -1}
		for _, f := range class {
			sub.Pattern[st.Flows[f][0]] = st.Flows[f][1]
		}
		subs = append(subs, sub)
	}
	return subs
}

// splitter takes matchings off a set of flows.
type splitter struct {
	m       *Model
	flows   [][2]int
	bySrc   [][]int32 // per source: flows by destination
	left    []bool    // per flow
	count   int       // flows left
	degree  [2][]int  // per side and rank: flows left; duplex: side 0 only, partners left
	most    int       // largest degree
	classes [][]int
	class   []int // buffer
}

func newSplitter(m *Model, flows [][2]int) *splitter {
	n := m.P.Ranks
	s := &splitter{m: m, flows: flows, bySrc: make([][]int32, n), left: make([]bool, len(flows)), count: len(flows)}
	for f := range flows {
		s.left[f] = true
		s.bySrc[flows[f][0]] = append(s.bySrc[flows[f][0]], int32(f))
	}
	for r := range s.bySrc {
		slices.SortFunc(s.bySrc[r], func(a, b int32) int { return flows[a][1] - flows[b][1] })
	}
	s.degree = [2][]int{make([]int, n), make([]int, n)}
	for f := range flows {
		s.weigh(f, 1)
	}
	s.findMost()
	return s
}

// duplex reports whether a circuit serves both directions of a pair of ranks.
func (s *splitter) duplex() bool { return s.m.P.Circuits == plans.Duplex }

// weigh adds flow f to the degrees, or removes it. On duplex planes a flow and the opposite one share a circuit: only
// the flow from the smaller rank counts.
func (s *splitter) weigh(f, by int) {
	src, dst := s.flows[f][0], s.flows[f][1]
	if !s.duplex() {
		s.degree[0][src] += by
		s.degree[1][dst] += by
		return
	}
	if src > dst {
		if _, ok := s.find(dst, src); ok {
			return
		}
	}
	s.degree[0][src] += by
	s.degree[0][dst] += by
}

func (s *splitter) findMost() {
	s.most = 0
	for side := range s.degree {
		for _, d := range s.degree[side] {
			s.most = max(s.most, d)
		}
	}
}

// find returns the flow from src to dst, left or not.
func (s *splitter) find(src, dst int) (int, bool) {
	list := s.bySrc[src]
	i := sort.Search(len(list), func(i int) bool { return s.flows[list[i]][1] >= dst })
	if i == len(list) || s.flows[list[i]][1] != dst {
		return 0, false
	}
	return int(list[i]), true
}

// known peels patterns of other steps that have a circuit for a flow of one of the busiest ranks.
func (s *splitter) known() {
	if s.count == 0 {
		return
	}
	r := slices.Index(s.degree[0], s.most)
	tried := 0
	for f, flow := range s.flows {
		if flow[0] != r && (!s.duplex() || flow[1] != r) || !s.left[f] {
			continue
		}
		for _, q := range s.m.pagesOf(flow[0], flow[1]) {
			if tried++; tried > splitPages {
				return
			}
			for _, c := range s.m.Pages[q] {
				s.peel(c)
			}
		}
	}
}

// peel takes the flows that circuits c carry, if every rank that has the most flows is
// among them.
func (s *splitter) peel(c circuit.Permutation) {
	if s.count == 0 {
		return
	}
	s.class = s.class[:0]
	covered := [2]int{} // busiest ranks, by side
	for src, dst := range c {
		if dst == circuit.Dark || dst == src {
			continue
		}
		f, ok := s.find(src, dst)
		if !ok || !s.left[f] {
			if ok = false; s.duplex() { // its way back may have a flow
				f, ok = s.find(dst, src)
				ok = ok && s.left[f]
			}
			if !ok && s.degree[0][src] == s.most {
				return // as most circuits do at once
			}
			continue
		}
		s.class = append(s.class, f)
		for side := range s.degree {
			if s.degree[side][s.flows[f][side]] == s.most {
				covered[side]++
			}
		}
	}
	if s.duplex() {
		covered = s.coveredPairs()
	}
	for side := range s.degree {
		busiest := 0
		for _, d := range s.degree[side] {
			if d == s.most {
				busiest++
			}
		}
		if covered[side] < busiest {
			return
		}
	}
	s.take()
}

// coveredPairs counts the busiest ranks that the class contains, as sources or destinations.
func (s *splitter) coveredPairs() (covered [2]int) {
	touched := make(map[int]bool, 2*len(s.class))
	for _, f := range s.class {
		for _, r := range s.flows[f] {
			if s.degree[0][r] == s.most && !touched[r] {
				touched[r] = true
				covered[0]++
			}
		}
	}
	return covered
}

// take makes the flows in the buffer a class.
func (s *splitter) take() {
	if len(s.class) == 0 {
		return
	}
	slices.SortFunc(s.class, func(a, b int) int { return s.flows[a][0] - s.flows[b][0] })
	for _, f := range s.class {
		s.left[f] = false
		s.weigh(f, -1)
	}
	s.count -= len(s.class)
	s.classes = append(s.classes, slices.Clone(s.class))
	s.findMost()
}

// shifts peels the shifts that occur among the flows, nearest first.
func (s *splitter) shifts() {
	n := s.m.P.Ranks
	for _, d := range s.present(func(f [2]int) int { return (f[1] - f[0] + n) % n }) {
		s.peel(circuit.Shift(n, d))
	}
}

// xors peels the exclusive ors that occur among the flows.
func (s *splitter) xors() {
	for _, m := range s.present(func(f [2]int) int { return f[0] ^ f[1] }) {
		s.peel(circuit.Xor(s.m.P.Ranks, m))
	}
}

// present lists the distinct keys of the flows that are left, in order.
func (s *splitter) present(key func([2]int) int) []int {
	var keys []int
	seen := map[int]bool{}
	for f, flow := range s.flows {
		if k := key(flow); s.left[f] && !seen[k] {
			seen[k] = true
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	return keys
}

// rest colours the remaining flows.
func (s *splitter) rest() {
	if s.count == 0 {
		return
	}
	var ids []int
	var edges [][2]int
	for f, left := range s.left {
		if left {
			ids = append(ids, f)
			edges = append(edges, s.flows[f])
		}
	}
	color, degree := matching.Color(s.m.P.Ranks, edges)
	s.byColor(ids, color, degree)
}

// byColor takes one class for each of the colours 0..colors-1 of the flows ids.
func (s *splitter) byColor(ids, color []int, colors int) {
	groups := make([][]int, colors)
	for i, f := range ids {
		groups[color[i]] = append(groups[color[i]], f)
	}
	for _, g := range groups {
		s.class = append(s.class[:0], g...)
		s.take()
	}
}

// pairs divides the remaining flows into matchings of an undirected graph: by exclusive or, by sum (round robin: rank
// n-1 of an even number sits out of the circle), or greedily, whichever takes the fewest.
func (s *splitter) pairs() {
	if s.count == 0 {
		return
	}
	var ids []int
	for f, left := range s.left {
		if left {
			ids = append(ids, f)
		}
	}
	circle := s.m.P.Ranks
	if circle%2 == 0 {
		circle--
	}
	best, fewest := s.colorBy(ids, func(f [2]int) int { return f[0] ^ f[1] })
	color, colors := s.colorBy(ids, func(f [2]int) int {
		if max(f[0], f[1]) == circle { // its partner is the rank that the circle leaves out
			return 2 * min(f[0], f[1]) % circle
		}
		return (f[0] + f[1]) % circle
	})
	if colors < fewest {
		best, fewest = color, colors
	}
	if fewest > s.most {
		color, colors, ok := s.colorSides(ids)
		if !ok {
			color, colors = s.greedyPairs(ids)
		}
		if colors < fewest {
			best, fewest = color, colors
		}
	}
	s.byColor(ids, best, fewest)
}

// colorSides colours the pairs of ranks with as many colours as the busiest rank has partners. It does so if the ranks
// can be divided into two sides such that all pairs are between them.
func (s *splitter) colorSides(ids []int) (color []int, colors int, ok bool) {
	n := s.m.P.Ranks
	near := make([][]int, n) // partners
	for _, f := range ids {
		a, b := s.flows[f][0], s.flows[f][1]
		near[a], near[b] = append(near[a], b), append(near[b], a)
	}
	side := make([]int8, n)
	for r := range side {
		if side[r] != 0 {
			continue
		}
		side[r] = 1
		for queue := []int{r}; len(queue) > 0; queue = queue[1:] {
			for _, p := range near[queue[0]] {
				if side[p] == side[queue[0]] {
					return nil, 0, false
				}
				if side[p] == 0 {
					side[p] = -side[queue[0]]
					queue = append(queue, p)
				}
			}
		}
	}
	var edges [][2]int
	at := make(map[[2]int]int, len(ids)) // pair, the rank of side 1 first -> edge
	pair := func(f int) [2]int {
		if a, b := s.flows[f][0], s.flows[f][1]; side[a] < 0 {
			return [2]int{b, a}
		}
		return s.flows[f]
	}
	for _, f := range ids {
		if _, ok := at[pair(f)]; !ok {
			at[pair(f)] = len(edges)
			edges = append(edges, pair(f))
		}
	}
	edgeColor, colors := matching.Color(n, edges)
	color = make([]int, len(ids))
	for i, f := range ids {
		color[i] = edgeColor[at[pair(f)]]
	}
	return color, colors, true
}

// colorBy numbers the keys of flows in order of their values.
func (s *splitter) colorBy(ids []int, key func([2]int) int) (color []int, colors int) {
	keys := s.present(key)
	color = make([]int, len(ids))
	for i, f := range ids {
		color[i], _ = slices.BinarySearch(keys, key(s.flows[f]))
	}
	return color, len(keys)
}

// greedyPairs gives every pair of ranks the first colour that both have free: fewer than
// twice the degree.
func (s *splitter) greedyPairs(ids []int) (color []int, colors int) {
	words := 2*s.most/64 + 1
	used := make([]uint64, s.m.P.Ranks*words) // per rank: a bit for each colour
	byFlow := make(map[int]int, len(ids))
	color = make([]int, len(ids))
	for i, f := range ids {
		a, b := s.flows[f][0], s.flows[f][1]
		if back, ok := s.find(b, a); ok {
			if c, done := byFlow[back]; done {
				color[i] = c
				continue
			}
		}
		ua, ub := used[a*words:(a+1)*words], used[b*words:(b+1)*words]
		c := 0
		for w := range ua {
			if free := ^(ua[w] | ub[w]); free != 0 {
				c = 64*w + bits.TrailingZeros64(free)
				break
			}
		}
		ua[c/64] |= 1 << (c % 64)
		ub[c/64] |= 1 << (c % 64)
		byFlow[f], color[i] = c, c
		colors = max(colors, c+1)
	}
	return color, colors
}

// DividedAs returns m with the steps split as plan divides their flows. It returns nil if plan divides all steps as m
// does, or has a flow in several parts.
func (m *Model) DividedAs(plan *plans.Plan) *Model {
	divides := func(e plans.Entry) bool { return e.Flows != nil }
	if !slices.ContainsFunc(plan.Planes, func(entries []plans.Entry) bool {
		return slices.ContainsFunc(entries, divides)
	}) {
		return nil
	}
	parts := make(map[int][][]int, len(m.Asked)) // by step of the problem
	for _, entries := range plan.Planes {
		for i := range entries {
			e := &entries[i]
			known := func(class []int) bool { return slices.Equal(class, e.Flows) }
			if e.Kind == plans.Transmit && e.Joint == "" && !slices.ContainsFunc(parts[e.Step], known) {
				parts[e.Step] = append(parts[e.Step], e.Flows)
			}
		}
	}
	out := *m
	out.Steps, out.Pages = nil, slices.Clone(m.Pages)
	out.byMap, out.byFirst = circuit.Index{}, map[int][]int{}
	for i := range out.Pages {
		out.byMap.Add(out.Pages[i][0])
	}
	i, other := 0, false
	for from, to := range m.SubSteps() {
		subs := out.partsAs(&m.Asked[i], parts[m.Asked[i].Index])
		i++
		if subs == nil {
			subs = m.Steps[from:to]
		} else {
			other = true
		}
		out.Steps = append(out.Steps, subs...)
	}
	if !other {
		return nil
	}
	return &out
}

// partsAs returns the sub-steps of a step for the given parts of its flows. It returns nil if the parts do not fit the
// step, or if a unit cannot hold a part.
func (m *Model) partsAs(whole *Step, parts [][]int) []Step {
	flows := m.FlowsOf(whole)
	count := 0
	var subs []Step
	for _, class := range parts {
		sub := m.Part(whole, flows, class)
		if sub.Pattern == nil || !m.assignPage(&sub) {
			return nil
		}
		count += len(class)
		subs = append(subs, sub)
	}
	if len(subs) < 2 || count != len(flows) {
		return nil
	}
	return subs
}

// Part returns the sub-step of some flows of a step. class holds their indexes. Its pattern is nil if the flows are no
// partial permutation.
func (m *Model) Part(whole *Step, flows [][2]int, class []int) Step {
	st := Step{Index: whole.Index, Bytes: whole.Bytes, Page: -1, Class: slices.Clone(class)}
	slices.SortStableFunc(st.Class, func(x, y int) int { return flows[x][0] - flows[y][0] })
	for _, f := range st.Class {
		st.Flows = append(st.Flows, flows[f])
	}
	if st.Pattern, _ = patternOf(m.P.Ranks, &plans.Step{Flows: st.Flows}); st.Pattern != nil {
		st.Flows = nil
	}
	return st
}
