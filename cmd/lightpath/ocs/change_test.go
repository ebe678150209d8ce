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
)

// TestOCSChange: several planes as one change, dry, from a known map, and to be confirmed.
func TestOCSChange(t *testing.T) {
	core, address := startController(t, controllertest.NewPanel(4, 2), rpc.ServerOptions{})
	at := func(args ...string) []string {
		return append(append([]string{"ocs"}, args...), "--controller", address)
	}
	maps := func(p0, p1 string) {
		t.Helper()
		s, err := core.Snapshot()
		require.NoError(t, err)
		for j, want := range []string{p0, p1} {
			if got := circuitList(s.Planes[j].Map); got != want {
				t.Errorf("plane %d: %s, want %s", j, got, want)
			}
		}
	}
	const ring1, ring2, ring3 = "0>1 1>2 2>3 3>0", "0>2 1>3 2>0 3>1", "0>3 1>0 2>1 3>2"
	assert.Contains(t, lightpath.Succeed(t, "", at("set", "--plane", "p0,p1", "--map", "ring:1", "--dry-run")...),
		"+ 3>0", "dry run")
	maps("none", "none")
	assert.Contains(t, lightpath.Succeed(t, "", at("set", "--plane", "p0,p1", "--map", "ring:1")...),
		"plane p0: resident",
		"plane p1: resident")
	maps(ring1, ring1)
	lightpath.Succeed(t, "[1,2,3,0]", at("set", "--plane", "p0,p1", "--map", "-")...)
	maps(ring1, ring1)

	file := filepath.Join(t.TempDir(), "maps.json")
	require.NoError(t, os.WriteFile(file, []byte(`{"p0": [2,3,0,1], "p1": [3,0,1,2]}`), 0o600))
	o := lightpath.Run(t, "", at("set", "--map", file, "--if-current", "ring:2")...)
	if assert.Contains(t, o.Stderr, "another map"); o.Status != cli.ExitNo {
		t.Errorf("%+v", o)
	}
	maps(ring1, ring1)
	var all []commandReport
	out := lightpath.Succeed(t, "", at("set", "--map", file, "--if-current", "ring:1", "--confirm-within", "1h",
		"--json")...)
	if err := json.Unmarshal([]byte(out), &all); err != nil || len(all) != 2 || all[1].Trial == nil ||
		all[1].State != controller.Resident {
		t.Errorf("%v in %s", err, out)
	}
	maps(ring2, ring3)
	assert.Contains(t, lightpath.Succeed(t, "", at("status")...), "to be confirmed until")
	lightpath.Succeed(t, "", at("confirm", "--plane", "p1")...)
	if o := lightpath.Run(t, "", at("confirm", "--plane", "p0")...); o.Status != cli.ExitNo {
		t.Errorf("twice: %+v", o)
	}

	for _, flag := range []string{"--settle=30s", "--reply-timeout=1s", "--insecure-scpi", "--user=x", "--password-file=x",
		"--known-hosts=x"} {
		name, _, _ := strings.Cut(flag, "=")
		for _, args := range [][]string{{"status"}, {"drift"}, {"set", "--plane", "p0", "--map", "ring:1"}} {
			lightpath.Refuse(t, "", []string{name, "--direct"}, at(append(args, flag)...)...)
		}
	}
	lightpath.Refuse(t, "", []string{"--verify", "--direct"}, at("set", "--plane", "p0", "--map", "ring:1", "--verify",
		"status")...)

	// A panel has no switch's ports.
	assert.Contains(t, lightpath.Succeed(t, "", at("ports")...), "plane p0: its switch reports no ports")
	for _, args := range [][]string{
		{"baseline", "--plane", "p0"}, {"remap", "--plane", "p0", "--port", "1", "--to", "9"},
	} {
		if o := lightpath.Run(t, "", at(args...)...); o.Status != cli.ExitNo {
			t.Errorf("%v: %+v", args, o)
		}
	}
	lightpath.Refuse(t, "", []string{"--port"}, at("remap", "--plane", "p0")...)
	for file, args := range map[string][]string{
		`{"p0": [2,3,0,1]}`:                     {"--plane", "p1"}, // which of them does the operator mean?
		`{"p0": [2,3,0,1], "p0": [1,2,3,0]}`:    {},
		`{"p0": [2,3,0,1], "p1": [1,2,3,"no"]}`: {},
		`{}`:                                    {},
		`null`:                                  {"--plane", "p0"},
	} {
		lightpath.Refuse(t, file, nil, at(append([]string{"set", "--map", "-"}, args...)...)...)
	}
	lightpath.Refuse(t, `{"p0": [2,3,0,1]}`, []string{"--if-current", "other planes"},
		at("set", "--plane", "p0,p1", "--map", "ring:1", "--if-current", "-")...)
	lightpath.Refuse(t, "", []string{`lightpath: --if-current ring:x: "x" is no number`},
		at("set", "--plane", "p0", "--map", "ring:1", "--if-current", "ring:x")...)
	lightpath.Refuse(t, "", []string{"name is empty"}, at("set", "--plane", "p0,,p1", "--map", "ring:1")...)
	maps(ring2, ring3)
	lightpath.Refuse(t, "", []string{"p9"}, at("set", "--plane", "p0,p9", "--map", "ring:1")...)
}
