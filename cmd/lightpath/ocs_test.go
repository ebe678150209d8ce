package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lightpath/internal/assert"
	"lightpath/internal/require"
	"lightpath/ocsctl/device"
	"lightpath/ocsctl/device/scpi"
	"lightpath/plans/circuit"
)

// switchFabric serves the model of a switch with 8 ports, and writes a fabric file with two planes of
// 4 ranks on it.
func switchFabric(t *testing.T) (*device.Device, string) {
	t.Helper()
	d, err := device.New(device.Config{Ports: 8, Preset: "rotor-20us"})
	require.NoError(t, err)
	d.SetAveraging(0)
	listeners, err := listenAll([]string{"127.0.0.1:0"})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- scpi.Serve(ctx, listeners[0], d) }()
	t.Cleanup(func() {
		cancel()
		d.Close()
		assert.NoError(t, <-done)
	})
	path := filepath.Join(t.TempDir(), "fabric.yaml")
	text := fmt.Sprintf(`
version: 1
ranks: 4
planes:
  - {name: p0, bandwidth: 2Gbps, ocs: sw, ports: {0: "1", 1: "2", 2: "3", 3: "4"}}
  - {name: p1, bandwidth: 2Gbps, ocs: sw, ports: {0: "5/13", 1: "6/14", 2: "7/15", 3: "8/16"}}
ocs:
  - {name: sw, driver: polatis-scpi, endpoint: "%s", reconfig: 25ms}
`, listeners[0].Addr())
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return d, path
}

// TestOCSInTheDark: what speaks to a switch without a controller means the same by verified as a controller
// does. A set fails for as long as a circuit has no light, however often it is tried, and so does status.
func TestOCSInTheDark(t *testing.T) {
	d, fabric := switchFabric(t)
	at := func(args ...string) []string { return append(args, "--fabric", fabric, "--plane", "p0") }
	set := at("ocs", "set", "--map", "ring:1")
	says := func(out string, words ...string) {
		t.Helper()
		for _, w := range words {
			if !strings.Contains(out, w) {
				t.Errorf("no %q in %s", w, out)
			}
		}
	}
	says(succeed(t, "", set...), "0 circuits to remove, 4 to make", "plane p0: 0>1 1>2 2>3 3>0, verified by light")
	says(succeed(t, "", set...), "0 circuits to remove, 0 to make", "plane p0: 0>1 1>2 2>3 3>0, verified by light")
	says(succeed(t, "", at("ocs", "status")...), "circuits: 0>1 1>2 2>3 3>0, verified by light")
	require.NoError(t, d.Inject(device.Fault{Kind: device.LostLight, In: -1, Out: 3}))
	for range 2 {
		o := command(t, "", at("ocs", "status")...)
		says(o.stdout, "-60.00 dBm", "problem: the circuit 2>3, port 12: no light: -60.00 dBm")
		says(o.stderr, "no light")
		if o.status != exitNo || strings.Contains(o.stdout, "verified") {
			t.Errorf("status: %d, %s", o.status, o.stdout)
		}
		o = command(t, "", set...)
		says(o.stdout, "0 circuits to remove, 0 to make, 1 to make again", "* 2>3", "NOT as intended: no light: -60.00 dBm")
		says(o.stderr, "circuits are not as intended", "no light")
		if o.status != exitNo || strings.Contains(o.stdout+o.stderr, "verified") {
			t.Errorf("set: %d, %s", o.status, o.stdout)
		}
		o = command(t, "", append(set, "--json")...)
		if o.status != exitNo || strings.Contains(o.stdout, `"verified": "light",`+"\n  \"error\"") ||
			!strings.Contains(o.stdout, `"error"`) {
			t.Errorf("set --json: %d, %s", o.status, o.stdout)
		}
	}
	fewer := write(t, "map.json", "[-1, 2, 3, -1]")
	if o := command(t, "", at("ocs", "set", "--map", fewer)...); o.status != exitNo {
		t.Errorf("a set that only removes, and keeps a dark circuit: %d, %s", o.status, o.stdout)
	}
	require.NoError(t, d.Inject(device.Fault{Kind: device.Clear}))
	says(succeed(t, "", set...), "verified by light")
	succeed(t, "", at("ocs", "status")...)
}

