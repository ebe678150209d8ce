package ocs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lightpath/cmd/lightpath/cli"
	"lightpath/cmd/lightpath/cli/clitest"
	"lightpath/internal/require"
	"lightpath/ocsctl/controller/controllertest"
	"lightpath/ocsctl/controller/rpc"
	"lightpath/plans/lumos"
)

// TestOCSRewire carries out a plan and then a change of it on a controller's planes.
func TestOCSRewire(t *testing.T) {
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	// one group: 4 planes
	const head = `{"version":1,"fabric":{"pods":4,"k_leaf":2,"k_spine":4,"tau":2,"k_ocs":8},"links":`
	dark, err := lumos.NewCore(lumos.Fabric{Pods: 4, KLeaf: 2, KSpine: 4, Tau: 2, KOCS: 8})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file("core.json"), dark.Encode(), 0o600))
	core, address := controllerOf(t, controllertest.NewPanel(4, 4), rpc.ServerOptions{}, "g0o0", "g0o1", "g0o2", "g0o3")
	for _, links := range []string{`[[0,2,1],[1,4,2],[3,6,1]]}`, `[[0,4,2],[2,6,1],[3,7,2]]}`} {
		if o := lightpath.Run(t, head+links, "topology", "lumos", "rewire", "--core", file("core.json"), "--in", "-", "--out",
			file("core.json"), "--steps", file("steps.json"), "--prune"); o.Status != 0 {
			t.Fatal(o.Stderr)
		}
		if out := lightpath.Succeed(t, "", "ocs", "rewire", "--controller", address, "--steps",
			file("steps.json")); !strings.Contains(out, "step 1 of") {
			t.Error(out)
		}
		c, err := lumos.DecodeCore([]byte(clitest.Content(t, file("core.json"))))
		require.NoError(t, err)
		s, err := core.Snapshot()
		require.NoError(t, err)
		for k, p := range s.Planes {
			if want := c.Configuration().Map(0, k); !p.Map.Equal(want) || p.Reason != "" {
				t.Errorf("plane %s has %v, want %v; %s", p.Name, p.Map, want, p.Reason)
			}
		}
	}
	// A plane that an operator has disabled stays disabled.
	require.NoError(t, core.Disable(2, "fibre work", "ann"))
	o := lightpath.Run(t, "", "ocs", "rewire", "--controller", address, "--steps", file("steps.json"))
	s, err := core.Snapshot()
	if err != nil || o.Status != cli.ExitNo || !strings.Contains(s.Planes[2].Reason, "fibre work") ||
		!strings.Contains(o.Stderr, "plane g0o2 is out of service") || !strings.Contains(o.Stderr, "fibre work") {
		t.Errorf("%+v, %q, %v", o, s.Planes[2].Reason, err)
	}
	_, other := startController(t, controllertest.NewPanel(4, 2), rpc.ServerOptions{})
	lightpath.Refuse(t, "", []string{"step 1", "no plane g0o"}, "ocs", "rewire", "--controller", other, "--steps",
		file("steps.json"))
	lightpath.Refuse(t, "", []string{"--controller is required"}, "ocs", "rewire", "--steps", file("steps.json"))
	lightpath.Refuse(t, `{"version":1}`, []string{"standard input", "k_leaf"}, "ocs", "rewire", "--controller", other,
		"--steps",
		"-")
}
