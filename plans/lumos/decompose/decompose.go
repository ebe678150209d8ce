package decompose

import (
	"errors"
	"fmt"

	"lightpath/plans/lumos/matrix"
)

// ErrMatrix is wrapped by every error about a matrix that cannot be divided.
var ErrMatrix = errors.New("bad matrix")

// Halve returns A with C = A + A^T for a symmetric C with an even diagonal and no negative entries. Every row
// and column of A is half of C's, rounded up or down. So are the sums over every group of rows and of
// columns. group[i], from 0, is the group of row i; nil is no groups. (LumosCore, Theorem 2.1. The theorem
// omits that no integer A has an odd diagonal entry in A + A^T.)
//
// Method: half of every entry goes each way. The odd entries form a graph, oriented along closed walks.
// Vertices of odd degree are joined by a vertex of their group, and groups by one vertex for all. The time is
// linear in the entries of C.
func Halve(c *matrix.Matrix, group []int) (*matrix.Matrix, error) {
	if err := halvable(c); err != nil {
		return nil, err
	}
	w := newWalk(c.Size(), group)
	a := matrix.New(c.Size())
	for i := range c.Size() {
		for _, cell := range c.Row(i) {
			a.Add(i, cell.Col, cell.Count/2)
			if cell.Count%2 == 1 && i < cell.Col {
				w.join(i, cell.Col)
			}
		}
	}
	w.even(group)
	w.orient(func(from, to int) {
		if max(from, to) < c.Size() {
			a.Add(from, to, 1)
		}
	})
	return a, nil
}

func halvable(c *matrix.Matrix) error {
	if err := c.NonNegative(); err != nil {
		return fmt.Errorf("%w: %w", ErrMatrix, err)
	}
	if err := c.Symmetric(); err != nil {
		return fmt.Errorf("%w: %w", ErrMatrix, err)
	}
	for i := range c.Size() {
		if d := c.At(i, i); d%2 != 0 {
			return fmt.Errorf("%w: [%d][%d]: %d on the diagonal is odd", ErrMatrix, i, i, d)
		}
	}
	return nil
}

// walk orients a graph whose degrees are all even.
type walk struct {
	rows  int
	ends  [][2]int32
	edges [][]int32 // by vertex: rows, groups, one for all
}

func newWalk(rows int, group []int) *walk {
	groups := 0
	for _, g := range group {
		groups = max(groups, g+1)
	}
	return &walk{rows: rows, edges: make([][]int32, rows+groups+1)}
}

func (w *walk) join(u, v int) {
	e := int32(len(w.ends))
	w.ends = append(w.ends, [2]int32{int32(u), int32(v)})
	w.edges[u] = append(w.edges[u], e)
	w.edges[v] = append(w.edges[v], e)
}

// even gives every vertex of odd degree an edge to its group's, and those one to the last.
func (w *walk) even(group []int) {
	last := len(w.edges) - 1
	for v := range last {
		if len(w.edges[v])%2 == 0 {
			continue
		}
		if v < w.rows && group != nil {
			w.join(v, w.rows+group[v])
		} else {
			w.join(v, last)
		}
	}
}

// orient calls arc for every edge, in the direction in which a closed walk goes over it.
func (w *walk) orient(arc func(from, to int)) {
	used := make([]bool, len(w.ends))
	for start := range w.edges {
		for at := start; ; {
			edges := w.edges[at]
			for len(edges) > 0 && used[edges[len(edges)-1]] {
				edges = edges[:len(edges)-1]
			}
			if len(edges) == 0 { // only ever where the walk began
				w.edges[at] = edges
				break
			}
			e := edges[len(edges)-1]
			w.edges[at] = edges[:len(edges)-1]
			used[e] = true
			to := int(w.ends[e][0]) + int(w.ends[e][1]) - at
			arc(at, to)
			at = to
		}
	}
}
