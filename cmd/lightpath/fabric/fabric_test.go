package fabric

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"lightpath/cmd/lightpath/cli"
	"lightpath/cmd/lightpath/cli/clitest"
	"lightpath/cmd/lightpath/cli/fabrictest"
	"lightpath/internal/files"
	"lightpath/internal/require"
	"lightpath/ocsctl/kernel"
	"lightpath/plans/circuit"
	"lightpath/plans/fabric"
)

// lightpath is the commands of this room.
var lightpath = clitest.Of(New)

func TestFabricCommands(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: network namespaces and eBPF")
	}
	file, name := fabrictest.Kernel(t, "emulator", "unix:/nowhere")
	if out := lightpath.Succeed(t, "", "fabric", "up", "--fabric", file); !strings.Contains(out,
		name+": up: 4 ranks, 1 planes") {
		t.Errorf("up: %s", out)
	}
	if out := lightpath.Succeed(t, "", "fabric", "up", "--fabric", file); !strings.Contains(out, "nothing changed") {
		t.Errorf("up again: %s", out)
	}
	var s kernel.State
	if out := lightpath.Succeed(t, "", "fabric", "up", "--fabric", file, "--json"); json.Unmarshal([]byte(out),
		&s) != nil ||
		s.Name != name || s.Planes[0].Interface != "lp0" {
		t.Errorf("up --json: %s", out)
	}
	if out := lightpath.Succeed(t, "", "fabric", "status", "--fabric", file); !strings.Contains(out, "10.100.0.4") {
		t.Errorf("status: %s", out)
	}
	var r kernel.Report
	if out := lightpath.Succeed(t, "", "fabric", "status", "--name", name, "--json"); json.Unmarshal([]byte(out),
		&r) != nil ||
		r.Planes[0].Ports[3].To != circuit.Dark {
		t.Errorf("status --json: %s", out)
	}
	changed := clitest.Write(t, "changed.yaml", strings.Replace(clitest.Content(t, file), "1ms", "2ms", 1))
	for _, args := range [][]string{{"up", "--fabric", changed}, {"status", "--fabric", changed},
		{"up", "--fabric", file, "--mtu", "1500"}} {
		if o := lightpath.Run(t, "", append([]string{"fabric"}, args...)...); o.Status != cli.ExitNo ||
			!strings.Contains(o.Stderr, "down first") {
			t.Errorf("%v: %+v", args, o)
		}
	}
	if out := lightpath.Succeed(t, "", "fabric", "down", "--name", name); !strings.Contains(out, name+": down") {
		t.Errorf("down: %s", out)
	}
	if out := lightpath.Succeed(t, "", "fabric", "down", "--fabric", file, "--json"); !strings.Contains(out,
		`"removed":false`) &&
		!strings.Contains(out, `"removed": false`) {
		t.Errorf("down again: %s", out)
	}
	if o := lightpath.Run(t, "", "fabric", "status", "--name", name); o.Status != cli.ExitNo ||
		!strings.Contains(o.Stderr, "not up") {
		t.Errorf("status of nothing: %+v", o)
	}
}

func TestFabricRefuses(t *testing.T) {
	bare := clitest.Write(t, "bare.yaml", "version: 1\nranks: 2\nplanes: [{name: p0, bandwidth: 1Gbps, ocs: o}]\nocs: "+
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
		{[]string{"--time", "not positive"}, []string{"delay", "--interface", "lo"}},
	} {
		lightpath.Refuse(t, "", c.says, append([]string{"fabric"}, c.args...)...)
	}
	if os.Geteuid() == 0 {
		lightpath.Refuse(t, "", []string{"plane p0: has no interface"}, "fabric", "up", "--fabric", bare)
		lightpath.Refuse(t, "", []string{"MTU 12"}, "fabric", "up", "--fabric", bare, "--mtu", "12")
	} else {
		lightpath.Refuse(t, "", []string{"root"}, "fabric", "up", "--fabric", bare)
	}
}

// TestFabricsOfThisHost: fabrics are listed without a file, and those of processes that have ended
// are removed together. Other tests may have fabrics, and may remove what is left here too.
func TestFabricsOfThisHost(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: network namespaces and eBPF")
	}
	file, name := fabrictest.Kernel(t, "emulator", "unix:/nowhere")
	f, err := fabric.Load(file)
	require.NoError(t, err)
	_, down, err := kernel.Temporary(f, kernel.Options{})
	require.NoError(t, err)
	out := lightpath.Run(t, "", "fabric", "status")
	if !slices.ContainsFunc(strings.Split(out.Stdout, "\n"), func(line string) bool {
		return strings.HasPrefix(line, name+" ") &&
			strings.HasSuffix(line, fmt.Sprintf("up, until process %d ends", os.Getpid()))
	}) {
		t.Errorf("%+v does not list %s", out, name)
	}
	lightpath.Succeed(t, "", "fabric", "down", "--left")
	if o := lightpath.Run(t, "", "fabric", "down", "--name", name); o.Status != cli.ExitNo ||
		!strings.Contains(o.Stderr, fmt.Sprintf("process %d", os.Getpid())) {
		t.Errorf("down while its owner lives: %+v", o)
	}
	lightpath.Succeed(t, "", "fabric", "status", "--name", name)
	require.NoError(t, down())

	lightpath.Succeed(t, "", "fabric", "up", "--fabric", file)
	owner := filepath.Join("/run/lightpath/fabric", name+".owner")
	require.NoError(t, files.Write(owner, []byte("4194303\n"), 0o600)) // without its lock
	if out = lightpath.Run(t, "", "fabric", "status"); strings.Contains(out.Stdout, name) &&
		(out.Status != cli.ExitNo || !strings.Contains(out.Stdout, "left over: process 4194303 has ended") ||
			!strings.Contains(out.Stderr, name)) {
		t.Errorf("%+v", out)
	}
	lightpath.Succeed(t, "", "fabric", "down", "--left")
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if lightpath.Run(t, "", "fabric", "status", "--name", name).Status == cli.ExitNo {
			break
		}
	}
	if o := lightpath.Run(t, "", "fabric", "status", "--name", name); o.Status != cli.ExitNo {
		t.Errorf("still there: %+v", o)
	}
	lightpath.Refuse(t, "", []string{"left", "name"}, "fabric", "down", "--left", "--name", name)
}
