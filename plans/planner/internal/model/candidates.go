package model

import (
	"slices"

	"lightpath/plans"
	"lightpath/plans/circuit"
)

// MaxCandidates bounds the patterns that are measured on every step, and maxUnionPages those whose unions are formed.
const (
	MaxCandidates = 256
	maxUnionPages = 64
)

// Candidates returns settings of a unit for plans that keep circuits over several steps: the patterns of the steps,
// unions of patterns that fit on one plane and, if the fabric forwards, rings. The first limit patterns come first.
func (m *Model) Candidates(limit int) [][]circuit.Permutation {
	var set candidateSet
	for i := range m.Pages[:min(limit, len(m.Pages))] {
		set.add(m.Pages[i])
	}
	if len(m.Pages) <= maxUnionPages {
		for i := range m.Pages {
			set.add(m.unionFrom(i))
		}
	}
	if m.P.Forwarding && m.P.Circuits != plans.Duplex {
		for _, d := range m.RingShifts() {
			if maps, ok := m.MapsFor(circuit.Shift(m.P.Ranks, d)); ok {
				set.add(maps)
			}
		}
	}
	return set.all
}

// unionFrom merges into page i every later page that does not conflict with it.
func (m *Model) unionFrom(i int) []circuit.Permutation {
	maps := m.Pages[i]
	for d := 1; d < len(m.Pages); d++ {
		if u, ok := Union(maps, m.Pages[(i+d)%len(m.Pages)]); ok {
			maps = u
		}
	}
	return maps
}

// Union merges two settings of a unit, or returns false if a port would need two circuits.
func Union(a, b []circuit.Permutation) ([]circuit.Permutation, bool) {
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

// RingShifts returns the distances of the rings worth trying: every power of two and its
// opposite; on small fabrics, where measuring is cheap, every distance.
func (m *Model) RingShifts() []int {
	n := m.P.Ranks
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

// Holds reports whether a unit has a circuit for a flow.
func Holds(maps []circuit.Permutation, flow [2]int) bool {
	return slices.ContainsFunc(maps, func(c circuit.Permutation) bool { return c[flow[0]] == flow[1] })
}

// HoldsPage reports whether a unit's circuits include those of maps.
func HoldsPage(current, maps []circuit.Permutation) bool {
	if len(maps) == 1 {
		return current[0].Covers(maps[0])
	}
	return current[0].Covers(maps[0]) && current[1].Covers(maps[1]) ||
		current[0].Covers(maps[1]) && current[1].Covers(maps[0])
}

// SameMaps reports whether two settings are equal.
func SameMaps(a, b []circuit.Permutation) bool {
	return slices.EqualFunc(a, b, circuit.Permutation.Equal)
}
