package ocsd

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"lightpath/cmd/lightpath/cli"
	"lightpath/cmd/lightpath/cli/clitest"
	"lightpath/cmd/lightpath/cli/fabrictest"
	"lightpath/internal/assert"
	"lightpath/internal/await"
	"lightpath/internal/require"
	"lightpath/ocsctl"
	"lightpath/ocsctl/controller"
	"lightpath/ocsctl/controller/rpc"
	"lightpath/ocsctl/device"
	"lightpath/ocsctl/device/scpi"
	"lightpath/ocsctl/kernel"
	"lightpath/plans/circuit"
	"lightpath/plans/fabric"
	"lightpath/shim"
)

// Commands in every protocol move packets: tokens come out where the circuits lead.
func TestProtocolsMovePackets(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: network namespaces and eBPF")
	}
	listeners, err := listenAll([]string{"127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"})
	require.NoError(t, err)
	file, name := fabrictest.Kernel(t, "polatis-scpi", listeners[0].Addr().String())
	lightpath.Succeed(t, "", "fabric", "up", "--fabric", file)
	m, err := openMirrored(file, "")
	require.NoError(t, err)
	defer closing(t, m.board.Close)
	c := device.Config{Ports: 4}
	require.NoError(t, m.prepare(&c))
	d, err := device.New(c)
	require.NoError(t, err)
	defer d.Close()
	mirror, err := m.follow(d)
	require.NoError(t, err)
	defer closing(t, mirror.Close)

	password, hosts := clitest.Write(t, "password", "correct horse\n"), filepath.Join(t.TempDir(), "known_hosts")
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- emulate(ctx, d, listeners, emulateFlags{user: "operator", passwordFile: password, knownHosts: hosts})
	}()
	defer func() {
		cancel()
		assert.NoError(t, <-done)
	}()
	clitest.Appears(t, hosts)
	s, err := kernel.Load(name)
	require.NoError(t, err)
	prober := kernel.NewProber(s)
	defer closing(t, prober.Close)
	for i, driver := range []string{"polatis-scpi", "gnmi", "netconf"} {
		protocol := clitest.Write(t, driver+".yaml", strings.NewReplacer("polatis-scpi", driver, listeners[0].Addr().String(),
			listeners[i].Addr().String()).Replace(clitest.Content(t, file)))
		lightpath.Succeed(t, "", "ocs", "set", "--fabric", protocol, "--plane", "p0", "--map", fmt.Sprintf("ring:%d", i+1),
			"--verify",
			"status",
			"--user", "operator", "--password-file", password, "--known-hosts", hosts)
		for shift := 1; shift <= 3; shift++ {
			var ring []circuit.Pair
			for from, to := range circuit.Shift(4, shift) {
				ring = append(ring, circuit.Pair{From: from, To: to})
			}
			heard, err := prober.Probe(ctx, 0, ring)
			require.NoError(t, err)
			for r, ok := range heard {
				if ok != (shift == i+1) {
					t.Errorf("%s set ring:%d, and the token from %d to %d: %v", driver, i+1, r, ring[r].To, ok)
				}
			}
		}
	}
	if o := lightpath.Run(t, "", "ocs", "emulate", "--fabric", file, "--scpi", "127.0.0.1:0"); o.Status != cli.ExitNo ||
		!strings.Contains(o.Stderr, "another writer") {
		t.Errorf("a second writer: %+v", o)
	}
	if o := lightpath.Run(t, "", "fabric", "down", "--fabric", file); o.Status != cli.ExitNo ||
		!strings.Contains(o.Stderr, fmt.Sprint(os.Getpid())) {
		t.Errorf("down under a writer: %+v", o)
	}
}

// closing checks how something ends.
func closing(t *testing.T, f func() error) {
	t.Helper()
	assert.NoError(t, f())
}

// kernelSwitch builds a plane of three ranks in the kernel and serves the model of its switch by SCPI. It
// returns the model and the fabric file.
func kernelSwitch(t *testing.T) (*device.Device, string) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root: network namespaces and eBPF")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	fabric := filepath.Join(t.TempDir(), "fabric.yaml")
	text := fmt.Sprintf(`
version: 1
name: tok%d
ranks: 3
planes: [{name: p0, bandwidth: 500Mbps, ocs: sw, interface: p0, ports: {0: "1/5", 1: "2/6", 2: "3/7"}}]
ocs: [{name: sw, driver: polatis-scpi, endpoint: "%s", reconfig: 25ms}]
`, os.Getpid(), l.Addr())
	require.NoError(t, os.WriteFile(fabric, []byte(text), 0o600))
	lightpath.Succeed(t, "", "fabric", "up", "--fabric", fabric)
	t.Cleanup(func() { lightpath.Succeed(t, "", "fabric", "down", "--fabric", fabric) })
	planes, err := openMirrored(fabric, "sw")
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, planes.board.Close())
	})
	config := device.Config{Ports: 4}
	require.NoError(t, planes.prepare(&config))
	model, err := device.New(config)
	require.NoError(t, err)
	mirror, err := planes.follow(model)
	require.NoError(t, err)
	t.Cleanup(func() {
		model.Close()
		assert.NoError(t, mirror.Close())
	})
	await.Background(t, func(ctx context.Context) error { return scpi.Serve(ctx, l, model) })
	return model, fabric
}

