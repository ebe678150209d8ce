package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"lightpath/internal/assert"
	"lightpath/internal/files"
	"lightpath/internal/require"
	"lightpath/ocsctl/device"
	"lightpath/ocsctl/kernel"
	"lightpath/plans/circuit"
	"lightpath/plans/fabric"
)

// kernelFabric returns a fabric file of 4 ranks with a name of its own, and takes down what is built
// of it.
func kernelFabric(t *testing.T, driver, endpoint string) (file, name string) {
	t.Helper()
	name = fmt.Sprintf("test%d", os.Getpid())
	t.Cleanup(func() {
		if _, err := kernel.Down(name, true); err != nil && os.Geteuid() == 0 {
			t.Error(err)
		}
	})
	return write(t, "fabric.yaml", fmt.Sprintf(`
version: 1
name: %s
ranks: 4
planes: [{name: p0, bandwidth: 2Gbps, ocs: sw, interface: lp0, ports: {0: "1/5", 1: "2/6", 2: "3/7", 3: "4/8"}}]
ocs: [{name: sw, driver: %s, endpoint: "%s", reconfig: 1ms}]
`, name, driver, endpoint)), name
}

func TestFabricCommands(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: network namespaces and eBPF")
	}
	file, name := kernelFabric(t, "emulator", "unix:/nowhere")
	if out := succeed(t, "", "fabric", "up", "--fabric", file); !strings.Contains(out, name+": up: 4 ranks, 1 planes") {
		t.Errorf("up: %s", out)
	}
	if out := succeed(t, "", "fabric", "up", "--fabric", file); !strings.Contains(out, "nothing changed") {
		t.Errorf("up again: %s", out)
	}
	var s kernel.State
	if out := succeed(t, "", "fabric", "up", "--fabric", file, "--json"); json.Unmarshal([]byte(out), &s) != nil ||
		s.Name != name || s.Planes[0].Interface != "lp0" {
		t.Errorf("up --json: %s", out)
	}
	if out := succeed(t, "", "fabric", "status", "--fabric", file); !strings.Contains(out, "10.100.0.4") {
		t.Errorf("status: %s", out)
	}
	var r kernel.Report
	if out := succeed(t, "", "fabric", "status", "--name", name, "--json"); json.Unmarshal([]byte(out), &r) != nil ||
		r.Planes[0].Ports[3].To != circuit.Dark {
		t.Errorf("status --json: %s", out)
	}
	changed := write(t, "changed.yaml", strings.Replace(content(t, file), "1ms", "2ms", 1))
	for _, args := range [][]string{{"up", "--fabric", changed}, {"status", "--fabric", changed},
		{"up", "--fabric", file, "--mtu", "1500"}} {
		if o := command(t, "", append([]string{"fabric"}, args...)...); o.status != exitNo ||
			!strings.Contains(o.stderr, "down first") {
			t.Errorf("%v: %+v", args, o)
		}
	}
	if out := succeed(t, "", "fabric", "down", "--name", name); !strings.Contains(out, name+": down") {
		t.Errorf("down: %s", out)
	}
	if out := succeed(t, "", "fabric", "down", "--fabric", file, "--json"); !strings.Contains(out, `"removed":false`) &&
		!strings.Contains(out, `"removed": false`) {
		t.Errorf("down again: %s", out)
	}
	if o := command(t, "", "fabric", "status", "--name", name); o.status != exitNo ||
		!strings.Contains(o.stderr, "not up") {
		t.Errorf("status of nothing: %+v", o)
	}
}

func TestFabricRefuses(t *testing.T) {
	bare := write(t, "bare.yaml", "version: 1\nranks: 2\nplanes: [{name: p0, bandwidth: 1Gbps, ocs: o}]\nocs: "+
		"[{name: o, driver: emulator, reconfig: 1ms}]\n")
	for _, c := range []struct {
		says []string
		args []string
	}{
		{[]string{"--fabric is required"}, []string{"up"}},
		{[]string{"--fabric is required"}, []string{"down"}},
		{[]string{"--fabric and --name"}, []string{"status", "--fabric", bare, "--name", "x"}},
		{[]string{"no such file"}, []string{"up", "--fabric", filepath.Join(t.TempDir(), "none")}},
		{[]string{"mtu"}, []string{"up", "--fabric", bare, "--mtu", "much"}},
		{[]string{"--interface is required"}, []string{"lose", "--rate", "1%"}},
		{[]string{"--rate", `"101%"`}, []string{"lose", "--interface", "lo", "--rate", "101%"}},
		{[]string{"--rate", `""`}, []string{"lose", "--interface", "lo"}},
	} {
		refuse(t, "", c.says, append([]string{"fabric"}, c.args...)...)
	}
	if os.Geteuid() == 0 {
		refuse(t, "", []string{"plane p0: interface"}, "fabric", "up", "--fabric", bare)
		refuse(t, "", []string{"MTU 12"}, "fabric", "up", "--fabric", bare, "--mtu", "12")
	} else {
		refuse(t, "", []string{"root"}, "fabric", "up", "--fabric", bare)
	}
}

