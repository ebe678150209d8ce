package endpoints

import (
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"lightpath/collectives/transport/tcp"
	"lightpath/internal/require"
	"lightpath/shim/bootstrap"
	"lightpath/shim/comm"
	"lightpath/shim/errdefs"
	"lightpath/shim/settings"
)

// TestSharedInterface covers ranks with one interface per plane, and with fewer.
func TestSharedInterface(t *testing.T) {
	one, two := "10.0.0.1:5", "10.0.0.2:5,10.0.1.2:6"
	for name, k := range map[string]struct {
		tcp    []string
		planes int
		says   string // "": nothing
	}{
		"one plane":            {[]string{one, one}, 1, ""},
		"one per plane":        {[]string{two, two}, 2, ""},
		"more than planes":     {[]string{two, two}, 1, ""},
		"one for two planes":   {[]string{two, one}, 2, "the 2 planes of rank 1"},
		"two for three planes": {[]string{two, two}, 3, "use 2 interface(s)"},
	} {
		var table []bootstrap.Hello
		for r, tcp := range k.tcp {
			table = append(table, bootstrap.Hello{Rank: r, TCP: tcp})
		}
		if got := sharedInterface(table, k.planes); (got == "") != (k.says == "") || !strings.Contains(got, k.says) {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// TestConnectingTimesOut: ranks that do not connect in time are no internal error.
func TestConnectingTimesOut(t *testing.T) {
	id := comm.Identity{Rank: 1, Ranks: 2, Cfg: &settings.Config{Planes: 1, Timeout: time.Millisecond}}
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer silent.Close()
	ln, err := tcp.Listen("127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = ln.Close() }()
	id.Table = []bootstrap.Hello{{TCP: silent.Addr().String()}, {TCP: ln.Addr()}}
	_, err = joinTCP(comm.New(id), &Listeners{tcp: ln})
	if !errors.Is(err, errdefs.ErrTimeout) || !strings.Contains(err.Error(), "rank 0 on plane 0: timed out after 1ms") {
		t.Error(err)
	}
}

// TestJoinProcessLeavesNothing: a communicator of this process that is not made keeps no endpoints.
func TestJoinProcessLeavesNothing(t *testing.T) {
	c := comm.New(comm.Identity{ID: 7, Ranks: 2, Cfg: &settings.Config{Planes: 1}})
	_, err := joinProcess(c)
	require.NoError(t, err)
	c.Release(0)
	if n := len(gatherings.open); n > 0 {
		t.Errorf("endpoints of %d communicators are left", n)
	}
}
