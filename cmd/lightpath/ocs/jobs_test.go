package ocs

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lightpath/cmd/lightpath/cli"
	"lightpath/internal/assert"
	"lightpath/internal/require"
	"lightpath/ocsctl/controller"
	"lightpath/ocsctl/controller/controllertest"
	"lightpath/ocsctl/controller/rpc"
	"lightpath/plans/circuit"
)

func TestJobs(t *testing.T) {
	core, address := startController(t, controllertest.NewPanel(4, 2), rpc.ServerOptions{})
	jobs := func(args ...string) []string {
		return append(append([]string{"jobs"}, args...), "--controller", address)
	}
	refused := func(status int, words []string, args ...string) {
		t.Helper()
		o := lightpath.Run(t, "", jobs(args...)...)
		if o.Status != status || strings.Count(o.Stderr, "\n") != 1 {
			t.Errorf("%v: %+v", args, o)
		}
		assert.Contains(t, o.Stderr, words...)
	}
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "p1.json"), []byte("[1,0]"), 0o600))

	assert.Contains(t, lightpath.Succeed(t, "", jobs("begin", "17", "--ports", "2,0", "--name", "train", "--maps",
		dir)...), "17",
		"train", "p0,p1",
		"2,0", "set")
	assert.Contains(t, lightpath.Succeed(t, "", jobs("begin", "18", "--ports", "3", "--plane", "p1")...), "18",
		"its ranks move them")
	again := lightpath.Succeed(t, "", jobs("begin", "18", "--ports", "3", "--plane", "p1", "--json")...)
	var begun []controller.JobSnapshot
	if err := json.Unmarshal([]byte(again), &begun); err != nil || len(begun) != 1 || begun[0].ID != "18" {
		t.Errorf("begin --json prints %s: %v", again, err)
	}
	s, err := core.Snapshot()
	require.NoError(t, err)
	if m := s.Planes[1].Map; m[0] != 2 || m[2] != 0 || s.Planes[0].Map[0] != circuit.Dark {
		t.Errorf("%v, %v", s.Planes[0].Map, m)
	}
	var all []controller.JobSnapshot
	require.NoError(t, json.Unmarshal([]byte(lightpath.Succeed(t, "", jobs("--json")...)), &all))
	if len(all) != 2 || all[0].ID != "17" || !all[0].Fixed || all[1].Mask != 2 {
		t.Errorf("%+v", all)
	}

	refused(cli.ExitNo, []string{"job 17", "2,0", "0,1"}, "begin", "17", "--ports", "0-1")
	refused(cli.ExitNo, []string{"job 19", "port 3", "plane p1", "job 18"}, "begin", "19", "--ports", "1,3")
	refused(cli.ExitNo, []string{"port 4"}, "begin", "19", "--ports", "4")
	refused(cli.ExitUsage, []string{"--ports"}, "begin", "19")
	refused(cli.ExitUsage, []string{"--ports", "3-1"}, "begin", "19", "--ports", "3-1")
	refused(cli.ExitUsage, []string{"--plane", "p7"}, "begin", "19", "--ports", "1", "--plane", "p7")
	refused(cli.ExitUsage, []string{"--plane", "empty"}, "begin", "19", "--ports", "1", "--plane", "p0,")
	refused(cli.ExitUsage, []string{"--map", "--maps"}, "begin", "19", "--ports", "1", "--map", "dark", "--maps", dir)
	refused(cli.ExitUsage, []string{"--maps " + filepath.Join(dir, "p1.json")}, "begin", "19", "--ports", "1", "--maps", dir)
	refused(cli.ExitUsage, []string{"no file"}, "begin", "19", "--ports", "1", "--plane", "p0", "--maps", dir)
	if o := lightpath.Run(t, "", "ocs", "set", "--plane", "p1", "--map", "ring:1", "--controller",
		address); o.Status != cli.ExitNo {
		t.Errorf("set of a job's circuits: %+v", o)
	}

	for range 2 {
		lightpath.Succeed(t, "", jobs("end", "17")...)
	}
	lightpath.Succeed(t, "", jobs("end", "18")...)
	if out := lightpath.Succeed(t, "", jobs()...); strings.Count(out, "\n") != 1 {
		t.Errorf("after the ends: %s", out)
	}
}

func TestPortList(t *testing.T) {
	for _, text := range []string{"0", "0-3", "4,6,5,7", "0-1,5,3-4"} {
		ports, err := parsePorts(text)
		require.NoError(t, err)
		if got := portList(ports); got != text {
			t.Errorf("%s became %v, %s", text, ports, got)
		}
	}
}
