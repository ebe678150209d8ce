package planner

import (
	"context"
	"fmt"
	"slices"

	"lightpath/plans"
	"lightpath/plans/circuit"
	"lightpath/plans/planner/topology"
)

// maxCandidates bounds the patterns that are measured on every step, and maxUnionPages those whose unions are formed.
const (
	maxCandidates = 256
	maxUnionPages = 64
)

// graphWork bounds the distances that are computed to measure steps on graphs of several planes. It limits the number
// of graphs.
const graphWork = 2e7

// compactGraphs is how many of the graphs are Kautz graphs, expanders and circulants; they
// come last.
const compactGraphs = 4

// candidates returns settings of a unit for plans that keep circuits over several steps: the patterns of the steps,
// unions of patterns that fit on one plane and, if the fabric forwards, rings. The first limit patterns come first.
func (m *model) candidates(limit int) [][]circuit.Permutation {
	var set candidateSet
	for i := range m.pages[:min(limit, len(m.pages))] {
		set.add(m.pages[i].maps)
	}
	if len(m.pages) <= maxUnionPages {
		for i := range m.pages {
			set.add(m.unionFrom(i))
		}
	}
	if m.p.Forwarding && m.p.Circuits != plans.Duplex {
		for _, d := range m.ringShifts() {
			if maps, ok := m.mapsFor(circuit.Shift(m.p.Ranks, d)); ok {
				set.add(maps)
			}
		}
	}
	return set.all
}

// unionFrom merges into page i every later page that does not conflict with it.
func (m *model) unionFrom(i int) []circuit.Permutation {
	maps := m.pages[i].maps
	for d := 1; d < len(m.pages); d++ {
		if u, ok := union(maps, m.pages[(i+d)%len(m.pages)].maps); ok {
			maps = u
		}
	}
	return maps
}

// union merges two settings of a unit, or returns false if a port would need two circuits.
func union(a, b []circuit.Permutation) ([]circuit.Permutation, bool) {
	out := make([]circuit.Permutation, len(a))
	for j := range a {
		c := a[j].Clone()
		from := c.Inverse()
		for r, s := range b[j] {
			if s == circuit.Dark || c[r] == s {
				continue
			}
			if c[r] != circuit.Dark || from[s] != circuit.Dark {
				return nil, false
			}
			c[r], from[s] = s, r
		}
		out[j] = c
	}
	return out, true
}

// ringShifts returns the distances of the rings worth trying: every power of two and its
// opposite; on small fabrics, where measuring is cheap, every distance.
func (m *model) ringShifts() []int {
	n := m.p.Ranks
	var ds []int
	if n <= 32 {
		for d := 1; d < n; d++ {
			ds = append(ds, d)
		}
		return ds
	}
	for d := 1; d < n; d *= 2 {
		ds = append(ds, d)
		if n-d != d {
			ds = append(ds, n-d)
		}
	}
	return ds
}

// candidateSet collects settings of a unit with distinct first maps.
type candidateSet struct {
	all   [][]circuit.Permutation
	first circuit.Index
}

func (s *candidateSet) add(maps []circuit.Permutation) {
	if _, fresh := s.first.Add(maps[0]); fresh {
		s.all = append(s.all, maps)
	}
}

// stateSet collects distinct settings of all planes, until stop returns true or, unless limit is 0, there are limit of
// them.
type stateSet struct {
	all   [][]circuit.Permutation
	seen  map[uint64][]int
	limit int
	stop  func() bool
}

// full reports whether the set accepts no more settings.
func (s *stateSet) full() bool {
	return len(s.all) > 0 && (s.limit > 0 && len(s.all) >= s.limit || s.stop != nil && s.stop())
}