func TestOCSSetStatusDrift(t *testing.T) {
	d, fabric := switchFabric(t)
	out := succeed(t, "", "ocs", "set", "--fabric", fabric, "--plane", "p0", "--map", "ring:1")
	for _, s := range []string{"0 circuits to remove, 4 to make", "+ 3>0",
		"0: intended 1, accepted true, observed 1, verified by light: as intended"} {
		if !strings.Contains(out, s) {
			t.Errorf("no %q in %s", s, out)
		}
	}
	succeed(t, "[1, 0, -1, 2]", "ocs", "set", "--fabric", fabric, "--plane", "1", "--map", "-", "--verify", "status")
	if got := d.Map(); !got.Equal(circuit.Permutation{1, 2, 3, 0, 5, 4, -1, 6}) {
		t.Fatalf("the switch has %v", got)
	}
	var report setReport
	text := succeed(t, "", "ocs", "set", "--fabric", fabric, "--plane", "p0", "--map", "xor:1", "--json")
	if err := json.Unmarshal([]byte(text), &report); err != nil || len(report.Circuits) != 4 ||
		report.Add[0] != [2]int{1, 0} || report.Before[3] != 0 {
		t.Errorf("%v in %s", err, text)
	}
	if out := succeed(t, "", "ocs", "status", "--fabric", fabric); !strings.Contains(out,
		"plane p0: switch sw, driver polatis-scpi, Rotor R-8x8") ||
		!strings.Contains(out, "circuits: 0>1 1>0 2>3 3>2") || !strings.Contains(out, "port 13       ENABLED") {
		t.Errorf("status: %s", out)
	}
	var all []planeStatus
	text = succeed(t, "", "ocs", "status", "--fabric", fabric, "--json", "--plane", "p1")
	if err := json.Unmarshal([]byte(text), &all); err != nil || len(all) != 1 || len(all[0].Ports) != 8 ||
		!all[0].Map.Equal(circuit.Permutation{1, 0, -1, 2}) {
		t.Errorf("%v in %s", err, text)
	}
	succeed(t, "", "ocs", "drift", "--fabric", fabric, "--plane", "p0", "--map", "xor:1")
	require.NoError(t, d.Inject(device.Fault{Kind: device.ThirdParty, In: 0, Out: -1}))
	o := command(t, "", "ocs", "drift", "--fabric", fabric, "--plane", "p0", "--map", "xor:1")
	if o.status != exitNo || !strings.Contains(o.stdout, "0: desired 1, observed dark") ||
		!strings.Contains(o.stderr, "1 of 4 ranks") {
		t.Errorf("drift: %+v", o)
	}
	var drift driftReport
	o = command(t, "", "ocs", "drift", "--fabric", fabric, "--plane", "p0", "--map", "xor:1", "--json")
	if err := json.Unmarshal([]byte(o.stdout), &drift); err != nil || o.status != exitNo || len(drift.Drifted) != 1 ||
		drift.Drifted[0] != 0 {
		t.Errorf("drift: %+v", o)
	}
}

