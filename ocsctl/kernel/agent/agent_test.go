package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"lightpath/internal/require"
	"lightpath/ocsctl/controller/rpc/labcerts"
	"lightpath/ocsctl/kernel"
	"lightpath/ocsctl/kernel/agent/agentpb"
	"lightpath/ocsctl/kernel/kerneltest"
	"lightpath/plans/circuit"
	"lightpath/plans/fabric"
)

// rig is a fabric on two hosts with their agents.
type rig struct {
	fabric *fabric.Fabric
	boards []*kernel.Board
	agents []*Server
}

func newRig(t *testing.T, tls TLS) *rig {
	t.Helper()
	hosts := kerneltest.Hosts(t, 2, 2, 1500)
	var listeners []net.Listener
	for range hosts {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		listeners = append(listeners, l)
	}
	text := fmt.Sprintf("version: 1\nname: agent%d\nhosts: [{name: a, ranks: 2, address: \"%s\"}, {name: b, ranks: "+
		"1, address: \"%s\"}]\nplanes:\n", os.Getpid(), listeners[0].Addr(), listeners[1].Addr())
	for j := range 2 {
		text += fmt.Sprintf("  - {name: p%d, bandwidth: 1Gbps, ocs: o, interface: %s}\n", j, kerneltest.Interface(j))
	}
	f, err := fabric.Decode([]byte(text + "ocs: [{name: o, driver: emulator, reconfig: 1ms}]\n"))
	require.NoError(t, err)
	r := &rig{fabric: f}
	for i, h := range f.Hosts {
		t.Cleanup(func() {
			if _, err := kernel.Down(kernel.NameOn(f, h.Name), true); err != nil {
				t.Error(err)
			}
		})
		s, _, err := kernel.Up(f, kernel.Options{MTU: 1500, Host: h.Name, Underlay: hosts[i]})
		require.NoError(t, err)
		b, err := kernel.Open(s)
		require.NoError(t, err)
		t.Cleanup(func() { _ = b.Close() })
		a, err := Serve(listeners[i], b, tls)
		require.NoError(t, err)
		t.Cleanup(a.Close)
		r.boards, r.agents = append(r.boards, b), append(r.agents, a)
	}
	return r
}

func (r *rig) dial(t *testing.T) *Board {
	t.Helper()
	b, err := Dial(t.Context(), r.fabric, TLS{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = b.Close() })
	return b
}

// same checks that every host has a map.
func (r *rig) same(t *testing.T, plane int, want circuit.Permutation) {
	t.Helper()
	for i, b := range r.boards {
		if m, err := b.Map(plane); err != nil || !m.Equal(want) {
			t.Errorf("host %d: plane %d: %v %v, want %v", i, plane, m, err, want)
		}
	}
}

// eventually waits until a plane's map is an error that says something, or until it is none.
func eventually(t *testing.T, b *Board, plane int, says string) {
	t.Helper()
	var err error
	for end := time.Now().Add(60 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if _, err = b.Map(plane); err == nil && says == "" || err != nil && says != "" &&
			strings.Contains(err.Error(), says) {
			return
		}
	}
	t.Fatalf("plane %d: %v, want %q", plane, err, says)
}

