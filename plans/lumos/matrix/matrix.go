package matrix

import (
	"fmt"
	"slices"
	"sort"
)

// Cell is one entry of a row that is not 0.
type Cell struct {
	Col   int
	Count int
}

// Matrix is an n x n matrix of integers, of which few are not 0. A row is kept in order of
// columns, so reading is deterministic. It may be read by several goroutines at once, and
// changed by one alone.
type Matrix struct {
	rows [][]Cell
}

// New returns the n x n matrix of zeros.
func New(n int) *Matrix { return &Matrix{rows: make([][]Cell, n)} }

// FromDense returns the matrix of equal rows; every row must have as many entries as there
// are rows.
func FromDense(dense [][]int) (*Matrix, error) {
	m := New(len(dense))
	for i, row := range dense {
		if len(row) != len(dense) {
			return nil, fmt.Errorf("row %d has %d entries, want %d", i, len(row), len(dense))
		}
		for j, c := range row {
			if c != 0 {
				m.rows[i] = append(m.rows[i], Cell{j, c})
			}
		}
	}
	return m, nil
}

// Size returns the number of rows.
func (m *Matrix) Size() int { return len(m.rows) }

// Row returns the entries of row i that are not 0, by column. The slice is the matrix's own:
// it must not be changed, and is stale after the next Add.
func (m *Matrix) Row(i int) []Cell { return m.rows[i] }

// At returns entry (i, j).
func (m *Matrix) At(i, j int) int {
	if k, ok := m.find(i, j); ok {
		return m.rows[i][k].Count
	}
	return 0
}

// Add adds count, which may be negative, to entry (i, j).
func (m *Matrix) Add(i, j, count int) {
	if count == 0 {
		return
	}
	k, ok := m.find(i, j)
	if !ok {
		m.rows[i] = slices.Insert(m.rows[i], k, Cell{j, count})
		return
	}
	if m.rows[i][k].Count += count; m.rows[i][k].Count == 0 {
		m.rows[i] = slices.Delete(m.rows[i], k, k+1)
	}
}

// find returns where in row i column j is, or belongs.
func (m *Matrix) find(i, j int) (int, bool) {
	row := m.rows[i]
	k := sort.Search(len(row), func(k int) bool { return row[k].Col >= j })
	return k, k < len(row) && row[k].Col == j
}

// RowSum returns the sum of row i.
func (m *Matrix) RowSum(i int) int {
	sum := 0
	for _, c := range m.rows[i] {
		sum += c.Count
	}
	return sum
}

// Total returns the sum of all entries.
func (m *Matrix) Total() int {
	sum := 0
	for i := range m.rows {
		sum += m.RowSum(i)
	}
	return sum
}

// Clone returns a copy that shares nothing with m.
func (m *Matrix) Clone() *Matrix {
	c := New(len(m.rows))
	for i, row := range m.rows {
		c.rows[i] = slices.Clone(row)
	}
	return c
}

// Equal reports whether m and o have the same entries.
func (m *Matrix) Equal(o *Matrix) bool {
	return slices.EqualFunc(m.rows, o.rows, slices.Equal[[]Cell])
}

// NonNegative reports the first entry below 0.
func (m *Matrix) NonNegative() error {
	for i, row := range m.rows {
		for _, c := range row {
			if c.Count < 0 {
				return fmt.Errorf("[%d][%d]: %d is negative", i, c.Col, c.Count)
			}
		}
	}
	return nil
}

// Symmetric reports the first entry that differs from the one across the diagonal.
func (m *Matrix) Symmetric() error {
	for i, row := range m.rows {
		for _, c := range row {
			if t := m.At(c.Col, i); t != c.Count {
				return fmt.Errorf("[%d][%d] is %d but [%d][%d] is %d: not symmetric", i, c.Col, c.Count, c.Col, i, t)
			}
		}
	}
	return nil
}