// add adds maps, one for each plane, unless the set has them.
func (s *stateSet) add(maps []circuit.Permutation) {
	if s.full() {
		return
	}
	if s.seen == nil {
		s.seen = map[uint64][]int{}
	}
	d, one := uint64(1), uint64(0)
	for j, c := range maps {
		if j == 0 || &c[0] != &maps[j-1][0] {
			one = c.Digest()
		}
		d = d*0x9e3779b97f4a7c15 ^ one
	}
	for _, i := range s.seen[d] {
		if sameMaps(s.all[i], maps) {
			return
		}
	}
	s.seen[d] = append(s.seen[d], len(s.all))
	s.all = append(s.all, maps)
}

// harvestStates returns at most limit settings of all planes for harvest: the given initial circuits first, then the
// most promising.
func (m *model) harvestStates(ctx context.Context, fills [][][]circuit.Permutation, limit int) [][]circuit.Permutation {
	set := stateSet{limit: limit, stop: func() bool { return ctx.Err() != nil }}
	if m.p.Initial != nil {
		set.add(m.p.Initial)
	}
	if maps, err := m.fixedMaps(); maps == nil && err == nil {
		set.add(m.unsplit().chooseStatic(ctx))
	}
	for _, maps := range m.candidates(maxCandidates)[min(maxCandidates, len(m.pages)):] {
		set.add(m.everyUnit(maps))
	}
	for _, maps := range m.graphs() {
		set.add(maps)
	}
	for _, list := range fills {
		for _, maps := range list {
			set.add(m.everyUnit(maps))
		}
	}
	for _, q := range m.pages {
		set.add(m.everyUnit(q.maps))
	}
	m.addRounds(&set)
	m.addWindows(&set)
	return set.all
}

// addRounds adds the settings of perstep for steps that are split.
func (m *model) addRounds(set *stateSet) {
	if len(m.asked) == len(m.steps) {
		return
	}
	for _, r := range m.rounds() {
		if len(r.pages) > 1 {
			set.add(m.setting(r))
		}
	}
}

// addWindows adds settings on which the units hold the patterns of consecutive steps, up
// to as many as there are units.
func (m *model) addWindows(set *stateSet) {
	var seq []int // pages in the order of the steps, without repetitions in a row
	for i := range m.steps {
		if q := m.steps[i].page; q >= 0 && (len(seq) == 0 || seq[len(seq)-1] != q) {
			seq = append(seq, q)
		}
	}
	for power := 2; power < 2*m.units; power *= 2 {
		width := min(power, m.units)
		for at := 0; at+width <= len(seq) && at < maxCandidates && !set.full(); at++ {
			set.add(m.setting(round{pages: seq[at : at+width]}))
		}
	}
}

// graphs returns topologies that several planes can form, within graphWork.
func (m *model) graphs() [][]circuit.Permutation {
	k := m.p.Planes
	if !m.p.Forwarding || k < 2 || m.p.Ranks < 2 {
		return nil
	}
	n, flows := m.p.Ranks, 0
	for i := range m.steps {
		flows += m.flowCount(&m.steps[i])
	}
	fit := graphWork / (n*n*k + flows*(k+1))
	if fit == 0 {
		return nil
	}
	all := topology.Candidates(n, k, m.p.Circuits)
	if fit < len(all) { // many tori are left out, between rings and what is most compact
		last := min(fit, compactGraphs)
		all = slices.Concat(all[:fit-last], all[len(all)-last:])
	}
	out := make([][]circuit.Permutation, 0, len(all))
	for _, g := range all {
		maps := g.Filled(k).Maps
		if len(maps) == k && m.legalAll(maps) {
			out = append(out, maps)
		}
	}
	return out
}

// legalAll reports whether the units can hold maps, one for each plane.
func (m *model) legalAll(maps []circuit.Permutation) bool {
	for u := 0; u < m.units; u++ {
		if m.legal(maps[u*m.unitPlanes:(u+1)*m.unitPlanes]) != nil {
			return false
		}
	}
	return true
}

// finalDiffers returns the error of static if a plane must end on other circuits than it begins with.
func finalDiffers(plane int) error {
	return fmt.Errorf("%w: plane %d must end on other circuits than it begins with, and static never reconfigures",
		ErrInfeasible, plane)
}
