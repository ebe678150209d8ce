package ocsd

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"lightpath/cmd/lightpath/cli/clitest"
	"lightpath/ocsctl/controller/web"
	"lightpath/plans"
)

// The page is shown the plans that jobs would run.
func TestCachedPlans(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "plans")
	if shown, err := cachedPlans(dir)(context.Background()); err != nil || len(shown) != 0 {
		t.Errorf("a directory that is not there: %v, %v", shown, err)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("looking has made the directory")
	}
	t.Setenv("LIGHTPATH_FABRIC", clitest.Write(t, "fabric.yaml", `version: 1
ranks: 4
planes:
  - {name: p0, bandwidth: 2Gbps, ocs: ocs0}
  - {name: p1, bandwidth: 2Gbps, ocs: ocs0}
ocs:
  - {name: ocs0, driver: emulator, endpoint: "unix:/tmp/none.sock", reconfig: 200us}
`))
	lightpath.Succeed(t, "", "plan", "cache", "warm", "--dir", dir, "--collective", "allreduce", "--bytes", "64K..1M",
		"--time-limit", "50ms", "--planner", "swot")
	if err := os.WriteFile(filepath.Join(dir, "junk.json"), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	read := cachedPlans(dir)
	shown, err := read(context.Background())
	if err != nil || len(shown) == 0 {
		t.Fatal(shown, err)
	}
	names := map[string]bool{}
	switches := 0
	for _, p := range shown {
		for _, plane := range p.Planes {
			for _, i := range plane {
				switch {
				case i.Kind == web.Reconfigure && i.To.Validate(4) == nil && i.EndUS > i.StartUS:
					switches++
				case i.Kind != web.Transmit || i.EndUS > p.EndUS:
					t.Errorf("%s: %+v", p.Name, i)
				}
			}
		}
		if names[p.Name] || len(p.Planes) != 2 || p.EndUS <= 0 {
			t.Errorf("%s: %d planes, until %v", p.Name, len(p.Planes), p.EndUS)
		}
		names[p.Name] = true
	}
	if switches == 0 {
		t.Error("no plan switches a plane")
	}
	if _, err := json.Marshal(shown); err != nil {
		t.Error(err)
	}
	// The page uses the names of plan files.
	if web.Transmit != string(plans.Transmit) || web.Reconfigure != string(plans.Reconfigure) ||
		web.Hold != string(plans.Hold) {
		t.Error("kinds of intervals differ")
	}
}
