package ocs

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lightpath/cmd/lightpath/cli"
	"lightpath/cmd/lightpath/cli/clitest"
	"lightpath/cmd/lightpath/cli/fabrictest"
	"lightpath/cmd/lightpath/topology"
	"lightpath/internal/assert"
	"lightpath/internal/require"
	"lightpath/ocsctl/device"
	"lightpath/plans/circuit"
)

// lightpath is the commands of this room, and those whose steps they carry out.
var lightpath = clitest.Of(New, NewJobs, topology.New)

// TestOCSInTheDark: what speaks to a switch without a controller means the same by verified as a controller
// does. A set fails for as long as a circuit has no light, however often it is tried, and so does status.
func TestOCSInTheDark(t *testing.T) {
	d, fabric := fabrictest.Switch(t)
	at := func(args ...string) []string { return append(args, "--fabric", fabric, "--plane", "p0") }
	set := at("ocs", "set", "--map", "ring:1")
	assert.Contains(t, lightpath.Succeed(t, "", set...), "0 circuits to remove, 4 to make",
		"plane p0: 0>1 1>2 2>3 3>0, verified by light")
	assert.Contains(t, lightpath.Succeed(t, "", set...), "0 circuits to remove, 0 to make",
		"plane p0: 0>1 1>2 2>3 3>0, verified by light")
	assert.Contains(t, lightpath.Succeed(t, "", at("ocs", "status")...), "circuits: 0>1 1>2 2>3 3>0, verified by light")
	require.NoError(t, d.Inject(device.Fault{Kind: device.LostLight, In: -1, Out: 3}))
	for range 2 {
		o := lightpath.Run(t, "", at("ocs", "status")...)
		assert.Contains(t, o.Stdout, "-60.00 dBm", "problem: the circuit 2>3, port 12: no light: -60.00 dBm")
		assert.Contains(t, o.Stderr, "no light")
		if o.Status != cli.ExitNo || strings.Contains(o.Stdout, "verified") {
			t.Errorf("status: %d, %s", o.Status, o.Stdout)
		}
		o = lightpath.Run(t, "", set...)
		assert.Contains(t, o.Stdout, "0 circuits to remove, 0 to make, 1 to make again", "* 2>3",
			"NOT as intended: no light: -60.00 dBm")
		assert.Contains(t, o.Stderr, "circuits are not as intended", "no light")
		if o.Status != cli.ExitNo || strings.Contains(o.Stdout+o.Stderr, "verified") {
			t.Errorf("set: %d, %s", o.Status, o.Stdout)
		}
		o = lightpath.Run(t, "", append(set, "--json")...)
		if o.Status != cli.ExitNo || strings.Contains(o.Stdout, `"verified": "light",`+"\n  \"error\"") ||
			!strings.Contains(o.Stdout, `"error"`) {
			t.Errorf("set --json: %d, %s", o.Status, o.Stdout)
		}
	}
	fewer := clitest.Write(t, "map.json", "[-1, 2, 3, -1]")
	if o := lightpath.Run(t, "", at("ocs", "set", "--map", fewer)...); o.Status != cli.ExitNo {
		t.Errorf("a set that only removes, and keeps a dark circuit: %d, %s", o.Status, o.Stdout)
	}
	require.NoError(t, d.Inject(device.Fault{Kind: device.Clear}))
	assert.Contains(t, lightpath.Succeed(t, "", set...), "verified by light")
	lightpath.Succeed(t, "", at("ocs", "status")...)
}

