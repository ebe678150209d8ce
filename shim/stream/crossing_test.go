package stream

import "testing"

// TestRaise checks that a late crossing does not lower a word that the next crossing has set.
func TestRaise(t *testing.T) {
	for _, c := range []struct{ at, to, want uint32 }{{4, 6, 6}, {6, 4, 6}, {6, 6, 6}, {1<<32 - 2, 1, 1},
		{1, 1<<32 - 2, 1}} {
		word := c.at
		if raise(&word, c.to); word != c.want {
			t.Errorf("%d raised to %d is %d", c.at, c.to, word)
		}
	}
}
