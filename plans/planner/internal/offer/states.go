package offer

import (
	"context"
	"slices"

	"lightpath/plans/circuit"
	"lightpath/plans/planner/internal/model"
	"lightpath/plans/planner/topology"
)

// graphWork bounds the distances that are computed to measure steps on graphs of several planes. It limits the number
// of graphs.
const graphWork = 2e7

// compactGraphs is how many of the graphs are Kautz graphs, expanders and circulants; they
// come last.
const compactGraphs = 4

// States collects distinct settings of all planes, until Stop returns true or, unless Limit is 0, there are Limit of
// them.
type States struct {
	All   [][]circuit.Permutation
	Limit int
	Stop  func() bool // nil: never
	seen  map[uint64][]int
}

// Full reports whether the set accepts no more settings.
func (s *States) Full() bool {
	return len(s.All) > 0 && (s.Limit > 0 && len(s.All) >= s.Limit || s.Stop != nil && s.Stop())
}

// Add adds maps, one for each plane, unless the set has them.
func (s *States) Add(maps []circuit.Permutation) {
	if s.Full() {
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
		if model.SameMaps(s.All[i], maps) {
			return
		}
	}
	s.seen[d] = append(s.seen[d], len(s.All))
	s.All = append(s.All, maps)
}

// Graphs returns topologies that several planes can form, within graphWork; none when ctx has ended.
func Graphs(ctx context.Context, m *model.Model) [][]circuit.Permutation {
	k := m.P.Planes
	over := func() bool { return ctx.Err() != nil }
	if over() || !m.P.Forwarding || k < 2 || m.P.Ranks < 2 {
		return nil
	}
	n, flows := m.P.Ranks, 0
	for i := range m.Steps {
		flows += m.FlowCount(&m.Steps[i])
	}
	fit := graphWork / (n*n*k + flows*(k+1))
	if fit == 0 {
		return nil
	}
	all := topology.Candidates(n, k, m.P.Circuits, over)
	if fit < len(all) { // many tori are left out, between rings and what is most compact
		last := min(fit, compactGraphs)
		all = slices.Concat(all[:fit-last], all[len(all)-last:])
	}
	out := make([][]circuit.Permutation, 0, len(all))
	for _, g := range all {
		out = append(out, g.Filled(k).Maps)
	}
	return out
}
