package planning

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"lightpath/cmd/lightpath/cli"
	"lightpath/cmd/lightpath/cli/clitest"
	"lightpath/collectives/schedule"
	"lightpath/internal/require"
	"lightpath/plans"
)

const warmFabric = `version: 1
ranks: 4
planes:
  - {name: p0, bandwidth: 2Gbps, ocs: ocs0}
  - {name: p1, bandwidth: 2Gbps, ocs: ocs0}
ocs:
  - {name: ocs0, driver: emulator, endpoint: "unix:/tmp/none.sock", reconfig: 200us}
`

// TestPlanCacheWarm: that jobs find these plans is shown in package shim.
func TestPlanCacheWarm(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "plans")
	t.Setenv("LIGHTPATH_FABRIC", clitest.Write(t, "fabric.yaml", warmFabric))
	args := []string{"plan", "cache", "warm", "--dir", dir, "--collective", "allreduce,broadcast",
		"--bytes", "6,1K..4K", "--type", "half", "--root", "3", "--time-limit", "50ms", "--planner", "swot"}
	for _, cached := range []bool{false, true} {
		var rows []warmRow
		require.NoError(t, json.Unmarshal([]byte(lightpath.Succeed(t, "", append(args, "--json")...)), &rows))
		var got []string
		for _, r := range rows {
			k := r.Key
			if r.Cached != cached || k.Ranks != 4 || k.Planner != "swot" || r.CCTUS <= 0 || r.MinBytes > r.Bytes ||
				r.MaxBytes < r.Bytes {
				t.Errorf("%+v", r)
			}
			got = append(got, fmt.Sprintf("%s %s %d %.0f", k.Collective, k.Algorithm, k.Root, r.Bytes))
		}
		want := []string{
			"allreduce rabenseifner 0 6", "allreduce rabenseifner 0 1024", "allreduce rabenseifner 0 2048",
			"allreduce rabenseifner 0 4096",
			"broadcast binomial 3 6", "broadcast binomial 3 1024", "broadcast binomial 3 2048", "broadcast binomial 3 4096",
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
	// Sizes share plans: a size between those given is there, and few files are.
	var rows []warmRow
	require.NoError(t, json.Unmarshal([]byte(lightpath.Succeed(t, "",
		append(slices.Replace(slices.Clone(args), 8, 9, "3000"), "--json")...)), &rows))
	if len(rows) != 2 || !rows[0].Cached || !rows[1].Cached {
		t.Errorf("a size between: %+v", rows)
	}
	list := lightpath.Succeed(t, "", "plan", "cache", "ls", "--dir", dir)
	if n := strings.Count(list, "swot"); n < 2 || n > 8 || strings.Contains(list, "stale") {
		t.Errorf("ls prints\n%s", list)
	}
	shown := decodePlan(t, lightpath.Succeed(t, "", "plan", "cache", "show", rows[0].Name, "--bytes", "3000", "--dir",
		dir))
	if !plans.SameUS(shown.CCTUS, rows[0].CCTUS) || shown.Digest == "" {
		t.Errorf("shows %v us, warm says %v us", shown.CCTUS, rows[0].CCTUS)
	}
	if o := lightpath.Run(t, "", "plan", "cache", "show", rows[0].Name, "--bytes", "1G", "--dir",
		dir); o.Status != cli.ExitNo {
		t.Errorf("a size that the plan does not serve: %+v", o)
	}
	// Another delay is another fabric: its plans are stale.
	t.Setenv("LIGHTPATH_FABRIC", clitest.Write(t, "fabric.yaml", strings.Replace(warmFabric, "200us", "300us", 1)))
	if now := lightpath.Succeed(t, "", "plan", "cache", "ls", "--dir", dir); strings.Count(now,
		"stale: fabric") != strings.Count(list, "swot") {
		t.Errorf("after the fabric changed, ls prints\n%s", now)
	}
	lightpath.Succeed(t, "", "plan", "cache", "rm", "--stale", "--dir", dir)
	if now := lightpath.Succeed(t, "", "plan", "cache", "ls", "--dir", dir); strings.Contains(now, "swot") {
		t.Errorf("after rm --stale, ls prints\n%s", now)
	}

	o := lightpath.Run(t, "", "plan", "cache", "warm", "--dir", dir, "--collective", "alltoall", "--algorithm", "bruck",
		"--ranks", "3", "--bytes", "3K")
	if o.Status != 0 || !strings.Contains(o.Stdout, "bruck") ||
		!strings.Contains(o.Stderr, "LIGHTPATH_PLAN_DIR="+dir+" LIGHTPATH_ALGORITHM=alltoall:bruck\n") {
		t.Errorf("%+v", o)
	}
	// auto: the algorithm that is chosen is in the environment that jobs need.
	o = lightpath.Run(t, "", "plan", "cache", "warm", "--dir", dir, "--collective", "alltoall", "--algorithm", "auto",
		"--bytes",
		"1K..64M", "--time-limit", "200ms")
	_, hint, _ := strings.Cut(o.Stderr, "LIGHTPATH_ALGORITHM=alltoall:")
	if hint = strings.TrimSpace(hint); o.Status != 0 || !schedule.Defined(schedule.AllToAll, hint, 4) ||
		strings.Count(o.Stdout, "alltoall ") != 17 {
		t.Errorf("%+v", o)
	}
	o = lightpath.Run(t, "", "plan", "cache", "warm", "--dir", dir, "--collective", "allreduce,alltoall", "--bytes", "1K",
		"--planner", "static")
	if o.Status != cli.ExitNo || !strings.Contains(o.Stderr, "alltoall") || !strings.Contains(o.Stderr, "infeasible") {
		t.Errorf("a call without a plan: %+v", o)
	}
}

func TestPlanCacheWarmRefuses(t *testing.T) {
	t.Setenv("LIGHTPATH_FABRIC", "")
	dir := filepath.Join(t.TempDir(), "plans")
	file := clitest.Write(t, "fabric.yaml", warmFabric)
	packet := clitest.Write(t, "packet.yaml", "version: 1\nranks: 2\nplanes: [{name: p0, bandwidth: 2Gbps}]\n")
	for _, c := range []struct{ args, says []string }{
		{nil, []string{"--fabric", "--collective", "--bytes", "required"}},
		{[]string{"--fabric", file, "--collective", "gossip", "--bytes", "1K"}, []string{"--collective", "gossip"}},
		{[]string{"--fabric", file, "--collective", "sendrecv", "--bytes", "1K"}, []string{"sendrecv"}},
		{[]string{"--fabric", file, "--collective", "allreduce", "--bytes", "lots"}, []string{"--bytes", "lots"}},
		{[]string{"--fabric", file, "--collective", "allreduce", "--bytes", "1K..lots"}, []string{"--bytes", "lots"}},
		{[]string{"--fabric", file, "--collective", "allreduce", "--bytes", "2K..1K"}, []string{"--bytes", "2K..1K"}},
		{[]string{"--fabric", file, "--collective", "allreduce", "--bytes", "0"}, []string{"--bytes", `"0"`}},
		{[]string{"--fabric", file, "--collective", "alltoall", "--bytes", "15"}, []string{"--bytes", "15", "float"}},
		{[]string{"--fabric", file, "--collective", "allreduce", "--bytes", "1K", "--type", "quad"},
			[]string{"--type", "quad"}},
		{[]string{"--fabric", file, "--collective", "allreduce", "--bytes", "1K", "--planner", "magic"},
			[]string{"--planner", "magic"}},
		{[]string{"--fabric", file, "--collective", "allreduce", "--bytes", "1K", "--algorithm", "pairwise-xor"},
			[]string{"--algorithm", "pairwise-xor", "ring"}},
		{[]string{"--fabric", file, "--collective", "allreduce", "--bytes", "1K", "--ranks", "5"}, []string{"--ranks", "5"}},
		{[]string{"--fabric", file, "--collective", "reduce", "--bytes", "1K", "--root", "4"}, []string{"root", "4"}},
		{[]string{"--fabric", file, "--collective", "allreduce", "--bytes", "1K", "--time-limit", "-1s"},
			[]string{"--time-limit"}},
		{[]string{"--fabric", packet, "--collective", "allreduce", "--bytes", "1K"}, []string{"circuits"}},
	} {
		lightpath.Refuse(t, "", c.says, append([]string{"plan", "cache", "warm", "--dir", dir}, c.args...)...)
	}
	if rows := lightpath.Succeed(t, "", "plan", "cache", "ls", "--dir", dir, "--json"); rows != "[]\n" {
		t.Errorf("refused commands left %s", rows)
	}
}
