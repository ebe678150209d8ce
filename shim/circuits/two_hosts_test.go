package circuits_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"lightpath/ocsctl/controller"
	"lightpath/ocsctl/kernel"
	"lightpath/ocsctl/kernel/agent"
	"lightpath/ocsctl/kernel/kerneltest"
	"lightpath/plans/fabric"
	"lightpath/shim"
	"lightpath/shim/calls"
	"lightpath/shim/path/optical"
	"lightpath/shim/shimtest"
)

// twoHosts builds a fabric on two hosts, four ranks, with their agents and a controller that drives
// them, and points the environment at it. lost tells what has been lost so far, kill ends the agent of
// the second host.
func twoHosts(t *testing.T) (core *controller.Core, lost func() []string, kill func()) {
	t.Helper()
	must := shimtest.Fatal(t)
	const planes, mtu = 2, 9000
	hosts := kerneltest.Hosts(t, 2, planes, mtu)
	socket := filepath.Join(t.TempDir(), "ocsd.sock")
	var listeners []net.Listener
	for range hosts {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		must(err)
		listeners = append(listeners, l)
	}
	text := fmt.Sprintf("version: 1\nname: tH%d\nhosts: [{name: h1, ranks: 2, address: \"%s\"}, {name: h2, ranks: "+
		"2, address: \"%s\"}]\nforwarding: true\nplanes:\n", os.Getpid(), listeners[0].Addr(), listeners[1].Addr())
	for j := range planes {
		text += fmt.Sprintf("  - {name: p%d, bandwidth: 500Mbps, ocs: ocs0, interface: %s}\n", j, kerneltest.Interface(j))
	}
	text += "ocs: [{name: ocs0, driver: emulator, endpoint: \"unix:" + socket + "\", reconfig: 2ms}]\n"
	path := filepath.Join(t.TempDir(), "fabric.yaml")
	must(os.WriteFile(path, []byte(text), 0o600))
	f, err := fabric.Load(path)
	must(err)
	var states []*kernel.State
	for i, h := range f.Hosts {
		t.Cleanup(func() {
			if _, err := kernel.Down(kernel.NameOn(f, h.Name), true); err != nil {
				t.Error(err)
			}
		})
		state, _, err := kernel.Up(f, kernel.Options{MTU: mtu, Host: h.Name, Underlay: hosts[i]})
		must(err)
		states = append(states, state)
		board, err := kernel.Open(state)
		must(err)
		t.Cleanup(func() { _ = board.Close() })
		server, err := agent.Serve(listeners[i], board, agent.TLS{})
		must(err)
		t.Cleanup(server.Close)
		kill = server.Close
	}
	board, err := agent.Dial(context.Background(), f, agent.TLS{})
	must(err)
	t.Cleanup(func() { _ = board.Close() })
	core = shimtest.UseDeviceModels(t, f, path, socket, board)
	t.Setenv("LIGHTPATH_PLAN_LIMIT", "50ms")
	t.Setenv("LIGHTPATH_PLAN_WAIT", "1")
	return core, func() []string {
		var all []string
		for _, s := range states {
			r, err := kernel.Inspect(s)
			must(err)
			all = append(all, r.Problems...)
		}
		return all
	}, kill
}

// TestTwoHosts runs every collective across two hosts that share an Ethernet per plane and nothing
// else, circuits moving in the middle: every byte right, no frame lost. A host whose agent dies is named.
func TestTwoHosts(t *testing.T) {
	for _, name := range []string{"swot", "harvest"} {
		t.Run(name, func(t *testing.T) {
			core, lost, kill := twoHosts(t)
			t.Setenv("LIGHTPATH_PLANNER", name)
			w := shimtest.NewWorld(t, 4)
			t.Cleanup(func() { // also where a call has failed: it says which frames were lost
				if problems := lost(); len(problems) > 0 {
					t.Errorf("%q", problems)
				}
			})
			rng := rand.New(rand.NewPCG(8, 8))
			for _, count := range []int{1, 4001} {
				w.RunAll(t, rng, count)
			}
			if n := len(optical.Of(w.Comms[0]).Packet); n > 0 {
				t.Errorf("%d shapes ran on packet planes", n)
			}
			if name != "swot" {
				return
			}
			kill()
			// A call that finds out fails and says so; one that comes later does without the planes.
			for range 3 {
				for _, err := range w.Each(func(c *shim.Comm) error {
					return shim.Run([]calls.Call{shimtest.AllReduce(c, make([]float32, 1<<16))})
				}) {
					if err != nil && !strings.Contains(err.Error(), "h2 at 127.0.0.1") {
						t.Errorf("%v: want it to name the host", err)
					}
				}
			}
			var planes []controller.PlaneSnapshot
			if !shimtest.Eventually(func() bool {
				now, err := core.Snapshot()
				planes = now.Planes
				return err == nil && !slices.ContainsFunc(planes, func(p controller.PlaneSnapshot) bool {
					return p.State != controller.Down || !strings.Contains(p.Reason, "h2 at 127.0.0.1")
				})
			}) {
				t.Errorf("planes are %+v, want all to be down for want of h2", planes)
			}
		})
	}
}
