package model

import (
	"testing"

	"lightpath/plans/circuit"
)

func TestUnion(t *testing.T) {
	a := circuit.Permutation{1, -1, -1, -1}
	for _, tc := range []struct {
		b    circuit.Permutation
		want circuit.Permutation
	}{
		{circuit.Permutation{-1, 0, 3, -1}, circuit.Permutation{1, 0, 3, -1}},
		{circuit.Permutation{1, 2, -1, -1}, circuit.Permutation{1, 2, -1, -1}},
		{circuit.Permutation{2, -1, -1, -1}, nil}, // port 0 sends twice
		{circuit.Permutation{-1, -1, 1, -1}, nil}, // port 1 receives twice
	} {
		got, ok := Union([]circuit.Permutation{a}, []circuit.Permutation{tc.b})
		if ok != (tc.want != nil) || ok && !got[0].Equal(tc.want) {
			t.Errorf("union(%v, %v) = %v, %v", a, tc.b, got, ok)
		}
	}
}
