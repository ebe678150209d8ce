package local

import (
	"testing"

	"lightpath/internal/shmring"
)

// TestSlowReaderOfChanges: a rank that reads no messages for a while keeps its connection while planes move. One
// message tells of all changes, since the rank reads the states in shared memory.
func TestSlowReaderOfChanges(t *testing.T) {
	bell, err := shmring.NewBell()
	if err != nil {
		t.Fatal(err)
	}
	defer bell.Close()
	ss := &session{out: make(chan *message, outQueue), conn: &conn{}, bell: bell.Doorbell}
	ss.watch.Store(true)
	for range 2 * outQueue {
		ss.Changed(0, nil, nil, nil)
	}
	if n := len(ss.out); n != 1 {
		t.Errorf("%d messages wait", n)
	}
}
