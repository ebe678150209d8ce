package endpoints

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"lightpath/internal/require"
	"lightpath/ocsctl"
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

// TestAttachBesideSlowController: a communicator does not wait for the controller of another one.
func TestAttachBesideSlowController(t *testing.T) {
	slow, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer slow.Close()
	newComm := func() *comm.Core {
		return comm.New(comm.Identity{Ranks: 2, Cfg: &settings.Config{Timeout: time.Hour}})
	}
	first, ended := newComm(), make(chan error)
	fab := &Fabric{Fabric: &fabric.Fabric{}, endpoints: []string{slow.Addr().String()}}
	go func() {
		_, err := AttachPort(first, fab, 0)
		ended <- err
	}()
	conn, err := slow.Accept() // first waits for an answer
	require.NoError(t, err)
	defer conn.Close()
	none := &Fabric{Fabric: &fabric.Fabric{}, endpoints: []string{"unix:" + t.TempDir() + "/none"}}
	if _, err := AttachPort(newComm(), none, 0); !errors.Is(err, ocsctl.ErrControlLost) {
		t.Errorf("a controller that is absent: %v", err)
	}
	for port := range 2 { // the same connection, and another one
		aborted := newComm()
		aborted.Spread(errdefs.ErrAborted)
		if _, err := AttachPort(aborted, fab, port); !errors.Is(err, context.Canceled) {
			t.Errorf("an aborted communicator: %v", err)
		}
	}
	first.Spread(errdefs.ErrAborted)
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the first communicator: %v", err)
	}
	if n := len(attachments.open); n > 0 {
		t.Errorf("%d attachments are left", n)
	}
}
