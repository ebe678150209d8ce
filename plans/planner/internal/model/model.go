package model

import (
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"

	"lightpath/plans"
	"lightpath/plans/circuit"
)

// Model is a problem compiled for planning: the steps that cost time, the distinct
// circuits they ask for and the planes that can switch independently.
type Model struct {
	P         *plans.Problem
	UsPerByte float64                 // at full rate, one plane
	DirectUS  float64                 // before the first byte of a transmit over direct circuits
	Steps     []Step                  // in order; a step without pattern is split into sub-steps of its index
	Asked     []Step                  // the steps as the problem asks for them; steps where none is split
	subs      []Step                  // of an unsplit model: the steps when they are split
	Pages     [][]circuit.Permutation // settings of a unit, each of which serves a pattern directly
	// Planes come in units that switch together: one plane, or an interleaved pair.
	UnitPlanes, Units int
	Initial           [][]circuit.Permutation // per unit, per plane of it; nil: free
	returns           bool                    // pages of interleaved planes have circuits back (returns.go)
	byMap             circuit.Index           // the first map of each page
	byFirst           map[int][]int           // rank -> the pages with a circuit from rank 0 to it
	Bound             Bound                   // holds for every plan of the problem; zero until package bound proves it
}

// Step is a step of the problem that carries bytes. In Model.Steps, a step whose flows one plane cannot
// hold at a time is split into sub-steps, which it can (split.go). The sub-steps of a step
// follow each other, but may be served in any order and at the same time.
type Step struct {
	Index   int // in the problem
	Bytes   float64
	Pattern circuit.Permutation // nil where a plane cannot hold the flows at a time
	Flows   [][2]int            // of a step without pattern; see FlowsOf
	Class   []int               // of a sub-step: its flows, indexes into the step's flows, by source
	Page    int                 // index into Model.Pages; -1 without pattern
}

// Compile returns the model of p. The error says why no planner of package planner can plan it.
func Compile(p *plans.Problem) (*Model, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	if p.Demand != nil {
		return nil, fmt.Errorf("%w: demand problems need the spectra planner", ErrInfeasible)
	}
	if err := finite(p); err != nil {
		return nil, err
	}
	m := &Model{
		P:          p,
		UsPerByte:  8e-3 / p.BandwidthGbps,
		DirectUS:   p.AlphaUS + p.HopUS,
		byFirst:    map[int][]int{},
		UnitPlanes: p.Circuits.UnitPlanes(),
		Units:      p.Planes / p.Circuits.UnitPlanes(),
	}
	if p.Initial != nil {
		for u := range m.Units {
			m.Initial = append(m.Initial, m.OfUnit(p.Initial, u))
		}
	}
	m.compileSteps()
	return m, nil
}

// finite refuses a problem if the time of its plans may overflow: infinite costs have no order. It adds up a transmit
// and a reconfiguration for each flow.
func finite(p *plans.Problem) error {
	ranks, total := float64(p.Ranks), 0.0
	each := p.AlphaUS + p.HopUS*ranks + p.ReconfigUS + p.ReconfigPerPort*ranks
	for i := range p.Steps {
		s := &p.Steps[i]
		flows := max(len(s.To), len(s.Flows))
		if flows == 0 {
			continue
		}
		if total += float64(flows) * (each + plans.WireUS(p, max(1, s.Bytes))); math.IsInf(total, 1) {
			return fmt.Errorf("%w: step %d: the plan may take longer than a number can say", ErrInfeasible, i)
		}
	}
	return nil
}

func (m *Model) compileSteps() {
	splits := false
	for i := range m.P.Steps {
		s := &m.P.Steps[i]
		st := Step{Index: i, Bytes: s.Bytes, Page: -1}
		var empty bool
		st.Pattern, empty = patternOf(m.P.Ranks, s)
		if empty || s.Bytes == 0 {
			continue
		}
		if st.Pattern == nil || !m.assignPage(&st) {
			st.Pattern, st.Flows, splits = nil, s.FlowList(), true
		}
		m.Asked = append(m.Asked, st)
	}
	m.Steps = m.Asked
	if splits {
		m.splitSteps()
	}
	m.addReturns()
}

