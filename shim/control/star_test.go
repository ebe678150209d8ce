package control

import (
	"context"
	"errors"
	"net"
	"testing"
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
	_, err = NewStar(ctx, 1, 2, nil, ln.Addr().String(), Secret{}, time.Hour)
	if !errors.Is(err, errdefs.ErrRemote) || ctx.Err() != nil {
		t.Errorf("a leader that has ended: %v", err)
	}
}
