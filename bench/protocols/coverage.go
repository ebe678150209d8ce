package protocols

import (
	"cmp"
	"maps"
	"slices"
)

// Cell is one cell of the table of coverage: a fault, and the state in which it happened.
type Cell struct{ Fault, State string }

// Coverage counts the injected faults of runs.
type Coverage map[Cell]int

// Add adds the counts of another run.
func (c Coverage) Add(other Coverage) {
	for cell, n := range other {
		c[cell] += n
	}
}

// Cells returns the cells, sorted by fault and state.
func (c Coverage) Cells() []Cell {
	return slices.SortedFunc(maps.Keys(c), func(a, b Cell) int {
		return cmp.Or(cmp.Compare(a.Fault, b.Fault), cmp.Compare(a.State, b.State))
	})
}