// splitSteps fills steps; the patterns of whole steps are pages by now.
func (m *Model) splitSteps() {
	m.Steps = nil
	for i := range m.Asked {
		if m.Asked[i].Pattern != nil {
			m.Steps = append(m.Steps, m.Asked[i])
			continue
		}
		subs := m.split(&m.Asked[i])
		for j := range subs {
			m.assignPage(&subs[j])
		}
		m.Steps = append(m.Steps, m.orderSubs(subs)...)
	}
}

// orderSubs begins with the page that the step before ends with, and keeps sub-steps of
// one page (interleaved planes: a pattern and its inverse) together.
func (m *Model) orderSubs(subs []Step) []Step {
	first := map[int]int{} // page -> place
	for i := range subs {
		if _, ok := first[subs[i].Page]; !ok {
			first[subs[i].Page] = i
		}
	}
	if n := len(m.Steps); n > 0 {
		if _, ok := first[m.Steps[n-1].Page]; ok {
			first[m.Steps[n-1].Page] = -1
		}
	}
	slices.SortStableFunc(subs, func(a, b Step) int { return first[a.Page] - first[b.Page] })
	return subs
}

// assignPage finds or adds the page of a step with a pattern. It returns false if no plane can hold the pattern.
func (m *Model) assignPage(st *Step) bool {
	maps, ok := m.MapsFor(st.Pattern)
	if !ok {
		return false
	}
	id, fresh := m.byMap.Add(maps[0])
	if fresh {
		m.Pages = append(m.Pages, maps)
		for _, c := range maps {
			if c[0] != circuit.Dark {
				m.byFirst[c[0]] = append(m.byFirst[c[0]], id)
			}
		}
	}
	st.Page = id
	return true
}

// WithoutForwarding returns m for plans that do not forward.
func (m *Model) WithoutForwarding() *Model {
	if !m.P.Forwarding {
		return m
	}
	p, out := *m.P, *m
	p.Forwarding = false
	out.P, out.Bound = &p, Bound{}
	return &out
}

// pagesOf lists the pages that have a circuit from src to dst.
func (m *Model) pagesOf(src, dst int) []int {
	if src == 0 {
		return m.byFirst[dst]
	}
	var list []int
	for q := range m.Pages {
		if Holds(m.Pages[q], [2]int{src, dst}) {
			list = append(list, q)
		}
	}
	return list
}

// LastOfStep reports whether steps[i] is the last of its step: a barrier follows.
func (m *Model) LastOfStep(i int) bool {
	return i+1 == len(m.Steps) || m.Steps[i+1].Index != m.Steps[i].Index
}

// SubSteps yields, for each of Asked in turn, the range of its sub-steps in Steps.
func (m *Model) SubSteps() iter.Seq2[int, int] {
	return func(yield func(from, to int) bool) {
		from := 0
		for i := range m.Steps {
			if m.LastOfStep(i) {
				if !yield(from, i+1) {
					return
				}
				from = i + 1
			}
		}
	}
}

// Joined tells, for each of Steps, whether it continues the step of the problem that the one before it belongs to.
func (m *Model) Joined() []bool {
	joined := make([]bool, len(m.Steps))
	for i := range joined {
		joined[i] = i > 0 && !m.LastOfStep(i-1)
	}
	return joined
}

// Unsplit returns m with the steps of the problem.
func (m *Model) Unsplit() *Model {
	if len(m.Steps) == len(m.Asked) {
		return m
	}
	whole := *m
	whole.Steps, whole.subs = m.Asked, m.Steps
	return &whole
}

// Bound holds proven lower bounds of times, in us.
type Bound struct {
	Suffix []float64 // by step as asked: from the end of the step before on, whatever the planes' state then
	Total  float64   // from the start, with the given initial circuits
	Proof  string
}

