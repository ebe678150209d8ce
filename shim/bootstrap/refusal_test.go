package bootstrap

import (
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	"lightpath/internal/require"
	"lightpath/shim/control"
	"lightpath/shim/errdefs"
	"lightpath/shim/settings"
)

// TestClassOfRefusal: if the first of two places is gone, all ranks of the other place get the same kind of error, also
// those that their delegate tells.
func TestClassOfRefusal(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	gone := ln.Addr().(*net.TCPAddr).AddrPort()
	require.NoError(t, ln.Close())
	cfg := &settings.Config{Timeout: time.Minute}
	second, err := StartRoot(cfg, control.Secret{2}, netip.MustParseAddrPort("127.0.0.1:0"))
	require.NoError(t, err)
	places := []Place{{Addr: gone, Secret: control.Secret{1}}, {Addr: second, Secret: control.Secret{2}}}
	errs := make(chan error, 2)
	for rank := 2; rank < 4; rank++ {
		go func() {
			h := &Hello{Rank: rank, Ranks: 4, Places: 2, Version: Version}
			_, _, err := Meet(t.Context(), places, h, time.Minute)
			errs <- err
		}()
	}
	for range 2 {
		if err := <-errs; !errors.Is(err, errdefs.ErrRemote) {
			t.Errorf("%v", err)
		}
	}
}
