package planeset

import (
	"fmt"
	"slices"
	"testing"

	"lightpath/plans"
	"lightpath/plans/circuit"
)

func TestPlaneSet(t *testing.T) {
	for _, c := range []struct {
		set      Set
		kind     plans.CircuitKind
		list     string
		len      int
		usable   Set
		complete int // the number of planes of which it is all, or 0
	}{
		{0, plans.Simplex, "[]", 0, 0, 0},
		{0b1011, plans.Simplex, "[0 1 3]", 3, 0b1011, 0},
		{0b1011, plans.Interleaved, "[0 1 3]", 3, 0b0011, 0},
		{0b0110, plans.Interleaved, "[1 2]", 2, 0, 0},
		{0b111100, plans.Interleaved, "[2 3 4 5]", 4, 0b111100, 0},
		{0b11, plans.Duplex, "[0 1]", 2, 0b11, 2},
		{1<<64 - 1, plans.Interleaved, fmt.Sprint(slices.Collect(Set(1<<64 - 1).Each())), 64, 1<<64 - 1, 64},
	} {
		if got := fmt.Sprint(slices.Collect(c.set.Each())); got != c.list || c.set.Len() != c.len {
			t.Errorf("%#b: %s, %d planes", c.set, got, c.set.Len())
		}
		if got := c.set.Usable(c.kind); got != c.usable {
			t.Errorf("%#b %s: %#b is usable, want %#b", c.set, c.kind, got, c.usable)
		}
		if c.complete > 0 && c.set != All(c.complete) {
			t.Errorf("%#b is not all of %d planes", c.set, c.complete)
		}
	}
}

// TestSpread: plane i of a plan becomes the i-th of those in use, and the rest is dark and idle.
func TestSpread(t *testing.T) {
	ring, back := circuit.Shift(3, 1), circuit.Shift(3, 2)
	plan := &plans.Plan{
		Version: 1, Digest: "d", Initial: []circuit.Permutation{ring, back},
		Planes: [][]plans.Entry{{{Kind: plans.Transmit, Bytes: 1}}, {{Kind: plans.Transmit, Bytes: 2}}},
	}
	if Set(0b11).Spread(plan, 2) != plan {
		t.Error("a plan for all planes was copied")
	}
	wide := Set(0b1010).Spread(plan, 4)
	for j, want := range []circuit.Permutation{circuit.AllDark(3), ring, circuit.AllDark(3), back} {
		if !wide.Initial[j].Equal(want) {
			t.Errorf("plane %d begins at %v", j, wide.Initial[j])
		}
	}
	if len(wide.Planes) != 4 || wide.Planes[0] != nil || wide.Planes[1][0].Bytes != 1 || wide.Planes[3][0].Bytes != 2 ||
		wide.Digest != "" {
		t.Errorf("%+v", wide)
	}
	if len(plan.Planes) != 2 || plan.Digest != "d" {
		t.Errorf("the plan was changed: %+v", plan)
	}
}
