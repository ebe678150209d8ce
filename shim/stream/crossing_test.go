package stream

import "testing"

// TestRaise: a crossing that is late takes nothing back of what the next one has said.
func TestRaise(t *testing.T) {
	for _, c := range []struct{ at, to, want uint32 }{{4, 6, 6}, {6, 4, 6}, {6, 6, 6}, {1<<32 - 2, 1, 1}, {1, 1<<32 - 2, 1}} {
		word := c.at
		if raise(&word, c.to); word != c.want {
			t.Errorf("%d raised to %d is %d", c.at, c.to, word)
		}
	}
}
