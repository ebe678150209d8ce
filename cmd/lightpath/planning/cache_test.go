package planning

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lightpath/cmd/lightpath/cli"
	"lightpath/internal/require"
	"lightpath/plans"
	"lightpath/plans/cache"
	"lightpath/plans/planner"
	"lightpath/plans/sizes"
)

func TestPlanCache(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "plans")
	t.Setenv("LIGHTPATH_PLAN_DIR", dir)
	list := func() (rows []cacheRow) {
		t.Helper()
		if err := json.Unmarshal([]byte(lightpath.Succeed(t, "", "plan", "cache", "ls", "--json")), &rows); err != nil ||
			rows == nil {
			t.Fatalf("%v, %v", rows, err)
		}
		return rows
	}
	if rows := list(); len(rows) != 0 {
		t.Errorf("an empty cache lists %v", rows)
	}
	lightpath.Refuse(t, "", []string{"--all"}, "plan", "cache", "rm")
	if o := lightpath.Run(t, "", "plan", "cache", "show", "abc"); o.Status != cli.ExitNo ||
		!strings.Contains(o.Stderr, "abc") {
		t.Errorf("a plan that is not there: %+v", o)
	}

	problem, err := plans.DecodeProblem([]byte(swotProblem(t, nil)))
	require.NoError(t, err)
	text, err := plans.EncodeProblem(problem)
	require.NoError(t, err)
	plan := decodePlan(t, lightpath.Succeed(t, string(text), "plan", "solve", "--planner", "swot", "--in", "-"))
	c, err := cache.Open(dir)
	require.NoError(t, err)
	for _, bytes := range []int64{40_000_000, 40_000_001} {
		key := cache.Key{Collective: "allreduce", Algorithm: "rabenseifner", Ranks: 8, Planes: 3, Planner: "swot",
			PlannerVersion: planner.Version}
		if _, err := c.Put(key, sizes.Point(bytes, problem, plan)); err != nil {
			t.Fatal(err)
		}
	}
	rows := list()
	if len(rows) != 2 || rows[0].PlanPlanner != "swot" || !plans.SameUS(rows[0].CCTUS, 1200) ||
		rows[0].Key.Collective != "allreduce" {
		t.Fatalf("%+v", rows)
	}
	if table := lightpath.Succeed(t, "", "plan", "cache", "ls"); strings.Count(table, "rabenseifner") != 2 ||
		strings.Count(table, "\n") != 3 {
		t.Errorf("ls prints\n%s", table)
	}
	name := rows[0].Name
	if shown := decodePlan(t, lightpath.Succeed(t, "", "plan", "cache", "show", name)); !plans.SameUS(shown.CCTUS, 1200) ||
		shown.Digest == "" {
		t.Errorf("shows %+v", shown)
	}
	if shown := lightpath.Succeed(t, "", "plan", "cache", "show", "--problem", name); shown != string(text) {
		t.Errorf("shows the problem as\n%s\nwant\n%s", shown, text)
	}

	// One of an earlier format is stale, and no reason to fail.
	old, err := plans.EncodePlan(plan)
	require.NoError(t, err)
	old = append([]byte(`{"key":{"min_bytes":1},"problem":{},`), old[1:]...)
	require.NoError(t, os.WriteFile(filepath.Join(dir, strings.Repeat("0", 64)+".json"), old, 0o600))
	if table := lightpath.Succeed(t, "", "plan", "cache", "ls"); !strings.Contains(table,
		"stale: written by another release") {
		t.Errorf("ls prints\n%s", table)
	}
	lightpath.Succeed(t, "", "plan", "cache", "rm", "--stale")
	if rows := list(); len(rows) != 2 {
		t.Errorf("rm --stale leaves %v", rows)
	}

	// A file that was tampered with is named, and neither shown nor in the way of its removal.
	require.NoError(t, os.WriteFile(filepath.Join(dir, rows[1].Name), []byte("{}"), 0o600))
	if o := lightpath.Run(t, "", "plan", "cache", "ls"); o.Status != cli.ExitNo ||
		!strings.Contains(o.Stdout, "unusable") ||
		!strings.Contains(o.Stderr, rows[1].Name) {
		t.Errorf("a corrupt entry: %+v", o)
	}
	if o := lightpath.Run(t, "", "plan", "cache", "show", rows[1].Name); o.Status != cli.ExitNo || o.Stdout != "" {
		t.Errorf("a corrupt entry is shown: %+v", o)
	}
	if o := lightpath.Run(t, "", "plan", "cache", "rm", name, "abc"); o.Status != cli.ExitNo ||
		!strings.Contains(o.Stderr, "abc") {
		t.Errorf("a name that is not there: %+v", o)
	}
	if out := lightpath.Succeed(t, "", "plan", "cache", "rm", name, name, "--json"); !strings.Contains(out, name) ||
		!strings.Contains(out, `"removed"`) {
		t.Errorf("rm --json prints\n%s", out)
	}
	if o := lightpath.Run(t, "", "plan", "cache", "rm", name); o.Status != cli.ExitNo {
		t.Errorf("removed twice: %+v", o)
	}
	lightpath.Succeed(t, "", "plan", "cache", "rm", "--all")
	if rows := list(); len(rows) != 0 {
		t.Errorf("after rm --all: %v", rows)
	}
}
