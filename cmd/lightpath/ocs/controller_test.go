package ocs

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"lightpath/cmd/lightpath/cli"
	"lightpath/cmd/lightpath/cli/clitest"
	"lightpath/internal/assert"
	"lightpath/internal/require"
	"lightpath/ocsctl"
	"lightpath/ocsctl/controller"
	"lightpath/ocsctl/controller/controllertest"
	"lightpath/ocsctl/controller/rpc"
	"lightpath/shim"
)

// startController serves the core of two planes of 4 ports, as o says, and returns its address.
func startController(t *testing.T, d *controllertest.Panel, o rpc.ServerOptions) (*controller.Core, string) {
	t.Helper()
	return controllerOf(t, d, o, "p0", "p1")
}

// controllerOf serves the core of planes of 4 ports with these names.
func controllerOf(t *testing.T, d *controllertest.Panel, o rpc.ServerOptions,
	planes ...string) (*controller.Core, string) {
	t.Helper()
	config := controller.Config{Name: "test", Ports: 4, Device: d, Token: 5}
	for _, name := range planes {
		config.Planes = append(config.Planes, controller.PlaneConfig{Name: name, BandwidthBitsPerSec: 2e9,
			Reconfig: time.Millisecond})
		o.Planes = append(o.Planes, ocsctl.PlaneInfo{Name: name})
	}
	core, err := controller.Start(config)
	require.NoError(t, err)
	t.Cleanup(core.Close)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	o.Ports, o.Name, o.DataPlane, o.Version = 4, "test", ocsctl.DataNone, shim.Version
	o.Controller = func() (controller.Controller, string) { return core, "" }
	s, err := rpc.Serve(l, o)
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return core, l.Addr().String()
}

func TestOCSThroughController(t *testing.T) {
	d := controllertest.NewPanel(4, 2)
	core, address := startController(t, d, rpc.ServerOptions{})
	fabric := filepath.Join(t.TempDir(), "fabric.yaml")
	text := fmt.Sprintf(`
version: 1
ranks: 4
planes:
  - {name: p0, bandwidth: 2Gbps, ocs: sw, ports: {0: "1", 1: "2", 2: "3", 3: "4"}}
  - {name: p1, bandwidth: 2Gbps, ocs: sw, ports: {0: "5", 1: "6", 2: "7", 3: "8"}}
ocs:
  - {name: sw, driver: polatis-scpi, endpoint: "127.0.0.1:1", reconfig: 25ms}
controller: {endpoints: ["unix:/nowhere.sock", "%s"]}
`, address)
	require.NoError(t, os.WriteFile(fabric, []byte(text), 0o600))
	refused := func(words []string, args ...string) {
		t.Helper()
		o := lightpath.Run(t, "", args...)
		if o.Status != cli.ExitNo {
			t.Errorf("%v: status %d", args, o.Status)
		}
		assert.Contains(t, o.Stderr, words...)
	}
	for _, where := range [][]string{{"--controller", address}, {"--fabric", fabric}} {
		at := func(args ...string) []string { return append(append([]string{"ocs"}, args...), where...) }
		lightpath.Succeed(t, "", at("set", "--plane", "p1", "--map", "dark")...)
		out := lightpath.Succeed(t, "", at("set", "--plane", "p1", "--map", "ring:1")...)
		assert.Contains(t, out, "+ 3>0", "plane p1: resident at epoch", ": 0>1 1>2 2>3 3>0")
		assert.Contains(t, lightpath.Succeed(t, "", at("status")...), "controller test, token 5",
			"plane p0: resident, epoch 0",
			"circuits: 0>1 1>2 2>3 3>0")
		assert.Contains(t, lightpath.Succeed(t, "", at("drift")...), "plane p0: no drift", "plane p1: no drift")

		var r commandReport
		if err := json.Unmarshal([]byte(lightpath.Succeed(t, "", at("disable", "--plane", "1", "--reason", "cleaning",
			"--json")...)),
			&r); err != nil || r.State != controller.Down || r.Plane != "p1" {
			t.Errorf("%v: %+v", err, r)
		}
		refused([]string{"plane p1", "cleaning"}, at("status")...)
		if o := lightpath.Run(t, "", at("status", "--plane", "p0")...); o.Status != 0 {
			t.Errorf("the other plane: %+v", o)
		}
		assert.Contains(t, lightpath.Succeed(t, "", at("enable", "--plane", "p1")...), "plane p1: resident")

		d.Stick(true)
		refused([]string{"set", "plane p1"}, at("set", "--plane", "p1", "--map", "ring:2")...)
		refused([]string{"plane p1 is out of service"}, at("status")...)
		refused([]string{"enable", "plane p1", "drift of 4 circuits"}, at("enable", "--plane", "p1")...)
		refused([]string{"plane p1: 4 of 4 ranks"}, at("drift")...)
		assert.Contains(t, lightpath.Run(t, "", at("drift", "--plane", "p1")...).Stdout, "0: desired 2, observed 1",
			"plane p1: out of service")
		d.Silence(true)
		assert.Contains(t, lightpath.Run(t, "", at("status")...).Stdout, "circuits: unknown", "desired: 0>2 1>3 2>0 3>1")
		refused([]string{"plane p1: its map is unknown"}, at("drift")...)
		d.Silence(false)
		d.Stick(false)
		lightpath.Succeed(t, "", at("set", "--plane", "p1", "--map", "ring:1")...)
		lightpath.Succeed(t, "", at("status")...)
	}
	var s controller.Snapshot
	if err := json.Unmarshal([]byte(lightpath.Succeed(t, "", "ocs", "status", "--controller", address, "--json")),
		&s); err != nil ||
		len(s.Planes) != 2 || !s.Leader {
		t.Errorf("%v: %+v", err, s)
	}
	c, err := rpc.Dial(t.Context(), []string{address}, 2, rpc.Options{})
	require.NoError(t, err)
	defer cli.HangUp(c)
	if _, err := c.Acquire(ocsctl.Lease{Mask: 1, Holder: 255}); err != nil {
		t.Fatal(err)
	}
	assert.Contains(t, lightpath.Succeed(t, "", "ocs", "status", "--controller", address),
		"held by port 2, holder 0xff",
		"port 2: grpc 127.0.0.1:")
	refused([]string{"plane is in use"}, "ocs", "set", "--controller", address, "--plane", "p0", "--map", "ring:1")

	for _, c := range []struct{ args, words []string }{
		{[]string{"set", "--controller", address, "--map", "ring:1"}, []string{"--plane"}},
		{[]string{"set", "--controller", address, "--plane", "p9", "--map", "ring:1"}, []string{"--plane", "p9"}},
		{[]string{"set", "--controller", address, "--plane", "p1", "--map", "xor:9x"}, []string{"--map"}},
		{[]string{"set", "--controller", address, "--plane", "p1", "--map", "ring:1", "--token", "3"}, []string{"--token"}},
		{[]string{"set", "--controller", address, "--direct", "--plane", "p1", "--map", "ring:1"}, []string{"--direct"}},
		{[]string{"drift", "--controller", address, "--map", "ring:1"}, []string{"--map"}},
		{[]string{"status", "--controller", "10.0.0.1:7443"}, []string{"10.0.0.1:7443", "ca, cert and key"}},
		{[]string{"status", "--controller", "nonsense"}, []string{"nonsense", "host:port"}},
		{[]string{"status"}, []string{"--controller"}},
		{[]string{"enable", "--plane", "p0"}, []string{"--controller"}},
		{[]string{"disable", "--controller", address, "--plane", "p0"}, []string{"--reason"}},
		{[]string{"certs", "--dir", t.TempDir()}, []string{"--host"}},
		{[]string{"certs", "--host", "h"}, []string{"--dir"}},
	} {
		lightpath.Refuse(t, "", c.words, append([]string{"ocs"}, c.args...)...)
	}
	core.Resign(controller.ErrNotLeader)
	refused([]string{"127.0.0.1:1: ", "refused", "lightpath ocsd"}, "ocs", "status", "--controller", "127.0.0.1:1")
}

