package planner

import (
	"fmt"
	"slices"

	"lightpath/plans"
	"lightpath/plans/circuit"
)

// model is a problem compiled for planning: the steps that cost time, the distinct
// circuits they ask for and the planes that can switch independently.
type model struct {
	p         *plans.Problem
	usPerByte float64 // at full rate, one plane
	directUS  float64 // before the first byte of a transmit over direct circuits
	steps     []step  // in order; a step without pattern is split into sub-steps of its index
	asked     []step  // the steps as the problem asks for them; steps where none is split
	subs      []step  // of an unsplit model: the steps when they are split
	pages     []page
	// Planes come in units that switch together: one plane, or an interleaved pair.
	unitPlanes, units int
	initial           [][]circuit.Permutation // per unit, per plane of it; nil: free
	byMap             circuit.Index           // the first map of each page
	byFirst           map[int][]int           // rank -> the pages with a circuit from rank 0 to it
	proof             *lazyBound
}

// step is a step of the problem that carries bytes. In model.steps, a step whose flows one plane cannot
// hold at a time is split into sub-steps, which it can (model_split.go). The sub-steps of a step
// follow each other, but may be served in any order and at the same time.
type step struct {
	index   int // in the problem
	bytes   float64
	pattern circuit.Permutation // nil where a plane cannot hold the flows at a time
	flows   [][2]int            // of a step without pattern; see flowsOf
	class   []int               // of a sub-step: its flows, indexes into the step's flows, by source
	page    int                 // index into pages; -1 without pattern
}

// page is the setting of a unit that serves a pattern directly.
type page struct {
	maps []circuit.Permutation // one per plane of the unit
}

// compile returns the model of p. The error says why no planner of this package can plan it.
func compile(p *plans.Problem) (*model, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	if p.Demand != nil {
		return nil, fmt.Errorf("%w: demand problems need the spectra planner", ErrInfeasible)
	}
	m := &model{
		p:          p,
		usPerByte:  8e-3 / p.BandwidthGbps,
		directUS:   p.AlphaUS + p.HopUS,
		proof:      new(lazyBound),
		byFirst:    map[int][]int{},
		unitPlanes: 1,
		units:      p.Planes,
	}
	if p.Circuits == plans.Interleaved {
		m.unitPlanes, m.units = 2, p.Planes/2
	}
	if err := m.compileInitial(); err != nil {
		return nil, err
	}
	if p.Final.Kind == plans.FinalGiven {
		for u := 0; u < m.units; u++ {
			if err := m.legal(p.Final.Maps[u*m.unitPlanes : (u+1)*m.unitPlanes]); err != nil {
				return nil, fmt.Errorf("%w: final: plane %d: %w", ErrInfeasible, u*m.unitPlanes, err)
			}
		}
	}
	m.compileSteps()
	return m, nil
}

func (m *model) compileInitial() error {
	if m.p.Initial == nil {
		return nil
	}
	for u := 0; u < m.units; u++ {
		maps := m.p.Initial[u*m.unitPlanes : (u+1)*m.unitPlanes]
		if err := m.legal(maps); err != nil {
			return fmt.Errorf("%w: initial: plane %d: %w", ErrInfeasible, u*m.unitPlanes, err)
		}
		m.initial = append(m.initial, maps)
	}
	return nil
}

func (m *model) compileSteps() {
	splits := false
	for i := range m.p.Steps {
		s := &m.p.Steps[i]
		st := step{index: i, bytes: s.Bytes, page: -1}
		var empty bool
		st.pattern, empty = patternOf(m.p.Ranks, s)
		if empty || s.Bytes == 0 {
			continue
		}
		if st.pattern == nil || !m.assignPage(&st) {
			st.pattern, st.flows, splits = nil, s.FlowList(), true
		}
		m.asked = append(m.asked, st)
	}
	m.steps = m.asked
	if splits {
		m.splitSteps()
	}
}

