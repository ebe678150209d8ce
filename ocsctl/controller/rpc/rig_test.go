package rpc_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"lightpath/ocsctl"
	"lightpath/ocsctl/controller"
	"lightpath/ocsctl/controller/rpc"
	"lightpath/ocsctl/controller/rpc/internal/fake"
	"lightpath/plans/circuit"
)

// patience bounds what tests wait for; it is far above what anything takes.
const patience = 60 * time.Second

// site is a server and who stands behind it.
type site struct {
	*rpc.Server
	address string
	core    atomic.Pointer[fake.Controller] // nil: it stands by
	standby atomic.Value                    // string: the controller in charge
}

func options(name string, ports, planes int) rpc.ServerOptions {
	// A slow host must not make a rank lose its place. Tests of these limits set their own.
	o := rpc.ServerOptions{Ports: ports, DataPlane: ocsctl.DataNone, Name: name, Version: "1.2.3", Linger: patience,
		Patience: patience, Stall: patience}
	for j := range planes {
		o.Planes = append(o.Planes, ocsctl.PlaneInfo{Name: fmt.Sprintf("p%d", j), BandwidthBitsPerSec: 2e9,
			Reconfig: time.Millisecond, ReconfigPerPort: time.Microsecond})
	}
	return o
}

// serve starts a site in front of core; nil: a standby.
func serve(t testing.TB, core *fake.Controller, o rpc.ServerOptions) *site {
	t.Helper()
	return serveAt(t, "127.0.0.1:0", core, o)
}

func serveAt(t testing.TB, address string, core *fake.Controller, o rpc.ServerOptions) *site {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	s := &site{address: l.Addr().String()}
	s.core.Store(core)
	s.standby.Store("no other controller is known to be")
	if o.Controller == nil {
		o.Controller = func() (controller.Controller, string) {
			if c := s.core.Load(); c != nil {
				return c, ""
			}
			return nil, s.standby.Load().(string)
		}
	}
	if s.Server, err = rpc.Serve(l, o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func dial(t testing.TB, port int, o rpc.Options, endpoints ...string) *rpc.Client {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c, err := rpc.Dial(ctx, endpoints, port, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// until waits for a condition.
func until(t testing.TB, what string, yes func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !yes(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not after %v", what, patience)
		}
	}
}

// reach waits until a client sees a plane at an epoch, without a fault on the way.
func reach(t testing.TB, c *rpc.Client, plane int, epoch uint32) {
	t.Helper()
	until(t, fmt.Sprintf("port %d plane %d epoch %d", c.Port(), plane, epoch), func() bool {
		have, err := c.Poll(plane)
		if err != nil {
			t.Fatal(err)
		}
		return have == epoch
	})
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// wants checks that an error is of a kind and has words in it, in one line.
func wants(t testing.TB, err, kind error, words ...string) {
	t.Helper()
	if err == nil || kind != nil && !errors.Is(err, kind) {
		t.Fatalf("%v, want %v", err, kind)
	}
	for _, w := range append(words, "") {
		if !strings.Contains(err.Error(), w) || strings.Contains(err.Error(), "\n") {
			t.Fatalf("no %q, or more than a line: %v", w, err)
		}
	}
}

// holder is the communicator of ranks in tests. Whether it holds planes, only a real core asks.
const holder = 7

// move has every client post a shift by d for the plane's epoch and waits for the next one.
func move(t testing.TB, plane int, d int, clients ...*rpc.Client) {
	t.Helper()
	epoch := clients[0].State(plane).Epoch
	for _, c := range clients {
		must(t, c.Post(plane, epoch, holder, circuit.Shift(c.NumPorts(), d)))
	}
	for _, c := range clients {
		reach(t, c, plane, epoch+1)
		if got := c.State(plane).Map; !got.Equal(circuit.Shift(c.NumPorts(), d)) {
			t.Fatalf("port %d: map %v", c.Port(), got)
		}
	}
}

// none is the controller of a site that never has one.
func (*site) none() (controller.Controller, string) { return nil, "" }
