package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
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
	t.Setenv("LIGHTPATH_FABRIC", write(t, "fabric.yaml", warmFabric))
	args := []string{"plan", "cache", "warm", "--dir", dir, "--collective", "allreduce,broadcast",
		"--bytes", "6,1K..4K", "--type", "half", "--root", "3", "--time-limit", "50ms", "--planner", "swot"}
	for _, cached := range []bool{false, true} {
		var rows []warmRow
		if err := json.Unmarshal([]byte(succeed(t, "", append(args, "--json")...)), &rows); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, r := range rows {
			k := r.Key
			if r.Cached != cached || k.Ranks != 4 || k.ElemBytes != 2 || k.Planner != "swot" || r.CCTUS <= 0 {
				t.Errorf("%+v", r)
			}
			got = append(got, fmt.Sprintf("%s %s %d %d..%d", k.Collective, k.Algorithm, k.Root, k.MinBytes, k.MaxBytes))
		}
		want := []string{
			"allreduce rabenseifner 0 6..6", "allreduce rabenseifner 0 1024..1024", "allreduce rabenseifner 0 2048..2048", "allreduce rabenseifner 0 4096..4096",
			"broadcast binomial 3 6..6", "broadcast binomial 3 1024..1024", "broadcast binomial 3 2048..2048", "broadcast binomial 3 4096..4096",
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if list := succeed(t, "", "plan", "cache", "ls", "--dir", dir); strings.Count(list, "swot") != 8 {
		t.Errorf("ls prints\n%s", list)
	}

	o := command(t, "", "plan", "cache", "warm", "--dir", dir, "--collective", "alltoall", "--algorithm", "bruck", "--ranks", "3", "--bytes", "3K")
	if o.status != 0 || !strings.Contains(o.stdout, "bruck") || !strings.Contains(o.stderr, "LIGHTPATH_PLAN_DIR="+dir+" LIGHTPATH_ALGORITHM=alltoall:bruck\n") {
		t.Errorf("%+v", o)
	}
	o = command(t, "", "plan", "cache", "warm", "--dir", dir, "--collective", "allreduce,alltoall", "--bytes", "1K", "--planner", "static")
	if o.status != exitNo || !strings.Contains(o.stderr, "alltoall") || !strings.Contains(o.stderr, "infeasible") {
		t.Errorf("a call without a plan: %+v", o)
	}
}

func TestPlanCacheWarmRefuses(t *testing.T) {
	t.Setenv("LIGHTPATH_FABRIC", "")
	dir := filepath.Join(t.TempDir(), "plans")
	file := write(t, "fabric.yaml", warmFabric)
	packet := write(t, "packet.yaml", "version: 1\nranks: 2\nplanes: [{name: p0, bandwidth: 2Gbps}]\n")
	for _, c := range []struct{ args, says []string }{
		{nil, []string{"--fabric", "--collective", "--bytes", "required"}},
		{[]string{"--fabric", file, "--collective", "gossip", "--bytes", "1K"}, []string{"--collective", "gossip"}},
		{[]string{"--fabric", file, "--collective", "sendrecv", "--bytes", "1K"}, []string{"sendrecv"}},
		{[]string{"--fabric", file, "--collective", "allreduce", "--bytes", "lots"}, []string{"--bytes", "lots"}},
		{[]string{"--fabric", file, "--collective", "allreduce", "--bytes", "1K..lots"}, []string{"--bytes", "lots"}},
		{[]string{"--fabric", file, "--collective", "allreduce", "--bytes", "2K..1K"}, []string{"--bytes", "2K..1K"}},
		{[]string{"--fabric", file, "--collective", "allreduce", "--bytes", "0"}, []string{"--bytes", `"0"`}},
		{[]string{"--fabric", file, "--collective", "alltoall", "--bytes", "15"}, []string{"--bytes", "15", "float"}},
		{[]string{"--fabric", file, "--collective", "allreduce", "--bytes", "1K", "--type", "quad"}, []string{"--type", "quad"}},
		{[]string{"--fabric", file, "--collective", "allreduce", "--bytes", "1K", "--planner", "magic"}, []string{"--planner", "magic"}},
		{[]string{"--fabric", file, "--collective", "allreduce", "--bytes", "1K", "--algorithm", "bruck"}, []string{"--algorithm", "bruck", "ring"}},
		{[]string{"--fabric", file, "--collective", "allreduce", "--bytes", "1K", "--ranks", "5"}, []string{"--ranks", "5"}},
		{[]string{"--fabric", file, "--collective", "reduce", "--bytes", "1K", "--root", "4"}, []string{"root", "4"}},
		{[]string{"--fabric", file, "--collective", "allreduce", "--bytes", "1K", "--time-limit", "-1s"}, []string{"--time-limit"}},
		{[]string{"--fabric", packet, "--collective", "allreduce", "--bytes", "1K"}, []string{"circuits"}},
	} {
		refuse(t, "", c.says, append([]string{"plan", "cache", "warm", "--dir", dir}, c.args...)...)
	}
	if rows := succeed(t, "", "plan", "cache", "ls", "--dir", dir, "--json"); rows != "[]\n" {
		t.Errorf("refused commands left %s", rows)
	}
}
