package offer

import (
	"cmp"
	"iter"
	"slices"

	"lightpath/plans/circuit"
	"lightpath/plans/planner/internal/model"
)

// Piece is a set of flows of one step that are served together. It leads from one position to a later one. A step
// begins at a position at which none of its flows has been served; the last piece of a step leads to the position at
// which the next step begins.
type Piece struct {
	model.Step // pattern is nil where the flows are no partial permutation
	From, To   int
	Last       bool     // it ends its step
	cached     [][2]int // flows, where they are needed
	Kind       int      // pieces of a kind take the same time on the same circuits
}

// flowsAt converts indexes of the piece's flows to indexes of its step's flows.
func (pc *Piece) flowsAt(at []int) []int {
	if pc.Class == nil {
		return at
	}
	class := make([]int, len(at))
	for i, f := range at {
		class[i] = pc.Class[f]
	}
	return class
}

// Pieces lists the pieces of the steps of the problem, sorted by their beginning. It lists each step as a whole. For a
// split step it adds the rounds of perstep and single matchings. It also adds the parts of step i that some of the
// settings near[i] serve in turn. It returns the number of positions. near may be nil.
func Pieces(m *model.Model, near [][][]circuit.Permutation) (all []Piece, positions int) {
	i := 0 // of m.Asked
	for from, to := range m.SubSteps() {
		b := partition{m: m, whole: &m.Asked[i], base: positions, sub: from, subs: to - from}
		divided := near != nil && len(near[i]) > 0
		if divided || b.subs > 1 {
			b.flows = m.FlowsOf(b.whole)
		}
		if divided {
			b.left = leftovers(b.flows, near[i])
		}
		positions += b.subs + len(b.left)
		b.parts = []Piece{{Step: *b.whole, From: b.base, To: positions, Last: true}}
		if b.subs > 1 {
			b.rounds()
		}
		b.leftovers()
		slices.SortStableFunc(b.parts, func(a, b Piece) int { return cmp.Or(a.From-b.From, b.To-a.To) })
		all = append(all, b.parts...)
		i++
	}
	return all, positions
}

// partition lists the ways to serve one step piece by piece. Its positions from base on are the step's beginning, those
// between its sub-steps, and one for each of the leftovers.
type partition struct {
	m         *model.Model
	whole     *model.Step
	base      int
	sub, subs int // the sub-steps are m.steps[sub:sub+subs]
	flows     [][2]int
	left      [][]int
	parts     []Piece
}

func (b *partition) end() int { return b.base + b.subs + len(b.left) }

// add adds a piece of the given flows, which are indexes into the step's.
func (b *partition) add(class []int, from, to int) {
	st := b.m.Part(b.whole, b.flows, class)
	b.parts = append(b.parts, Piece{Step: st, From: from, To: to, Last: to == b.end()})
}

// rounds adds the matchings of a split step, one after another, and the rounds of perstep.
func (b *partition) rounds() {
	at := func(s int) int {
		if s == b.sub+b.subs {
			return b.end()
		}
		return b.base + s - b.sub
	}
	steps := b.m.Steps
	for s := b.sub; s < b.sub+b.subs; s++ {
		b.parts = append(b.parts, Piece{Step: steps[s], From: at(s), To: at(s + 1), Last: s+1 == b.sub+b.subs})
	}
	for _, r := range b.m.RoundsOf(b.sub, b.sub+b.subs) {
		if r.To-r.From == 1 || r.To-r.From == b.subs {
			continue
		}
		var class []int
		for s := r.From; s < r.To; s++ {
			class = append(class, steps[s].Class...)
		}
		b.add(class, at(r.From), at(r.To))
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

// mostLeftovers is the most leftovers of a step.
const mostLeftovers = 12

// leftovers lists the flows of a step that settings do not serve, as indexes: of each setting alone, then of
// two in turn. near are the settings.
func leftovers(flows [][2]int, near [][]circuit.Permutation) [][]int {
	var sets [][]int
	all := make([]int, len(flows))
	for i := range all {
		all[i] = i
	}
	for from, begin := [][]int{all}, 0; begin < 2; begin++ {
		for _, set := range from {
			for _, maps := range near {
				if len(sets) == mostLeftovers {
					break // to look at millions of flows once more would change nothing
				}
				left := slices.DeleteFunc(slices.Clone(set), func(f int) bool { return model.Holds(maps, flows[f]) })
				known := func(other []int) bool { return slices.Equal(left, other) }
				if n := len(left); n > 0 && n < len(set) && !slices.ContainsFunc(sets, known) {
					sets = append(sets, left)
				}
			}
		}
		from = slices.Clone(sets)
	}
	slices.SortStableFunc(sets, func(a, b []int) int { return len(b) - len(a) })
	return sets
}