// Commands in every protocol move packets: tokens come out where the circuits lead.
func TestProtocolsMovePackets(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: network namespaces and eBPF")
	}
	listeners, err := listenAll([]string{"127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"})
	require.NoError(t, err)
	file, name := kernelFabric(t, "polatis-scpi", listeners[0].Addr().String())
	succeed(t, "", "fabric", "up", "--fabric", file)
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

	password, hosts := write(t, "password", "correct horse\n"), filepath.Join(t.TempDir(), "known_hosts")
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- emulate(ctx, d, listeners, emulateFlags{user: "operator", passwordFile: password, knownHosts: hosts})
	}()
	defer func() {
		cancel()
		assert.NoError(t, <-done)
	}()
	appears(t, hosts)
	s, err := kernel.Load(name)
	require.NoError(t, err)
	prober := kernel.NewProber(s)
	defer closing(t, prober.Close)
	for i, driver := range []string{"polatis-scpi", "gnmi", "netconf"} {
		protocol := write(t, driver+".yaml", strings.NewReplacer("polatis-scpi", driver, listeners[0].Addr().String(),
			listeners[i].Addr().String()).Replace(content(t, file)))
		succeed(t, "", "ocs", "set", "--fabric", protocol, "--plane", "p0", "--map", fmt.Sprintf("ring:%d", i+1), "--verify",
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
	if o := command(t, "", "ocs", "emulate", "--fabric", file, "--scpi", "127.0.0.1:0"); o.status != exitNo ||
		!strings.Contains(o.stderr, "another writer") {
		t.Errorf("a second writer: %+v", o)
	}
	if o := command(t, "", "fabric", "down", "--fabric", file); o.status != exitNo ||
		!strings.Contains(o.stderr, fmt.Sprint(os.Getpid())) {
		t.Errorf("down under a writer: %+v", o)
	}
}

// closing checks how something ends.
func closing(t *testing.T, f func() error) {
	t.Helper()
	assert.NoError(t, f())
}

// TestFabricsOfThisHost: fabrics are listed without a file, and those of processes that have ended
// are removed together. Other tests may have fabrics, and may remove what is left here too.
func TestFabricsOfThisHost(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: network namespaces and eBPF")
	}
	file, name := kernelFabric(t, "emulator", "unix:/nowhere")
	f, err := fabric.Load(file)
	require.NoError(t, err)
	_, down, err := kernel.Temporary(f, kernel.Options{})
	require.NoError(t, err)
	out := command(t, "", "fabric", "status")
	if !slices.ContainsFunc(strings.Split(out.stdout, "\n"), func(line string) bool {
		return strings.HasPrefix(line, name+" ") &&
			strings.HasSuffix(line, fmt.Sprintf("up, until process %d ends", os.Getpid()))
	}) {
		t.Errorf("%+v does not list %s", out, name)
	}
	succeed(t, "", "fabric", "down", "--left")
	if o := command(t, "", "fabric", "down", "--name", name); o.status != exitNo ||
		!strings.Contains(o.stderr, fmt.Sprintf("process %d", os.Getpid())) {
		t.Errorf("down while its owner lives: %+v", o)
	}
	succeed(t, "", "fabric", "status", "--name", name)
	require.NoError(t, down())

	succeed(t, "", "fabric", "up", "--fabric", file)
	owner := filepath.Join("/run/lightpath/fabric", name+".owner")
	require.NoError(t, files.Write(owner, []byte("4194303\n"), 0o600)) // without its lock
	if out = command(t, "", "fabric", "status"); strings.Contains(out.stdout, name) &&
		(out.status != exitNo || !strings.Contains(out.stdout, "left over: process 4194303 has ended") ||
			!strings.Contains(out.stderr, name)) {
		t.Errorf("%+v", out)
	}
	succeed(t, "", "fabric", "down", "--left")
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if command(t, "", "fabric", "status", "--name", name).status == exitNo {
			break
		}
	}
	if o := command(t, "", "fabric", "status", "--name", name); o.status != exitNo {
		t.Errorf("still there: %+v", o)
	}
	refuse(t, "", []string{"left", "name"}, "fabric", "down", "--left", "--name", name)
}
