package control_test

import (
	"errors"
	"strings"
	"testing"

	"lightpath/internal/require"
	"lightpath/shim"
	"lightpath/shim/calls"
	"lightpath/shim/control"
	"lightpath/shim/errdefs"
	"lightpath/shim/shimtest"
)

func TestMain(m *testing.M) { shimtest.Main(m, nil) }

// TestLastWordsOfTheLeader: a rank that can send the leader nothing any more gives the reason that the
// leader has sent before, which it may not have read yet.
func TestLastWordsOfTheLeader(t *testing.T) {
	shimtest.UseEmulator(t, 2, 1, nil)
	for range 10 {
		w := shimtest.NewWorld(t, 2)
		c := w.Comms[1]
		require.NoError(t, control.Mute(c.Star))
		// To the leader this rank is lost; that is what it says to all.
		if err := shim.Run([]calls.Call{shimtest.AllReduce(c, make([]float32, 10))}); !errors.Is(err, errdefs.ErrRemote) ||
			!strings.Contains(err.Error(), "lost rank 1") {
			t.Errorf("%v", err)
		}
		w.Destroy()
	}
}