// TestOCSBadSwitch: a circuit that is not as intended, a failed port and a switch that is not there
// end with 1.
func TestOCSBadSwitch(t *testing.T) {
	d, fabric := switchFabric(t)
	require.NoError(t, d.Inject(device.Fault{Kind: device.StuckMirror, In: 2, Out: -1}))
	o := command(t, "", "ocs", "set", "--fabric", fabric, "--plane", "p0", "--map", "ring:1")
	if o.status != exitNo || !strings.Contains(o.stdout,
		"2: intended 3, accepted true, observed 3, known by read-back: NOT as intended") ||
		!strings.Contains(o.stdout, "1: intended 2, accepted true, observed 2, known by light: as intended") {
		t.Errorf("set: %+v", o)
	}
	if o = command(t, "", "ocs", "status", "--fabric", fabric); o.status != exitNo ||
		!strings.Contains(o.stdout, "port 3        FAILED") {
		t.Errorf("status: %+v", o)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	l.Close()
	text := strings.Replace(content(t, fabric), `endpoint: "`, fmt.Sprintf(`endpoint: "%s" #`, l.Addr()), 1)
	text = strings.Replace(text, "reconfig: 25ms}", "", 1) + "\n    , reconfig: 25ms}\n"
	require.NoError(t, os.WriteFile(fabric, []byte(text), 0o600))
	if o = command(t, "", "ocs", "set", "--fabric", fabric, "--plane", "p0", "--map", "dark"); o.status != exitNo ||
		strings.Count(o.stderr, "\n") != 1 {
		t.Errorf("set without a switch: %+v", o)
	}
	if o = command(t, "", "ocs", "status", "--fabric", fabric); o.status != exitNo ||
		!strings.Contains(o.stdout, "problem: scpi:") {
		t.Errorf("status without a switch: %+v", o)
	}
}

func TestOCSRefuses(t *testing.T) {
	_, fabric := switchFabric(t)
	emulated := filepath.Join(t.TempDir(), "emulated.yaml")
	require.NoError(t, os.WriteFile(emulated, []byte(`
version: 1
ranks: 2
planes: [{name: p0, bandwidth: 2Gbps, ocs: sw}]
ocs: [{name: sw, driver: emulator, reconfig: 1ms}]
`), 0o600))
	remote := filepath.Join(t.TempDir(), "remote.yaml")
	require.NoError(t, os.WriteFile(remote, []byte(`
version: 1
ranks: 2
planes: [{name: p0, bandwidth: 2Gbps, ocs: sw, ports: {0: "1", 1: "2/4"}}]
ocs: [{name: sw, driver: polatis-scpi, endpoint: "192.0.2.1:5025", reconfig: 1ms}]
`), 0o600))
	for _, c := range []struct {
		says []string
		args []string
	}{
		{[]string{"--fabric"}, []string{"status"}},
		{[]string{"--plane", "p9"}, []string{"status", "--fabric", fabric, "--plane", "p9"}},
		{[]string{"emulates", "--controller HOST:PORT", "controller.endpoints"}, []string{"status", "--fabric", emulated}},
		{[]string{"--plane is required"}, []string{"set", "--fabric", fabric, "--map", "ring:1"}},
		{[]string{"--map is required"}, []string{"set", "--fabric", fabric, "--plane", "p0"}},
		{[]string{"ring:x"}, []string{"set", "--fabric", fabric, "--plane", "p0", "--map", "ring:x"}},
		{[]string{"--verify"}, []string{"set", "--fabric", fabric, "--plane", "p0", "--map", "dark", "--verify", "prayer"}},
		{[]string{"already receives"}, []string{"set", "--fabric", fabric, "--plane", "p0", "--map", "-"}},
		{[]string{"no such file"}, []string{"drift", "--fabric", fabric, "--plane", "p0", "--map", "nowhere.json"}},
		{[]string{"nothing to serve"}, []string{"emulate"}},
		{[]string{"this host"}, []string{"emulate", "--scpi", "0.0.0.0:0"}},
		{[]string{"preset"}, []string{"emulate", "--scpi", "127.0.0.1:0", "--preset", "magic"}},
		{[]string{"cold-boot"}, []string{"emulate", "--scpi", "127.0.0.1:0", "--cold-boot", "hot"}},
		{[]string{"fault script"}, []string{"emulate", "--scpi", "127.0.0.1:0", "--faults", "-"}},
	} {
		refuse(t, "[1, 1, 2, 3]", c.says, append([]string{"ocs"}, c.args...)...)
	}
	if o := command(t, "", "ocs", "set", "--fabric", remote, "--plane", "p0", "--map", "dark"); o.status != exitNo ||
		!strings.Contains(o.stderr, "in/out") {
		t.Errorf("mixed labels: %+v", o)
	}
}

// TestOCSEmulate sets a circuit of one model by the driver of each protocol; the other drivers see it.
func TestOCSEmulate(t *testing.T) {
	d, err := device.New(device.Config{Ports: 4, Preset: "rotor-20us"})
	require.NoError(t, err)
	defer d.Close()
	dir := t.TempDir()
	password, hosts := filepath.Join(dir, "password"), filepath.Join(dir, "known_hosts")
	require.NoError(t, os.WriteFile(password, []byte("correct horse\n"), 0o600))
	addresses := make([]string, len(deviceServers))
	for i := range addresses {
		addresses[i] = "127.0.0.1:0"
	}
	listeners, err := listenAll(addresses)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- emulate(ctx, d, listeners, emulateFlags{user: "operator", passwordFile: password, knownHosts: hosts})
	}()
	appears(t, hosts)
	fabrics := make(map[string]string)
	for i, name := range []string{"polatis-scpi", "gnmi", "netconf"} {
		fabrics[name] = filepath.Join(dir, name+".yaml")
		text := fmt.Sprintf(`
version: 1
ranks: 4
planes: [{name: p0, bandwidth: 2Gbps, ocs: sw, ports: {0: "1/5", 1: "2/6", 2: "3/7", 3: "4/8"}}]
ocs: [{name: sw, driver: %s, endpoint: "%s", reconfig: 25ms}]
`, name, listeners[i].Addr())
		require.NoError(t, os.WriteFile(fabrics[name], []byte(text), 0o600))
	}
	login := []string{"--user", "operator", "--password-file", password, "--known-hosts", hosts}
	shift := 0
	for setter := range fabrics {
		shift++
		ring := fmt.Sprintf("ring:%d", shift)
		succeed(t, "", append([]string{"ocs", "set", "--fabric", fabrics[setter], "--plane", "p0", "--map", ring, "--verify",
			"status"}, login...)...)
		if got := d.Map(); !got.Equal(circuit.Shift(4, shift)) {
			t.Errorf("%s set %s, and the switch has %v", setter, ring, got)
		}
		for reader := range fabrics {
			succeed(t, "", append([]string{"ocs", "drift", "--fabric", fabrics[reader], "--plane", "p0", "--map", ring},
				login...)...)
		}
	}
	cancel()
	assert.NoError(t, <-done)
}

// TestMapInWordsOfTheFile gives a map that is no list of numbers: the error names no type of Go.
func TestMapInWordsOfTheFile(t *testing.T) {
	_, fabric := switchFabric(t)
	for text, want := range map[string]string{
		`{"0": 1}`: "want a list, not an object", `[0, "1"]`: "want a whole number, not text",
		`[0, 1.5]`: "want a whole number, not 1.5",
		``:         "no text",
	} {
		refuse(t, text, []string{"--map -: " + want}, "ocs", "set", "--fabric", fabric, "--plane", "p0", "--map", "-")
	}
}
