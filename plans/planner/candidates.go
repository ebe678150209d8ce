package planner

import (
	"fmt"

	"lightpath/plans"
	"lightpath/plans/circuit"
)

// maxCandidates is the most patterns that are measured on every step, and maxUnionPages
// the most whose unions are worth forming.
const (
	maxCandidates = 256
	maxUnionPages = 64
)

// candidates returns the settings of a unit that are worth considering for a plan that
// keeps circuits over several steps: the patterns of the steps, unions of patterns that
// fit on one plane and, where the fabric forwards, rings. The first limit patterns come
// first.
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
			maps, err := m.mapsFor(circuit.Shift(m.p.Ranks, d))
			if err == nil {
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

// union merges two settings of a unit, and reports false where a port would need two circuits.
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

// candidateSet collects distinct settings.
type candidateSet struct {
	all  [][]circuit.Permutation
	seen map[uint64][]int
}

func (s *candidateSet) add(maps []circuit.Permutation) {
	if s.seen == nil {
		s.seen = map[uint64][]int{}
	}
	d := maps[0].Digest()
	for _, i := range s.seen[d] {
		if s.all[i][0].Equal(maps[0]) {
			return
		}
	}
	s.seen[d] = append(s.seen[d], len(s.all))
	s.all = append(s.all, maps)
}

// finalDiffers is why a planner that never reconfigures cannot end elsewhere.
func finalDiffers(plane int) error {
	return fmt.Errorf("%w: plane %d must end on other circuits than it begins with, and static never reconfigures", ErrInfeasible, plane)
}
