package membership

import (
	"slices"
	"strings"
	"testing"
)

// TestLongLists checks that two lists cut to fit a message still differ.
func TestLongLists(t *testing.T) {
	var long []int
	for r := range 10 {
		long = append(long, 2*r)
	}
	other := append(slices.Clone(long[:9]), 21)
	a := without(long)
	if b := without(other); a == b || !strings.Contains(a, "and 2 more") {
		t.Errorf("%q and %q", a, b)
	}
	slices.Reverse(long)
	if b := without(long); a != b {
		t.Errorf("%q and %q for the same ranks", a, b)
	}
}
