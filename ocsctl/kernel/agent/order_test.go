package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"lightpath/internal/require"
	"lightpath/ocsctl/controller/rpc/labcerts"
	"lightpath/ocsctl/driver"
	"lightpath/ocsctl/internal/direct"
	"lightpath/ocsctl/kernel/agent/agentpb"
	"lightpath/plans/circuit"
	"lightpath/plans/fabric"
)

// recorder is agents that keep maps in memory, and a log of what they were told.
type recorder struct {
	mu   sync.Mutex
	told []told
	liar int // host that reads back another map than it was given; -1: none
	dead int // host that answers no request of a change; -1: none
}

type told struct {
	host int
	to   circuit.Permutation
}

// fake is one host's.
type fake struct {
	agentpb.UnimplementedCircuitsServer
	*recorder
	host int
	now  []int32 // the map of plane 0; plane 1 is dark
}

func (f *fake) maps() []*agentpb.Map {
	return []*agentpb.Map{{To: f.now}, {To: encodeMap(circuit.AllDark(6))}}
}

func (f *fake) Open(context.Context, *agentpb.OpenRequest) (*agentpb.OpenReply, error) {
	return &agentpb.OpenReply{Session: 7, Host: fmt.Sprintf("h%d", f.host), First: uint32(2 * f.host), Count: 2,
		Planes: f.maps()}, nil
}

func (f *fake) Install(_ context.Context, r *agentpb.InstallRequest) (*agentpb.InstallReply, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.told = append(f.told, told{f.host, decodeMap(r.GetTo())})
	if f.host == f.dead {
		return nil, status.Error(codes.Unavailable, "no answer")
	}
	if f.host != f.liar {
		f.now = r.GetTo()
	}
	return &agentpb.InstallReply{To: f.now}, nil
}

func (f *fake) Look(context.Context, *agentpb.LookRequest) (*agentpb.LookReply, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return &agentpb.LookReply{Session: 7, Planes: f.maps()}, nil
}

// record starts three hosts of two ranks each, and a board of them.
func record(t *testing.T) (*recorder, *Board) {
	t.Helper()
	all := &recorder{liar: -1, dead: -1}
	text := "version: 1\nplanes: [{name: p0, bandwidth: 1Gbps, ocs: o, interface: e0}, " +
		"{name: p1, bandwidth: 1Gbps, ocs: o, interface: e1}]\nocs: [{name: o, driver: emulator, reconfig: 1ms}]\nhosts:\n"
	for i := range 3 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		text += fmt.Sprintf("  - {name: h%d, ranks: 2, address: \"%s\"}\n", i, l.Addr())
		server := grpc.NewServer()
		agentpb.RegisterCircuitsServer(server, &fake{recorder: all, host: i, now: encodeMap(circuit.AllDark(6))})
		go func() { _ = server.Serve(l) }() // until it is stopped
		t.Cleanup(server.Stop)
	}
	f, err := fabric.Decode([]byte(text))
	require.NoError(t, err)
	b, err := Dial(t.Context(), f, TLS{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = b.Close() })
	return all, b
}

// A controller reaches agents without the proxy of its environment.
func TestNoProxy(t *testing.T) {
	ca, err := labcerts.Create(t.TempDir(), time.Hour)
	require.NoError(t, err)
	require.NoError(t, ca.Issue(labcerts.Subject{Name: "controller", Life: time.Hour}))
	a, err := dial(fabric.Host{Name: "h", Ranks: 1, Address: "agent.invalid:1"}, TLS{ca.Path("ca.pem"),
		ca.Path("controller.pem"), ca.Path("controller.key")})
	require.NoError(t, err)
	defer func() { _ = a.conn.Close() }()
	direct.Test(t, func(ctx context.Context) error {
		_, err := a.client.Look(ctx, &agentpb.LookRequest{})
		return err
	})
}

// No circuit is lit on any host while one that must go for it stands on another.
func TestDarkEverywhereBeforeLightAnywhere(t *testing.T) {
	all, b := record(t)
	old := circuit.AllDark(6)
	for _, m := range []circuit.Permutation{circuit.Shift(6, 1), {1, 0, 3, 4, 5, 2}, {1, 0, 3, 4, 5, 2},
		circuit.AllDark(6), {0, 1, 2, 3, 4, 5}} {
		all.told = nil
		require.NoError(t, b.Install(0, m))
		have := []circuit.Permutation{old, old, old}
		for _, c := range all.told {
			for r, to := range c.to {
				if to == circuit.Dark || have[c.host][r] == to {
					continue
				}
				for h, other := range have { // a circuit that is added shares no port with circuits that stand
					if from := other.Inverse()[to]; other[r] != circuit.Dark && other[r] != to || from != circuit.Dark && from != r {
						t.Errorf("host %d lights %d to %d while host %d has %v", c.host, r, to, h, other)
					}
				}
			}
			have[c.host] = c.to
		}
		for h := range have {
			if !have[h].Equal(m) {
				t.Errorf("host %d ends with %v, want %v", h, have[h], m)
			}
		}
		if m.Equal(old) && len(all.told) > 0 {
			t.Errorf("told %v where nothing changes", all.told)
		}
		old = m
	}
	all.mu.Lock()
	all.liar = 1
	all.mu.Unlock()
	if err := b.Install(0, circuit.Shift(6, 1)); err == nil {
		t.Error("a host that does not do what it is told is not noticed")
	}
	if _, err := b.Map(0); err == nil {
		t.Error("the map is known after that")
	}
}

// TestOneWaitForAllPlanes: after a host has not answered for one plane, no other plane waits for it until a look has
// found it. The controller moves several planes after each other, and ranks do not wait for it that long.
func TestOneWaitForAllPlanes(t *testing.T) {
	all, b := record(t)
	all.mu.Lock()
	all.dead = 1
	all.mu.Unlock()
	b.writing.Lock() // no look meanwhile
	err0 := b.install(0, circuit.Shift(6, 1))
	all.mu.Lock()
	asked := len(all.told)
	all.mu.Unlock()
	err1 := b.install(1, circuit.Shift(6, 1))
	b.writing.Unlock()
	all.mu.Lock()
	defer all.mu.Unlock()
	if !errors.Is(err0, driver.ErrNoAnswer) || !errors.Is(err1, driver.ErrNoAnswer) || len(all.told) != asked {
		t.Errorf("%v; %v; %d requests for the second plane", err0, err1, len(all.told)-asked)
	}
}
