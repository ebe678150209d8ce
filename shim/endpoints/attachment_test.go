package endpoints

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"lightpath/internal/require"
	"lightpath/plans/fabric"
	"lightpath/shim/comm"
	"lightpath/shim/errdefs"
	"lightpath/shim/settings"
)

// TestAbortedAttach: a communicator that has been aborted does not wait for a controller that does not answer.
func TestAbortedAttach(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0") // it accepts no connection
	require.NoError(t, err)
	defer ln.Close()
	fab := &Fabric{Fabric: &fabric.Fabric{}, endpoints: []string{ln.Addr().String()}}
	c := comm.New(comm.Identity{Ranks: 2, Cfg: &settings.Config{Timeout: time.Hour}})
	c.Spread(errdefs.ErrAborted)
	if _, err := AttachPort(c, fab, 0); !errors.Is(err, context.Canceled) {
		t.Errorf("an aborted communicator: %v", err)
	}
}
