// Package planeset has sets of the planes of a fabric, and plans laid over some of its planes.
//
// Layer: a leaf of shim. It imports plans only and knows no communicator.
package planeset

import (
	"iter"
	"math/bits"

	"lightpath/plans"
	"lightpath/plans/circuit"
)

// Set is a set of planes of a fabric: bit j is plane j. A plan knows only how many planes it has; the set says which:
// plane i of the plan is the i-th plane of the set.
type Set uint64

// All returns the set of the first n planes.
func All(n int) Set { return Set(1)<<n - 1 } // 64: the shift gives 0

// Has reports whether plane j is in s.
func (s Set) Has(j int) bool { return s>>j&1 != 0 }

// Without returns s except plane j.
func (s Set) Without(j int) Set { return s &^ (1 << j) }

// Len returns the number of planes in s.
func (s Set) Len() int { return bits.OnesCount64(uint64(s)) }

// Each yields the planes of s, ascending.
func (s Set) Each() iter.Seq[int] {
	return func(yield func(int) bool) {
		for ; s != 0; s &= s - 1 {
			if !yield(bits.TrailingZeros64(uint64(s))) {
				return
			}
		}
	}
}

// Usable returns the planes of s that a plan can use. Interleaved planes serve in pairs, 2i and 2i+1.
func (s Set) Usable(kind plans.CircuitKind) Set {
	if kind != plans.Interleaved {
		return s
	}
	const even = 0x5555555555555555
	pairs := s & (s >> 1) & even
	return pairs | pairs<<1
}

// Spread lays a plan for s.Len() planes over the n planes of the fabric. Planes outside s are dark and idle. The result
// shares memory with p, which does not change, and has no digest.
func (s Set) Spread(p *plans.Plan, n int) *plans.Plan {
	if s == All(n) {
		return p
	}
	wide := *p
	wide.Digest = ""
	wide.Planes = make([][]plans.Entry, n)
	if p.Initial != nil { // plans of demand matrices have none
		wide.Initial = s.SpreadMaps(p.Initial, n)
	}
	i := 0
	for j := range s.Each() {
		wide.Planes[j] = p.Planes[i]
		i++
	}
	return &wide
}

// SpreadMaps lays one map per plane of s over n planes. Planes outside s get dark maps.
func (s Set) SpreadMaps(maps []circuit.Permutation, n int) []circuit.Permutation {
	wide := make([]circuit.Permutation, n)
	i := 0
	for j := range wide {
		if s.Has(j) {
			wide[j] = maps[i]
			i++
			continue
		}
		wide[j] = circuit.AllDark(len(maps[0]))
	}
	return wide
}