func TestOCSSetStatusDrift(t *testing.T) {
	d, fabric := fabrictest.Switch(t)
	out := lightpath.Succeed(t, "", "ocs", "set", "--fabric", fabric, "--plane", "p0", "--map", "ring:1")
	for _, s := range []string{"0 circuits to remove, 4 to make", "+ 3>0",
		"0: intended 1, accepted true, observed 1, verified by light: as intended"} {
		if !strings.Contains(out, s) {
			t.Errorf("no %q in %s", s, out)
		}
	}
	lightpath.Succeed(t, "[1, 0, -1, 2]", "ocs", "set", "--fabric", fabric, "--plane", "1", "--map", "-", "--verify",
		"status")
	if got := d.Map(); !got.Equal(circuit.Permutation{1, 2, 3, 0, 5, 4, -1, 6}) {
		t.Fatalf("the switch has %v", got)
	}
	var report setReport
	text := lightpath.Succeed(t, "", "ocs", "set", "--fabric", fabric, "--plane", "p0", "--map", "xor:1", "--json")
	if err := json.Unmarshal([]byte(text), &report); err != nil || len(report.Circuits) != 4 ||
		report.Add[0] != [2]int{1, 0} || report.Before[3] != 0 {
		t.Errorf("%v in %s", err, text)
	}
	if out := lightpath.Succeed(t, "", "ocs", "status", "--fabric", fabric); !strings.Contains(out,
		"plane p0: switch sw, driver polatis-scpi, Rotor R-8x8") ||
		!strings.Contains(out, "circuits: 0>1 1>0 2>3 3>2") || !strings.Contains(out, "port 13       ENABLED") {
		t.Errorf("status: %s", out)
	}
	var all []planeStatus
	text = lightpath.Succeed(t, "", "ocs", "status", "--fabric", fabric, "--json", "--plane", "p1")
	if err := json.Unmarshal([]byte(text), &all); err != nil || len(all) != 1 || len(all[0].Ports) != 8 ||
		!all[0].Map.Equal(circuit.Permutation{1, 0, -1, 2}) {
		t.Errorf("%v in %s", err, text)
	}
	lightpath.Succeed(t, "", "ocs", "drift", "--fabric", fabric, "--plane", "p0", "--map", "xor:1")
	require.NoError(t, d.Inject(device.Fault{Kind: device.ThirdParty, In: 0, Out: -1}))
	o := lightpath.Run(t, "", "ocs", "drift", "--fabric", fabric, "--plane", "p0", "--map", "xor:1")
	if o.Status != cli.ExitNo || !strings.Contains(o.Stdout, "0: desired 1, observed dark") ||
		!strings.Contains(o.Stderr, "1 of 4 ranks") {
		t.Errorf("drift: %+v", o)
	}
	var drift driftReport
	o = lightpath.Run(t, "", "ocs", "drift", "--fabric", fabric, "--plane", "p0", "--map", "xor:1", "--json")
	if err := json.Unmarshal([]byte(o.Stdout), &drift); err != nil || o.Status != cli.ExitNo || len(drift.Drifted) != 1 ||
		drift.Drifted[0] != 0 {
		t.Errorf("drift: %+v", o)
	}
}

// TestOCSBadSwitch: a circuit that is not as intended, a failed port and a switch that is not there
// end with 1.
func TestOCSBadSwitch(t *testing.T) {
	d, fabric := fabrictest.Switch(t)
	require.NoError(t, d.Inject(device.Fault{Kind: device.StuckMirror, In: 2, Out: -1}))
	o := lightpath.Run(t, "", "ocs", "set", "--fabric", fabric, "--plane", "p0", "--map", "ring:1")
	if o.Status != cli.ExitNo || !strings.Contains(o.Stdout,
		"2: intended 3, accepted true, observed 3, known by read-back: NOT as intended") ||
		!strings.Contains(o.Stdout, "1: intended 2, accepted true, observed 2, known by light: as intended") {
		t.Errorf("set: %+v", o)
	}
	if o = lightpath.Run(t, "", "ocs", "status", "--fabric", fabric); o.Status != cli.ExitNo ||
		!strings.Contains(o.Stdout, "port 3        FAILED") {
		t.Errorf("status: %+v", o)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	l.Close()
	text := strings.Replace(clitest.Content(t, fabric), `endpoint: "`, fmt.Sprintf(`endpoint: "%s" #`, l.Addr()), 1)
	text = strings.Replace(text, "reconfig: 25ms}", "", 1) + "\n    , reconfig: 25ms}\n"
	require.NoError(t, os.WriteFile(fabric, []byte(text), 0o600))
	if o = lightpath.Run(t, "", "ocs", "set", "--fabric", fabric, "--plane", "p0", "--map",
		"dark"); o.Status != cli.ExitNo ||
		strings.Count(o.Stderr, "\n") != 1 {
		t.Errorf("set without a switch: %+v", o)
	}
	if o = lightpath.Run(t, "", "ocs", "status", "--fabric", fabric); o.Status != cli.ExitNo ||
		!strings.Contains(o.Stdout, "problem: scpi:") {
		t.Errorf("status without a switch: %+v", o)
	}
}

func TestOCSRefuses(t *testing.T) {
	_, fabric := fabrictest.Switch(t)
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
		{[]string{"ring:K", "no such file"}, []string{"drift", "--fabric", fabric, "--plane", "p0", "--map", "nowhere.json"}},
	} {
		lightpath.Refuse(t, "[1, 1, 2, 3]", c.says, append([]string{"ocs"}, c.args...)...)
	}
	if o := lightpath.Run(t, "", "ocs", "set", "--fabric", remote, "--plane", "p0", "--map",
		"dark"); o.Status != cli.ExitNo ||
		!strings.Contains(o.Stderr, "in/out") {
		t.Errorf("mixed labels: %+v", o)
	}
}

// TestMapInWordsOfTheFile gives a map that is no list of numbers: the error names no type of Go.
func TestMapInWordsOfTheFile(t *testing.T) {
	_, fabric := fabrictest.Switch(t)
	for text, want := range map[string]string{
		`{"0": 1}`: "want a list, not an object", `[0, "1"]`: "want a whole number, not text",
		`[0, 1.5]`: "want a whole number, not 1.5",
		``:         "no text",
	} {
		lightpath.Refuse(t, text, []string{"--map -: " + want}, "ocs", "set", "--fabric", fabric, "--plane", "p0", "--map",
			"-")
	}
}
