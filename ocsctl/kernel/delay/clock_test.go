package delay

import (
	"os"
	"testing"
	"time"

	"lightpath/internal/require"
)

// TestClockSetBack checks that frames do not wait for the time by which the clock was set back.
func TestClockSetBack(t *testing.T) {
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer r.Close()
	defer w.Close()
	d := &Delay{time: time.Minute}
	for _, due := range []time.Duration{time.Hour, 50 * time.Second} {
		d.waiting = append(d.waiting, frame{make([]byte, frameBytes)[:1], time.Now().Add(due).UnixNano(), int(w.Fd())})
	}
	if d.send(); d.passed != 1 || len(d.waiting) != 1 {
		t.Errorf("%d frames passed, %d wait, want one each", d.passed, len(d.waiting))
	}
}
