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
	"lightpath/shim/membership"
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
		shimtest.WantError(t, finished(t, c), errdefs.ErrRemote, "rank 2 (far, process 7) left")
	}
}

// TestGrowOfFailed: if a communicator fails after it has made an id for new ranks, its grow tells them why.
func TestGrowOfFailed(t *testing.T) {
	t.Parallel()
	parent := shimtest.NewWorld(t, 2).Comms[0]
	id, err := membership.GrowID(parent)
	require.NoError(t, err)
	joins := startAll(t, []shim.InitArgs{{ID: id, Ranks: 3, Rank: 2}})[0]
	assert.NoError(t, parent.Revoke())
	_, err = shimtest.InitFrom(membership.Origin{Parent: parent, How: membership.ByGrow, Ranks: 3, ID: &id})
	shimtest.WantError(t, err, errdefs.ErrRevoked)
	shimtest.WantError(t, finished(t, joins), errdefs.ErrInvalidUsage, "do not grow it", "rank 0 revoked")
}

// TestEndedBeforeShrink: a rank whose process ends before it takes part in a shrink costs the others no timeout.
func TestEndedBeforeShrink(t *testing.T) {
	t.Parallel()
	parent := shimtest.NewWorld(t, 3).Comms[0]
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	parent.Table[2].Rendezvous = ln.Addr().String()
	assert.NoError(t, ln.Close())
	shrinks := child(t, membership.Origin{Parent: parent, How: membership.ByShrink, Exclude: []int{1}})
	shimtest.WantError(t, finished(t, shrinks), errdefs.ErrRemote, "rank 2 (", "left", "has ended")
}
