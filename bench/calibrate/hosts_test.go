package calibrate

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"lightpath/bench/benchtest"
	"lightpath/collectives/transport/ebpf"
	"lightpath/internal/require"
	"lightpath/ocsctl/kernel"
	"lightpath/ocsctl/kernel/agent"
	"lightpath/ocsctl/kernel/kerneltest"
	"lightpath/plans/fabric"
)

// TestTwoHosts calibrates planes that two hosts share. A command starts the rank of the second host, and ranks meet
// through it. The accuracy depends on the host's other work and is only logged.
func TestTwoHosts(t *testing.T) {
	bin := benchtest.Bin(t)
	if err := kernel.Check(); err != nil {
		t.Skipf("planes in the kernel cannot be built here: %v", err)
	}
	f, path := fabricOnHosts(t)
	o := Options{
		Fabric: path, Lightpath: filepath.Join(bin, "lightpath"), Worker: filepath.Join(bin, "lightpath-rank"),
		Launch: []string{"env", "HOST={host}"}, Rounds: 1, Iters: 3, Progress: t.Logf,
	}
	if got := o.launcher(f); got(0) != nil || got(1) != nil || !slices.Equal(got(2), []string{"env", "HOST=h2"}) {
		t.Errorf("ranks are started with %q %q %q", got(0), got(1), got(2))
	}
	r, err := Run(t.Context(), o)
	require.NoError(t, err)
	t.Logf("call %+v, alpha %+v, hop %+v, bandwidth %+v, reconfiguration %+v, r2 %.4f", *r.CallUS, *r.AlphaUS, *r.HopUS,
		*r.BandwidthGbps, *r.ReconfigUS, r.R2)
	for _, l := range append(r.Lines, r.Check) {
		t.Logf("%+v", l)
		if l.MeasuredUS <= 0 || l.PredictedUS <= 0 {
			t.Error("nothing was measured")
		}
	}
	if r.Ranks != 3 || r.BandwidthGbps.Value <= 0 || r.ReconfigUS.Value < 0 {
		t.Errorf("%+v", r)
	}
	for _, h := range f.Hosts {
		s, err := kernel.Load(kernel.NameOn(f, h.Name))
		require.NoError(t, err)
		if report, err := kernel.Inspect(s); err != nil || len(report.Problems) > 0 {
			t.Errorf("%s: %v %q", h.Name, err, report.Problems)
		}
	}
}

// fabricOnHosts returns a fabric on two hosts that is up and has agents, and its file.
func fabricOnHosts(t *testing.T) (*fabric.Fabric, string) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		require.NoError(t, err)
	}
	const mtu = 9000
	underlays := kerneltest.Hosts(t, 2, 1, mtu)
	var listeners [2]net.Listener
	for i := range listeners {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		must(err)
		listeners[i] = l
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "fabric.yaml")
	must(os.WriteFile(path, fmt.Appendf(nil, `version: 1
name: calH%d
hosts: [{name: h1, ranks: 2, address: "%s"}, {name: h2, ranks: 1, address: "%s"}]
forwarding: true
planes: [{name: p0, bandwidth: 1Gbps, ocs: o, interface: %s}]
ocs: [{name: o, driver: emulator, endpoint: "unix:%s/ocs.sock", reconfig: 2ms}]
`, os.Getpid(), listeners[0].Addr(), listeners[1].Addr(), kerneltest.Interface(0), dir), 0o600))
	f, err := fabric.Load(path)
	must(err)
	for i, h := range f.Hosts {
		t.Cleanup(func() {
			if _, err := kernel.Down(kernel.NameOn(f, h.Name), true); err != nil {
				t.Error(err)
			}
		})
		state, _, err := kernel.Up(f, kernel.Options{
			MTU: mtu, Overhead: ebpf.FrameOverhead, Host: h.Name, Underlay: underlays[i],
		})
		must(err)
		board, err := kernel.Open(state)
		must(err)
		t.Cleanup(func() { _ = board.Close() })
		server, err := agent.Serve(listeners[i], board, agent.TLS{})
		must(err)
		t.Cleanup(server.Close)
	}
	return f, path
}
