package bootstrap

import (
	"context"
	"errors"
	"io"
	"net/netip"
	"testing"
	"time"

	"lightpath/internal/require"
	"lightpath/shim/control"
	"lightpath/shim/settings"
)

// TestVetoElsewhere: a rank that meets other ranks elsewhere closes the connection of a veto.
func TestVetoElsewhere(t *testing.T) {
	d, err := OpenRendezvous(&settings.Config{})
	require.NoError(t, err)
	defer d.Close()
	over := make(chan struct{})
	defer close(over)
	s, deadline := control.Secret{1}, time.Now().Add(time.Minute)
	d.RefuseOthers(s, &Hello{Ranks: 2, Version: Version, Without: "rank 2"}, time.Minute, over, nil)
	conn, err := control.Dial(context.Background(), netip.MustParseAddrPort(d.Address()), s, deadline, false)
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, control.Send(conn, &control.Message{Kind: control.MsgRefuse, Body: []byte("other lists")}))
	require.NoError(t, conn.SetReadDeadline(deadline))
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Error(err)
	}
}
