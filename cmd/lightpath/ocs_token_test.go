package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"lightpath/internal/assert"
	"lightpath/internal/require"
	"lightpath/ocsctl"
	"lightpath/ocsctl/controller"
	"lightpath/ocsctl/controller/rpc"
	"lightpath/ocsctl/device"
	"lightpath/ocsctl/device/scpi"
	"lightpath/ocsctl/driver"
	"lightpath/plans/circuit"
	"lightpath/plans/fabric"
	"lightpath/shim"
)

// tokens is a prober of which the token of one port is lost.
type tokens struct {
	lost int
	err  error
	sent []circuit.Pair
}

func (p *tokens) Probe(_ context.Context, _ int, circuits []circuit.Pair) ([]bool, error) {
	p.sent = circuits
	through := make([]bool, len(circuits))
	for i, c := range circuits {
		through[i] = c.From != p.lost
	}
	return through, p.err
}

func TestProve(t *testing.T) {
	verdicts := func() []driver.Circuit {
		return []driver.Circuit{
			{In: 0, Intended: 1, Observed: 1, Accepted: true, Verified: driver.Light},
			{In: 2, Intended: circuit.Dark, Observed: circuit.Dark, Accepted: true, Verified: driver.ReadBack},
			{In: 3, Intended: 0, Observed: 0, Accepted: true, Verified: driver.Light},
		}
	}
	known := driver.NewKnown(4, driver.Rule{})
	p := &tokens{lost: -1}
	all := verdicts()
	if err := prove(t.Context(), p, 0, all, known); err != nil || len(p.sent) != 2 || all[0].Verified != driver.Token ||
		all[1].Verified != driver.ReadBack || all[2].Verified != driver.Token {
		t.Errorf("%v, %+v, sent %v", err, all, p.sent)
	}
	p, all = &tokens{lost: 3}, verdicts()
	if err := prove(t.Context(), p, 0, all, known); !errors.Is(err, driver.ErrNotAsIntended) ||
		all[0].Verified != driver.Token || all[2].Reason == "" || all[2].Verified != driver.Light {
		t.Errorf("%v, %+v", err, all)
	}
	p, all = &tokens{err: errors.New("no interface")}, verdicts()
	if err := prove(t.Context(), p, 0, all, known); !errors.Is(err, p.err) {
		t.Error(err)
	}
	if err := prove(t.Context(), p, 0, all[1:2], known); err != nil {
		t.Errorf("nothing was made: %v", err)
	}
}

// TestVerifyTokenRefused: without interfaces nothing is changed.
func TestVerifyTokenRefused(t *testing.T) {
	d, fabric := switchFabric(t)
	refuse(t, "", []string{"--verify token", "not up on this host"}, "ocs", "set", "--fabric", fabric, "--plane", "p0",
		"--map", "ring:1", "--verify", "token")
	if d.Revision() != 0 {
		t.Error("the switch was changed")
	}
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
	succeed(t, "", "fabric", "up", "--fabric", fabric)
	t.Cleanup(func() { succeed(t, "", "fabric", "down", "--fabric", fabric) })
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
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- scpi.Serve(ctx, l, model) }()
	t.Cleanup(func() {
		cancel()
		model.Close()
		assert.NoError(t, errors.Join(<-done, mirror.Close()))
	})
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
		if out := succeed(t, to, set...); strings.Count(out, "verified by token: as intended") != want {
			t.Fatalf("%s: %s", to, out)
		}
	}
}

// TestOperatorMovesPackets: an operator's command goes through gRPC, the controller, SCPI and the switch to circuits in
// the kernel, and tokens prove them. If another writer changes the circuits, the operator sees it.
func TestOperatorMovesPackets(t *testing.T) {
	model, path := kernelSwitch(t)
	f, err := fabric.Load(path)
	require.NoError(t, err)
	d, err := switchDevice(f, nil, fabric.SwitchesConfig{Verify: "token", DriftInterval: 50 * time.Millisecond},
		tokenProber(f),
		1, nil)
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
	if out := succeed(t, "", ocs("set", "--map", "ring:1")...); !strings.Contains(out,
		"resident at epoch 1, verified by token: 0>1 1>2 2>0") {
		t.Error(out)
	}
	require.NoError(t, model.Inject(device.Fault{Kind: device.ThirdParty, In: 0, Out: -1}))
	deadline := time.Now().Add(30 * time.Second)
	for o := command(t, "", ocs("drift")...); !strings.Contains(o.stdout, "0: desired 1, observed dark"); o = command(t,
		"", ocs("drift")...) {
		if time.Now().After(deadline) {
			t.Fatalf("drift is not found: %+v", o)
		}
		time.Sleep(20 * time.Millisecond)
	}
	if o := command(t, "", ocs("enable")...); o.status != exitNo || !strings.Contains(o.stderr, "drift") {
		t.Errorf("a drifted plane is enabled: %+v", o)
	}
	if out := succeed(t, "", ocs("set", "--map", "ring:1")...); !strings.Contains(out,
		"resident at epoch 2, verified by token") {
		t.Error(out)
	}
}