func TestBoardOfTwoHosts(t *testing.T) {
	r := newRig(t, TLS{})
	require.NoError(t, r.boards[1].Install(1, circuit.Shift(3, 2))) // as a controller does that dies between two hosts
	b := r.dial(t)
	r.same(t, 1, circuit.AllDark(3))
	for _, m := range []circuit.Permutation{circuit.Shift(3, 1), {1, 0, circuit.Dark}, {1, 2, 0},
		circuit.AllDark(3), {2, 1, 0}} {
		require.NoError(t, b.Install(0, m))
		if got, err := b.Map(0); err != nil || !got.Equal(m) {
			t.Errorf("map %v %v, want %v", got, err, m)
		}
		r.same(t, 0, m)
	}
	for _, bad := range []circuit.Permutation{{0, 0, 1}, {3, 1, 2}, {0}} {
		if err := b.Install(0, bad); err == nil {
			t.Errorf("%v is taken", bad)
		}
	}
	if err := b.Install(2, circuit.AllDark(3)); err == nil || !strings.Contains(err.Error(), "plane 2") {
		t.Errorf("plane 2: %v", err)
	}

	// The board notices the change of another writer, and its end.
	require.NoError(t, r.boards[1].Install(0, circuit.Shift(3, 1)))
	eventually(t, b, 0, "different maps")
	if err := b.Install(0, circuit.AllDark(3)); !errors.Is(err, ErrAgent) {
		t.Errorf("a change from an unknown map: %v", err)
	}
	require.NoError(t, r.boards[1].Install(0, circuit.Permutation{2, 1, 0}))
	eventually(t, b, 0, "")

	// A request whose controller has given up comes too late.
	late, giveUp := context.WithCancel(t.Context())
	giveUp()
	if _, err := r.agents[0].Install(late, &agentpb.InstallRequest{Session: b.agents[0].session,
		To: encodeMap(circuit.Shift(3, 1))}); status.Code(err) != codes.Canceled {
		t.Errorf("a late request: %v", err)
	}
	r.same(t, 0, circuit.Permutation{2, 1, 0})

	// The next controller: the one before is refused, at once and when it looks.
	next := r.dial(t)
	if m, err := next.Map(0); err != nil || !m.Equal(circuit.Permutation{2, 1, 0}) {
		t.Errorf("the next controller finds %v %v", m, err)
	}
	if err := b.Install(1, circuit.Shift(3, 1)); err == nil || !strings.Contains(err.Error(), "another controller") {
		t.Errorf("the old one: %v", err)
	}
	r.same(t, 1, circuit.AllDark(3))
	eventually(t, b, 0, "another controller")

	// A host that is gone is named.
	r.agents[1].Close()
	if err := next.Install(1, circuit.Shift(3, 1)); !errors.Is(err, ErrAgent) || !strings.Contains(err.Error(),
		"b at 127.0.0.1:") || !strings.Contains(err.Error(), "plane p1") {
		t.Errorf("without host b: %v", err)
	}
	eventually(t, next, 0, "b at 127.0.0.1:")
}

func TestRefuses(t *testing.T) {
	dir := t.TempDir()
	ca, err := labcerts.Create(dir, time.Hour)
	require.NoError(t, err)
	file := func(s labcerts.Subject) TLS {
		t.Helper()
		s.Life = time.Hour
		require.NoError(t, ca.Issue(s))
		return TLS{ca.Path("ca.pem"), ca.Path(s.Name + ".pem"), ca.Path(s.Name + ".key")}
	}
	r := newRig(t, file(labcerts.Subject{Name: "agent", Hosts: []string{"127.0.0.1"}}))
	controller := file(labcerts.Subject{Name: "controller", Hosts: []string{"127.0.0.1"}})
	b, err := Dial(t.Context(), r.fabric, controller)
	require.NoError(t, err)
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	other := *r.fabric
	other.Costs.Alpha++
	away := *r.fabric
	away.Hosts = []fabric.Host{{Name: "a", Ranks: 2, Address: "192.0.2.1:1"}, {Name: "b", Ranks: 1}}
	lost := away
	lost.Hosts = append([]fabric.Host(nil), r.fabric.Hosts...)
	lost.Hosts[1].Address = ""
	for name, c := range map[string]struct {
		f    *fabric.Fabric
		tls  TLS
		says string
	}{
		"a rank":         {r.fabric, file(labcerts.Subject{Name: "rank", Units: []string{"rank"}}), "is no controller"},
		"no certificate": {r.fabric, TLS{}, "agent of a host: a at 127.0.0.1"},
		"another file":   {&other, controller, "from another file"},
		"off loopback":   {&away, TLS{}, "192.0.2.1:1 needs a CA"},
		"no address":     {&lost, controller, "no address"},
		"no such file":   {r.fabric, TLS{CA: dir + "/none", Cert: "x", Key: "y"}, "none"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
			defer cancel()
			if _, err := Dial(ctx, c.f, c.tls); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v, want %q", err, c.says)
			}
		})
	}
	l, err := net.Listen("tcp", "0.0.0.0:0")
	require.NoError(t, err)
	defer l.Close()
	if _, err := Serve(l, r.boards[0], TLS{}); err == nil || !strings.Contains(err.Error(), "off loopback") {
		t.Errorf("an agent for everybody: %v", err)
	}
}