// splitSteps fills steps; the patterns of whole steps are pages by now.
func (m *model) splitSteps() {
	m.steps = nil
	for i := range m.asked {
		if m.asked[i].pattern != nil {
			m.steps = append(m.steps, m.asked[i])
			continue
		}
		subs := m.split(&m.asked[i])
		for j := range subs {
			m.assignPage(&subs[j])
		}
		m.steps = append(m.steps, m.orderSubs(subs)...)
	}
}

// orderSubs begins with the page that the step before ends with, and keeps sub-steps of
// one page (interleaved planes: a pattern and its inverse) together.
func (m *model) orderSubs(subs []step) []step {
	first := map[int]int{} // page -> place
	for i := range subs {
		if _, ok := first[subs[i].page]; !ok {
			first[subs[i].page] = i
		}
	}
	if n := len(m.steps); n > 0 {
		if _, ok := first[m.steps[n-1].page]; ok {
			first[m.steps[n-1].page] = -1
		}
	}
	slices.SortStableFunc(subs, func(a, b step) int { return first[a.page] - first[b.page] })
	return subs
}

// assignPage finds or adds the page of a step with a pattern. It returns false if no plane can hold the pattern.
func (m *model) assignPage(st *step) bool {
	maps, ok := m.mapsFor(st.pattern)
	if !ok {
		return false
	}
	id, fresh := m.byMap.Add(maps[0])
	if fresh {
		m.pages = append(m.pages, page{maps})
		for _, c := range maps {
			if c[0] != circuit.Dark {
				m.byFirst[c[0]] = append(m.byFirst[c[0]], id)
			}
		}
	}
	st.page = id
	return true
}

// withoutForwarding returns m for plans that do not forward.
func (m *model) withoutForwarding() *model {
	if !m.p.Forwarding {
		return m
	}
	p, out := *m.p, *m
	p.Forwarding = false
	out.p, out.proof = &p, new(lazyBound)
	return &out
}

// pagesOf lists the pages that have a circuit from src to dst.
func (m *model) pagesOf(src, dst int) []int {
	if src == 0 {
		return m.byFirst[dst]
	}
	var list []int
	for q := range m.pages {
		if holds(m.pages[q].maps, [2]int{src, dst}) {
			list = append(list, q)
		}
	}
	return list
}

// lastOfStep reports whether steps[i] is the last of its step: a barrier follows.
func (m *model) lastOfStep(i int) bool {
	return i+1 == len(m.steps) || m.steps[i+1].index != m.steps[i].index
}

// unsplit returns m with the steps of the problem.
func (m *model) unsplit() *model {
	if len(m.steps) == len(m.asked) {
		return m
	}
	whole := *m
	whole.steps, whole.subs = m.asked, m.steps
	return &whole
}

// spread converts the bounds of the unsplit model to bounds of m. Within a step, they do not count its remaining
// sub-steps.
func (m *model) spread(b bounds) bounds {
	if len(m.steps) == len(m.asked) {
		return b
	}
	suffix := make([]float64, 0, len(m.steps)+1)
	whole := 0
	for i := range m.steps {
		if i > 0 && m.lastOfStep(i-1) {
			whole++
		}
		at := whole
		if i > 0 && !m.lastOfStep(i-1) {
			at++
		}
		suffix = append(suffix, b.suffix[at])
	}
	b.suffix = append(suffix, 0)
	return b
}

// patternOf returns the flows of s as a partial permutation, or nil if they are none.
func patternOf(n int, s *plans.Step) (pattern circuit.Permutation, empty bool) {
	empty = true // until there is a flow
	pattern = circuit.AllDark(n)
	if s.To != nil {
		for r, d := range s.To {
			if d != circuit.Dark && d != r {
				pattern[r], empty = d, false
			}
		}
		return pattern, empty
	}
	from := circuit.AllDark(n)
	for _, f := range s.Flows {
		src, dst := f[0], f[1]
		if pattern[src] != circuit.Dark || from[dst] != circuit.Dark {
			return nil, false
		}
		pattern[src], from[dst], empty = dst, src, false
	}
	return pattern, empty
}

