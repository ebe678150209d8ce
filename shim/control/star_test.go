package control

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"lightpath/internal/assert"
	"lightpath/internal/require"
	"lightpath/shim/errdefs"
)

// TestLeaderGone: a leader that ends before the ranks have joined it is not waited for until the timeout.
func TestLeaderGone(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	assert.NoError(t, ln.Close())
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_, err = Join(ctx, 1, 2, ln.Addr().String(), Secret{}, time.Hour)
	if !errors.Is(err, errdefs.ErrRemote) || ctx.Err() != nil {
		t.Errorf("a leader that has ended: %v", err)
	}
}

// TestStoppedReader: if a rank stops reading in the middle of a message, the leader sends it no other message, which
// the rank would take for the rest of the first, and loses the rank.
func TestStoppedReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		c := &Star{ranks: 2, links: []*link{nil, {conn: near}}, left: make([]bool, 2), allLeft: make(chan struct{})}
		var lost error
		c.Start(Events{Lost: func(_ int, err error) { lost = err }})
		go func() { _, _ = io.ReadFull(far, make([]byte, header+1)) }()
		c.To(1, &Message{Kind: MsgPlan, Body: make([]byte, 100)})
		synctest.Wait()
		if !errors.Is(lost, os.ErrDeadlineExceeded) {
			t.Errorf("the connection ended with %v", lost)
		}
		c.Close()
		_ = far.Close()
	})
}
