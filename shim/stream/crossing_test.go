package stream

import (
	"errors"
	"testing"

	"lightpath/internal/require"
	"lightpath/shim/calls"
	"lightpath/shim/device"
	"lightpath/shim/device/devicetest"
	"lightpath/shim/memory"
)

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

// TestCrossingOfNoGraph: a crossing keeps no memory if the driver cannot tell when its graph is gone.
func TestCrossingOfNoGraph(t *testing.T) {
	d := devicetest.New(Places(), 1)
	defer d.Close()
	device.Use(d)
	defer device.Use(nil)
	_, err := d.Enter(d.NewStreamOn(0))
	require.NoError(t, err)
	defer d.Leave()
	words, err := wordsOf(1)
	require.NoError(t, err)
	memory.Unpin(words)
	places := len(table.all) - len(table.spare)
	d.Fail("Retain", 0)
	in := &Issuer{Options: Options{Lanes: 1}}
	_, err = in.take(&Launch{Call: new(calls.Call), Capture: device.Capture{ID: 1}})
	if !errors.Is(err, device.ErrDriver) {
		t.Errorf("error %v", err)
	}
	again, err := wordsOf(1)
	require.NoError(t, err)
	if n := len(table.all) - len(table.spare); again != words || n != places {
		t.Errorf("the words are still used (%v), and %d places for %d", again != words, n, places)
	}
	memory.Unpin(again)
}