// mapsFor returns the maps of a unit for pattern, or false if it cannot hold the pattern: a duplex plane holds only
// involutions. An interleaved pair holds a pattern and its inverse, so a pattern and its inverse share a page: the
// smaller comes first.
func (m *model) mapsFor(pattern circuit.Permutation) (maps []circuit.Permutation, ok bool) {
	switch m.p.Circuits {
	case plans.Duplex:
		c := pattern.Clone()
		for r, s := range pattern {
			if s == circuit.Dark {
				continue
			}
			if c[s] != circuit.Dark && c[s] != r {
				return nil, false
			}
			c[s] = r
		}
		return []circuit.Permutation{c}, true
	case plans.Interleaved:
		inv := pattern.Inverse()
		if less(inv, pattern) {
			pattern, inv = inv, pattern
		}
		return []circuit.Permutation{pattern, inv}, true
	default:
		return []circuit.Permutation{pattern}, true
	}
}

func less(a, b circuit.Permutation) bool {
	for r := range a {
		if a[r] != b[r] {
			return a[r] < b[r]
		}
	}
	return false
}

// legal reports why a unit cannot hold maps.
func (m *model) legal(maps []circuit.Permutation) error {
	switch m.p.Circuits {
	case plans.Duplex:
		if !maps[0].Involution() {
			return fmt.Errorf("duplex planes hold only involutions")
		}
	case plans.Interleaved:
		if !maps[0].Inverse().Equal(maps[1]) {
			return fmt.Errorf("interleaved planes hold a permutation and its inverse")
		}
	}
	return nil
}

// flowsOf computes the flows of a step. They are not stored, since the flows of all steps of a large problem do not fit
// in memory.
func (m *model) flowsOf(st *step) [][2]int {
	if st.flows != nil {
		return st.flows
	}
	if st.class != nil {
		s := plans.Step{To: st.pattern}
		return s.FlowList()
	}
	return m.p.Steps[st.index].FlowList()
}

// flowCount returns the number of flows of a step.
func (m *model) flowCount(st *step) int {
	if st.pattern == nil {
		return len(st.flows)
	}
	return m.p.Ranks // or a few less
}

// everyUnit returns the maps of a fabric whose units are all set to maps.
func (m *model) everyUnit(maps []circuit.Permutation) []circuit.Permutation {
	all := make([]circuit.Permutation, 0, m.p.Planes)
	for u := 0; u < m.units; u++ {
		all = append(all, maps...)
	}
	return all
}

// servers counts the planes of a unit set to maps that hold every circuit of pattern.
func servers(maps []circuit.Permutation, pattern circuit.Permutation) int {
	n := 0
	for _, c := range maps {
		if c.Covers(pattern) {
			n++
		}
	}
	return n
}

// matchingsOf returns the patterns of the sub-steps of a step that is split.
func (m *model) matchingsOf(st *step) []circuit.Permutation {
	var all []circuit.Permutation
	for _, steps := range [][]step{m.steps, m.subs} {
		for i := range steps {
			if steps[i].index == st.index && steps[i].pattern != nil {
				all = append(all, steps[i].pattern)
			}
		}
	}
	return all
}

// stepKinds numbers steps with a pattern by what they ask for: the pattern and its bytes.
// The zero value is ready.
type stepKinds struct {
	patterns circuit.Index
	ids      map[stepKind]int
}

type stepKind struct {
	pattern int
	bytes   float64
}

// add returns the number of st's kind, and whether st is the first of it.
func (x *stepKinds) add(st *step) (kind int, fresh bool) {
	id, _ := x.patterns.Add(st.pattern)
	k := stepKind{id, st.bytes}
	kind, ok := x.ids[k]
	if !ok {
		if x.ids == nil {
			x.ids = map[stepKind]int{}
		}
		kind = len(x.ids)
		x.ids[k] = kind
	}
	return kind, !ok
}
