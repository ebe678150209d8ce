package decompose

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"lightpath/internal/require"
	"lightpath/plans/lumos/matrix"
)

// randomSymmetric has entries up to most, each with the given chance, and an even diagonal.
func randomSymmetric(rng *rand.Rand, n, most int, chance float64) *matrix.Matrix {
	m := matrix.New(n)
	for i := range n {
		for j := range i + 1 {
			if rng.Float64() >= chance {
				continue
			}
			c := 1 + rng.IntN(most)
			if i == j {
				m.Add(i, i, c+c%2)
				continue
			}
			m.Add(i, j, c)
			m.Add(j, i, c)
		}
	}
	return m
}

func randomGroups(rng *rand.Rand, n int) []int {
	g := make([]int, n)
	for i := range g {
		g[i] = rng.IntN(1 + n/3)
	}
	return g
}

// balanced reports whether part is the parts-th part of whole, rounded up or down.
func balanced(part, whole, parts int) bool {
	return part >= whole/parts && part <= (whole+parts-1)/parts
}

// checkSums holds rows, columns and groups of part against those of whole.
func checkSums(part, whole *matrix.Matrix, parts int, group []int) error {
	n := whole.Size()
	groups := n + 1
	var rows, cols, rowGroups, colGroups [2][]int
	for k, d := range []*matrix.Matrix{part, whole} {
		rows[k], cols[k] = make([]int, n), make([]int, n)
		rowGroups[k], colGroups[k] = make([]int, groups), make([]int, groups)
		for i := range n {
			for j := range n {
				rows[k][i] += d.At(i, j)
				cols[k][j] += d.At(i, j)
				if group != nil {
					rowGroups[k][group[i]] += d.At(i, j)
					colGroups[k][group[j]] += d.At(i, j)
				}
			}
		}
	}
	for name, sums := range map[string][2][]int{"row": rows, "column": cols, "group of rows": rowGroups,
		"group of columns": colGroups} {
		for i := range sums[0] {
			if !balanced(sums[0][i], sums[1][i], parts) {
				return fmt.Errorf("%s %d: %d of %d in %d parts", name, i, sums[0][i], sums[1][i], parts)
			}
		}
	}
	return nil
}

func checkHalf(a, c *matrix.Matrix, group []int) error {
	if err := a.NonNegative(); err != nil {
		return err
	}
	for i := range a.Size() {
		for j := range a.Size() {
			if a.At(i, j)+a.At(j, i) != c.At(i, j) {
				return fmt.Errorf("[%d][%d]: %d + %d is not %d", i, j, a.At(i, j), a.At(j, i), c.At(i, j))
			}
		}
	}
	return checkSums(a, c, 2, group)
}

func checkSplit(all []*matrix.Matrix, a *matrix.Matrix, parts int, group []int) error {
	if len(all) != parts {
		return fmt.Errorf("%d parts, want %d", len(all), parts)
	}
	sum := matrix.New(a.Size())
	for p, part := range all {
		if err := checkSums(part, a, parts, group); err != nil {
			return fmt.Errorf("part %d: %w", p, err)
		}
		for i := range part.Size() {
			for j := range part.Size() {
				c := part.At(i, j)
				sum.Add(i, j, c)
				if !balanced(c, a.At(i, j), parts) {
					return fmt.Errorf("part %d [%d][%d]: %d of %d", p, i, j, c, a.At(i, j))
				}
			}
		}
	}
	if !sum.Equal(a) {
		return errors.New("the parts are not the whole")
	}
	return nil
}

func TestHalve(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for round := range 400 {
		n := 1 + rng.IntN(12)
		c := randomSymmetric(rng, n, 1+rng.IntN(5), rng.Float64())
		group := randomGroups(rng, n)
		if round%2 == 0 {
			group = nil
		}
		a, err := Halve(c, group)
		require.NoError(t, err)
		if err := checkHalf(a, c, group); err != nil {
			t.Fatalf("round %d: %v\n%v\nof %v", round, err, a, c)
		}

	}
}

func TestSplit(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 1))
	for round := range 400 {
		n, parts := 1+rng.IntN(9), 1+rng.IntN(9)
		a := matrix.New(n)
		for range rng.IntN(8 * n) {
			a.Add(rng.IntN(n), rng.IntN(n), 1+rng.IntN(4))
		}
		group := randomGroups(rng, n)
		if round%2 == 0 {
			group = nil
		}
		all, err := Split(a, parts, group)
		require.NoError(t, err)
		if err := checkSplit(all, a, parts, group); err != nil {
			t.Fatalf("round %d, %d parts, groups %v: %v\nof %v", round, parts, group, err, a)
		}

	}
}

func TestRefused(t *testing.T) {
	for want, dense := range map[string][][]int{
		"not symmetric":                {{0, 1}, {2, 0}},
		"[1][0]: -1 is negative":       {{0, 1}, {-1, 0}},
		"[1][1]: 3 on the diagonal is": {{0, 1}, {1, 3}},
	} {
		m, err := matrix.FromDense(dense)
		require.NoError(t, err)
		if _, err := Halve(m, nil); !errors.Is(err, ErrMatrix) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", dense, err, want)
		}
	}
	if _, err := Split(matrix.New(2), 0, nil); !errors.Is(err, ErrMatrix) {
		t.Errorf("0 parts: %v", err)
	}
}
