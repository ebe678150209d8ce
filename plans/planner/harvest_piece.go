package planner

import (
	"cmp"
	"iter"
	"slices"

	"lightpath/plans/circuit"
)

// piece is a set of flows of one step that are served together. It leads from one position to a later one. A step
// begins at a position at which none of its flows has been served; the last piece of a step leads to the position at
// which the next step begins.
type piece struct {
	step     // pattern is nil where the flows are no partial permutation
	from, to int
	last     bool     // it ends its step
	flows    [][2]int // cached where they are needed
	kind     int      // pieces of a kind take the same time on the same circuits
}

// flowsAt converts indexes of the piece's flows to indexes of its step's flows.
func (pc *piece) flowsAt(at []int) []int {
	if pc.class == nil {
		return at
	}
	class := make([]int, len(at))
	for i, f := range at {
		class[i] = pc.class[f]
	}
	return class
}

// pieces lists the pieces of the steps of the problem, sorted by their beginning. It lists each step as a whole. For a
// split step it adds the rounds of perstep and single matchings. It also adds the parts of step i that some of the
// settings near[i] serve in turn. It returns the number of positions. near may be nil.
func (m *model) pieces(near [][][]circuit.Permutation) (all []piece, positions int) {
	at := 0 // of m.steps
	for i := range m.asked {
		b := partition{m: m, whole: &m.asked[i], base: positions, sub: at}
		for at++; !m.lastOfStep(at - 1); {
			at++
		}
		b.subs = at - b.sub
		divided := near != nil && len(near[i]) > 0
		if divided || b.subs > 1 {
			b.flows = m.flowsOf(b.whole)
		}
		if divided {
			b.left = leftovers(b.flows, near[i])
		}
		positions += b.subs + len(b.left)
		b.parts = []piece{{step: *b.whole, from: b.base, to: positions, last: true}}
		if b.subs > 1 {
			b.rounds()
		}
		b.leftovers()
		slices.SortStableFunc(b.parts, func(a, b piece) int { return cmp.Or(a.from-b.from, b.to-a.to) })
		all = append(all, b.parts...)
	}
	return all, positions
}

// partition lists the ways to serve one step piece by piece. Its positions from base on are the step's beginning, those
// between its sub-steps, and one for each of the leftovers.
type partition struct {
	m         *model
	whole     *step
	base      int
	sub, subs int // the sub-steps are m.steps[sub:sub+subs]
	flows     [][2]int
	left      [][]int
	parts     []piece
}

func (b *partition) end() int { return b.base + b.subs + len(b.left) }

// add adds a piece of the given flows, which are indexes into the step's.
func (b *partition) add(class []int, from, to int) {
	st := b.m.part(b.whole, b.flows, class)
	b.parts = append(b.parts, piece{step: st, from: from, to: to, last: to == b.end()})
}

// rounds adds the matchings of a split step, one after another, and the rounds of perstep.
func (b *partition) rounds() {
	at := func(s int) int {
		if s == b.sub+b.subs {
			return b.end()
		}
		return b.base + s - b.sub
	}
	steps := b.m.steps
	for s := b.sub; s < b.sub+b.subs; s++ {
		b.parts = append(b.parts, piece{step: steps[s], from: at(s), to: at(s + 1), last: s+1 == b.sub+b.subs})
	}
	for _, r := range b.m.roundsOf(b.sub, b.sub+b.subs) {
		if r.to-r.from == 1 || r.to-r.from == b.subs {
			continue
		}
		var class []int
		for s := r.from; s < r.to; s++ {
			class = append(class, steps[s].class...)
		}
		b.add(class, at(r.from), at(r.to))
	}
}

// leftovers adds the pieces that lead from one leftover of the step to a smaller one.
func (b *partition) leftovers() {
	all := make([]int, len(b.flows))
	for i := range all {
		all[i] = i
	}
	sets := append([][]int{all}, b.left...)
	at := func(i int) int {
		if i == 0 {
			return b.base
		}
		return b.base + b.subs + i - 1
	}
	for i, set := range sets {
		if i > 0 {
			b.add(set, at(i), b.end())
		}
		for k, less := range sets[i+1:] {
			served := subtract(set, slices.Values(less), len(b.flows))
			if len(served)+len(less) == len(set) {
				b.add(served, at(i), at(i+1+k))
			}
		}
	}
}

// subtract returns the elements of set that less does not yield, in the order of set. Elements are in 0..n-1. It reads
// less once, because a step may have millions of flows.
func subtract(set []int, less iter.Seq[int], n int) []int {
	drop := make([]bool, n)
	for f := range less {
		drop[f] = true
	}
	return slices.DeleteFunc(slices.Clone(set), func(f int) bool { return drop[f] })
}