func TestOCSCerts(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "lab")
	out := lightpath.Succeed(t, "", "ocs", "certs", "--dir", dir, "--host", "127.0.0.1,ocs.example")
	for _, w := range []string{"for a lab", "ca.key", `endpoints: ["127.0.0.1:7443"]`} {
		if !strings.Contains(out, w) {
			t.Errorf("no %q in %s", w, out)
		}
	}
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 12 {
		t.Fatalf("%d files: %v", len(files), err)
	}
	for _, f := range files {
		if info, err := f.Info(); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v %v", f.Name(), info.Mode(), err)
		}
	}
	before := clitest.Content(t, filepath.Join(dir, "rank.key"))
	lightpath.Refuse(t, "", []string{"--dir", "is there already"}, "ocs", "certs", "--dir", dir, "--host", "h")
	if clitest.Content(t, filepath.Join(dir, "rank.key")) != before {
		t.Error("overwritten")
	}
	file := func(name string) string { return filepath.Join(dir, name) }
	_, address := startController(t, controllertest.NewPanel(4, 2),
		rpc.ServerOptions{CA: file("ca.pem"), Cert: file("controller.pem"), Key: file("controller.key")})
	as := func(who string) []string {
		return []string{"--controller", address, "--ca", file("ca.pem"), "--cert", file(who + ".pem"), "--key",
			file(who + ".key")}
	}
	lightpath.Succeed(t, "", append([]string{"ocs", "status"}, as("operator")...)...)
	if o := lightpath.Run(t, "", append([]string{"ocs", "status"}, as("rank")...)...); o.Status != cli.ExitNo ||
		!strings.Contains(o.Stderr, "not allowed") {
		t.Errorf("a rank operates: %+v", o)
	}
	c, err := rpc.Dial(t.Context(), []string{address}, 0, rpc.Options{CA: file("ca.pem"), Cert: file("rank.pem"),
		Key: file("rank.key")})
	require.NoError(t, err)
	cli.HangUp(c)
}
