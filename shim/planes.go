package shim

import (
	"iter"
	"math/bits"

	"lightpath/plans"
	"lightpath/plans/circuit"
)

// planeSet is a set of planes of the fabric: bit j is plane j. Plans know how many planes they
// have, sets say which ones those are: plane i of a plan is the i-th of the set.
type planeSet uint64

// allPlanes is the set of n planes.
func allPlanes(n int) planeSet { return planeSet(1)<<n - 1 } // 64: the shift gives 0

func (s planeSet) has(j int) bool { return s>>j&1 != 0 }

func (s planeSet) without(j int) planeSet { return s &^ (1 << j) }

func (s planeSet) len() int { return bits.OnesCount64(uint64(s)) }

// each yields the planes of s, ascending.
func (s planeSet) each() iter.Seq[int] {
	return func(yield func(int) bool) {
		for ; s != 0; s &= s - 1 {
			if !yield(bits.TrailingZeros64(uint64(s))) {
				return
			}
		}
	}
}

// usable returns the planes of s that plans can be made for: interleaved planes serve in
// pairs, 2i and 2i+1.
func (s planeSet) usable(kind plans.CircuitKind) planeSet {
	if kind != plans.Interleaved {
		return s
	}
	const even = 0x5555555555555555
	pairs := s & (s >> 1) & even
	return pairs | pairs<<1
}

// spread lays a plan for as many planes as s has over the n planes of the fabric. The others
// are dark and idle. The plan is not changed; the result shares what it can, and has no digest.
func (s planeSet) spread(p *plans.Plan, n int) *plans.Plan {
	if s == allPlanes(n) {
		return p
	}
	wide := *p
	wide.Digest = ""
	wide.Planes = make([][]plans.Entry, n)
	if p.Initial != nil { // plans of demand matrices have none
		wide.Initial = s.spreadMaps(p.Initial, n)
	}
	i := 0
	for j := range s.each() {
		wide.Planes[j] = p.Planes[i]
		i++
	}
	return &wide
}

// spreadMaps does the same to one map per plane of s.
func (s planeSet) spreadMaps(maps []circuit.Permutation, n int) []circuit.Permutation {
	wide := make([]circuit.Permutation, n)
	i := 0
	for j := range wide {
		if s.has(j) {
			wide[j] = maps[i]
			i++
			continue
		}
		wide[j] = circuit.AllDark(len(maps[0]))
	}
	return wide
}
