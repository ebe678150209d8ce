package membership_test

import (
	"net"
	"testing"
	"time"

	"lightpath/internal/assert"
	"lightpath/internal/require"
	"lightpath/shim"
	"lightpath/shim/bootstrap"
	"lightpath/shim/errdefs"
	"lightpath/shim/shimtest"
)

// TestEndedBeforeControl: a process that ends after the ranks have met and before it has connected to the leader costs
// the others no timeout. All get its name.
func TestEndedBeforeControl(t *testing.T) {
	t.Parallel()
	args := byIDs(3, 1)(t)
	comms := startAll(t, args[:2])
	cfg := shimtest.Settings(t)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	h := bootstrap.Hello{
		Rank: 2, Ranks: 3, Host: "elsewhere", Name: "far", PID: 7, Version: shim.Version, Settings: cfg.Agreed(),
		Port: cfg.LauncherRank, Rendezvous: ln.Addr().String(),
	}
	assert.NoError(t, ln.Close())
	var at bootstrap.Place
	at.Addr, at.Secret, err = bootstrap.ParseID(&args[0].ID)
	require.NoError(t, err)
	_, _, err = bootstrap.Meet(t.Context(), []bootstrap.Place{at}, &h, time.Hour)
	require.NoError(t, err)
	for _, c := range comms {
		shimtest.WantError(t, finished(t, c), errdefs.ErrRemote, "lost rank 2 (far, process 7)")
	}
}