// Suffix returns the bounds of the remaining time by step of m, and 0 after the last. Within a step, they do not count
// its remaining sub-steps.
func (m *Model) Suffix() []float64 {
	if len(m.Steps) == len(m.Asked) {
		return m.Bound.Suffix
	}
	suffix := make([]float64, 0, len(m.Steps)+1)
	whole := 0
	for from, to := range m.SubSteps() {
		suffix = append(suffix, m.Bound.Suffix[whole])
		whole++
		for range to - from - 1 {
			suffix = append(suffix, m.Bound.Suffix[whole])
		}
	}
	return append(suffix, 0)
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

// MapsFor returns the maps of a unit for pattern, or false if it cannot hold the pattern: a duplex plane holds only
// involutions. An interleaved pair holds a pattern and its inverse, so a pattern and its inverse share a page: the
// smaller comes first. With circuits back (returns.go), a pattern may be its own inverse.
func (m *Model) MapsFor(pattern circuit.Permutation) (maps []circuit.Permutation, ok bool) {
	switch m.P.Circuits {
	case plans.Duplex:
		c, ok := withReturns(pattern)
		return []circuit.Permutation{c}, ok
	case plans.Interleaved:
		if c, ok := withReturns(pattern); ok && m.returns {
			return []circuit.Permutation{c, c}, true
		}
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

// FlowsOf computes the flows of a step. They are not stored, since the flows of all steps of a large problem do not fit
// in memory.
func (m *Model) FlowsOf(st *Step) [][2]int {
	if st.Flows != nil {
		return st.Flows
	}
	if st.Class != nil {
		s := plans.Step{To: st.Pattern}
		return s.FlowList()
	}
	return m.P.Steps[st.Index].FlowList()
}

// FlowCount returns the number of flows of a step.
func (m *Model) FlowCount(st *Step) int {
	if st.Pattern == nil {
		return len(st.Flows)
	}
	return m.P.Ranks // or a few less
}

// OfUnit returns the maps of a unit, of the maps of all planes.
func (m *Model) OfUnit(maps []circuit.Permutation, unit int) []circuit.Permutation {
	return maps[unit*m.UnitPlanes : (unit+1)*m.UnitPlanes]
}

// SwitchUS returns how long a unit switches from one setting to another: as long as its slowest plane.
func (m *Model) SwitchUS(from, to []circuit.Permutation) float64 {
	us := 0.0
	for j, c := range to {
		us = math.Max(us, plans.ReconfigUS(m.P, from[j], c))
	}
	return us
}

// EveryUnit returns the maps of a fabric whose units are all set to maps.
func (m *Model) EveryUnit(maps []circuit.Permutation) []circuit.Permutation {
	all := make([]circuit.Permutation, 0, m.P.Planes)
	for u := 0; u < m.Units; u++ {
		all = append(all, maps...)
	}
	return all
}

// Servers counts the planes of a unit set to maps that hold every circuit of pattern.
func Servers(maps []circuit.Permutation, pattern circuit.Permutation) int {
	n := 0
	for _, c := range maps {
		if c.Covers(pattern) {
			n++
		}
	}
	return n
}

// MatchingsOf returns the patterns of the sub-steps of a step that is split.
func (m *Model) MatchingsOf(st *Step) []circuit.Permutation {
	var all []circuit.Permutation
	for _, steps := range [][]Step{m.Steps, m.subs} {
		for i := range steps {
			if steps[i].Index == st.Index && steps[i].Pattern != nil {
				all = append(all, steps[i].Pattern)
			}
		}
	}
	return all
}

// Kinds numbers steps with a pattern by what they ask for: the pattern and its bytes.
// The zero value is ready.
type Kinds struct {
	patterns circuit.Index
	ids      map[stepKind]int
}

type stepKind struct {
	pattern int
	bytes   float64
}

// Add returns the number of st's kind, and whether st is the first of it.
func (x *Kinds) Add(st *Step) (kind int, fresh bool) {
	id, _ := x.patterns.Add(st.Pattern)
	k := stepKind{id, st.Bytes}
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

// Tolerance is how far apart two times may be and still count as equal.
func Tolerance(us float64) float64 { return plans.Tolerance(us, us) }

// ErrInfeasible wraps the step and the reason for which a planner has no plan.
var ErrInfeasible = errors.New("infeasible")

// Infeasible builds an ErrInfeasible that names a step of the problem.
func Infeasible(step int, format string, args ...any) error {
	return fmt.Errorf("%w: step %d: %s", ErrInfeasible, step, fmt.Sprintf(format, args...))
}

// StartMaps returns the circuits a plan begins with: the given ones, else free ones.
func (m *Model) StartMaps(free []circuit.Permutation) []circuit.Permutation {
	if m.P.Initial != nil {
		return m.P.Initial
	}
	return free
}

// DarkMaps is the start of a plan that sends nothing on a free fabric.
func (m *Model) DarkMaps() []circuit.Permutation {
	maps := make([]circuit.Permutation, m.P.Planes)
	for j := range maps {
		maps[j] = circuit.AllDark(m.P.Ranks)
	}
	return maps
}