// TestVerifyToken: a switch that is spoken to by SCPI moves packets, and tokens prove it.
func TestVerifyToken(t *testing.T) {
	_, fabric := kernelSwitch(t)
	for to, want := range map[string]int{"ring:1": 3, "ring:2": 3, "[0, 1, 2]": 3} {
		set := []string{"ocs", "set", "--fabric", fabric, "--plane", "p0", "--map", to, "--verify", "token"}
		if to[0] == '[' {
			set[7] = "-"
		}
		if out := lightpath.Succeed(t, to, set...); strings.Count(out, "verified by token: as intended") != want {
			t.Fatalf("%s: %s", to, out)
		}
	}
}

// TestRulesKeepNoSockets: the sockets that verify circuits by tokens end with the rule of a controller.
func TestRulesKeepNoSockets(t *testing.T) {
	_, path := kernelSwitch(t)
	f, err := fabric.Load(path)
	require.NoError(t, err)
	o := &fabric.OCSD{Name: "test", Switches: fabric.SwitchesConfig{Verify: "token"}}
	p := &realPlane{s: &service{o: o, f: f, log: slog.New(slog.DiscardHandler)}}
	sockets := func() (n int) {
		for fd := range 1024 {
			if domain, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN); err == nil && domain == unix.AF_PACKET {
				n++
			}
		}
		return n
	}
	before := sockets()
	core, err := p.build(controller.Config{Token: 1})
	require.NoError(t, err)
	assert.NoError(t, core.Set(0, circuit.Shift(3, 1), "ann"))
	core.Close()
	if during := sockets(); during == before {
		t.Error("no token was sent")
	}
	assert.NoError(t, p.close())
	if after := sockets(); after != before {
		t.Errorf("%d sockets, %d before", after, before)
	}
}

// TestOperatorMovesPackets: an operator's command goes through gRPC, the controller, SCPI and the switch to circuits in
// the kernel, and tokens prove them. If another writer changes the circuits, the operator sees it.
func TestOperatorMovesPackets(t *testing.T) {
	model, path := kernelSwitch(t)
	f, err := fabric.Load(path)
	require.NoError(t, err)
	prober, ok := kernel.ProberOf(f)
	if !ok {
		t.Fatal("the fabric is not up")
	}
	d, err := switchDevice(f, portsOf(f), fabric.SwitchesConfig{Verify: "token", DriftInterval: 50 * time.Millisecond}, prober, 1,
		nil)
	require.NoError(t, err)
	defer func() {
		assert.NoError(t, d.Close())
	}()
	core, err := controller.Start(controller.Config{Name: "test", Ports: 3, Planes: planeConfigs(f), Device: d, Token: 1,
		SettleTimeout: d.SettleWithin()})
	require.NoError(t, err)
	defer core.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server, err := rpc.Serve(l, rpc.ServerOptions{
		Controller: func() (controller.Controller, string) { return core, "" }, Ports: 3, Name: "test",
		DataPlane: ocsctl.DataNone,
		Version:   shim.Version, Planes: []ocsctl.PlaneInfo{{Name: "p0"}},
	})
	require.NoError(t, err)
	defer server.Close()
	ocs := func(args ...string) []string {
		return append([]string{"ocs", args[0], "--controller", l.Addr().String(), "--plane", "p0"}, args[1:]...)
	}
	if out := lightpath.Succeed(t, "", ocs("set", "--map", "ring:1")...); !strings.Contains(out,
		"resident at epoch 1, verified by token: 0>1 1>2 2>0") {
		t.Error(out)
	}
	require.NoError(t, model.Inject(device.Fault{Kind: device.ThirdParty, In: 0, Out: -1}))
	deadline := time.Now().Add(30 * time.Second)
	for o := lightpath.Run(t, "", ocs("drift")...); !strings.Contains(o.Stdout,
		"0: desired 1, observed dark"); o = lightpath.Run(t,
		"", ocs("drift")...) {
		if time.Now().After(deadline) {
			t.Fatalf("drift is not found: %+v", o)
		}
		time.Sleep(20 * time.Millisecond)
	}
	if o := lightpath.Run(t, "", ocs("enable")...); o.Status != cli.ExitNo || !strings.Contains(o.Stderr, "drift") {
		t.Errorf("a drifted plane is enabled: %+v", o)
	}
	if out := lightpath.Succeed(t, "", ocs("set", "--map", "ring:1")...); !strings.Contains(out,
		"resident at epoch 2, verified by token") {
		t.Error(out)
	}
}
