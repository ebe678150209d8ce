package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"lightpath/internal/await"
	"lightpath/internal/chrometrace"
	"lightpath/internal/require"
	"lightpath/plans"
	"lightpath/plans/cache"
	"lightpath/plans/circuit"
	"lightpath/plans/planner"
	"lightpath/plans/sizes"
)

// outcome is one run of the command.
type outcome struct {
	status         int
	stdout, stderr string
}

// command runs lightpath as main would, with stdin as its standard input. The process's own
// streams are replaced meanwhile, so tests of this package do not run in parallel.
func command(t *testing.T, stdin string, args ...string) outcome {
	t.Helper()
	streams := []**os.File{&os.Stdin, &os.Stdout, &os.Stderr}
	files := make([]*os.File, len(streams))
	for i, s := range streams {
		fd, err := unix.MemfdCreate("stream", unix.MFD_CLOEXEC) // a disk would take most of the time of short commands
		require.NoError(t, err)
		f := os.NewFile(uintptr(fd), fmt.Sprintf("/proc/self/fd/%d", fd))
		files[i] = f
		defer f.Close()
		defer func(old *os.File) { *s = old }(*s)
		*s = f
	}
	if _, err := files[0].WriteString(stdin); err != nil {
		t.Fatal(err)
	}
	if _, err := files[0].Seek(0, 0); err != nil {
		t.Fatal(err)
	}
	status := run(context.Background(), args)
	return outcome{status, content(t, files[1].Name()), content(t, files[2].Name())}
}

func content(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(text)
}

// succeed runs a command that must end with 0 and returns its standard output.
func succeed(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	o := command(t, stdin, args...)
	if o.status != 0 {
		t.Fatalf("lightpath %s: status %d: %s", strings.Join(args, " "), o.status, o.stderr)
	}
	return o.stdout
}

// refuse runs a command that must end with 2 and one line on standard error with every word of
// says, and nothing on standard output.
func refuse(t *testing.T, stdin string, says []string, args ...string) {
	t.Helper()
	o := command(t, stdin, args...)
	line, rest, ended := strings.Cut(o.stderr, "\n")
	if o.status != exitUsage || o.stdout != "" || !ended || rest != "" || !strings.HasPrefix(line, "lightpath: ") {
		t.Errorf("lightpath %s: status %d, output %q, errors %q; want 2, nothing and one line", strings.Join(args, " "),
			o.status, o.stdout, o.stderr)
	}
	for _, s := range says {
		if !strings.Contains(line, s) {
			t.Errorf("lightpath %s: %q does not say %q", strings.Join(args, " "), line, s)
		}
	}
}

func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// appears waits for a file.
func appears(t *testing.T, path string) {
	t.Helper()
	await.Success(t, "wait for a file", func() error {
		_, err := os.Stat(path)
		return err
	})
}

// swotProblem is the example of SWOT Fig. 5 by way of the command: Rabenseifner's AllReduce of 40 MB on 8
// ranks and two planes that both begin at xor 1.
func swotProblem(t *testing.T, edit func(map[string]any)) string {
	t.Helper()
	text := succeed(t, "", "plan", "problem", "--collective", "allreduce", "--algorithm", "rabenseifner", "--ranks", "8",
		"--bytes", "40MB", "--planes", "2", "--bandwidth", "400Gbps", "--reconfig", "200us")
	var p map[string]any
	require.NoError(t, json.Unmarshal([]byte(text), &p))
	p["initial"] = []any{circuit.Xor(8, 1), circuit.Xor(8, 1)}
	if edit != nil {
		edit(p)
	}
	out, err := json.Marshal(p)
	require.NoError(t, err)
	return string(out)
}

func TestSWOTFigure5(t *testing.T) {
	problem := write(t, "problem.json", swotProblem(t, nil))
	for planner, want := range map[string]float64{"perstep": 1500, "swot": 1200, "auto": 1200} {
		out := filepath.Join(t.TempDir(), "plan.json")
		o := command(t, "", "plan", "solve", "--planner", planner, "--in", problem, "--out", out)
		if o.status != 0 || o.stdout != "" || !strings.Contains(o.stderr, "CCT") {
			t.Fatalf("%s: %+v", planner, o)
		}
		plan := decodePlan(t, content(t, out))
		if !plans.SameUS(plan.CCTUS, want) || plan.LowerBoundUS > plan.CCTUS+1e-6 || plan.LowerBoundUS <= 0 {
			t.Errorf("%s: CCT %v, bound %v; want %v", planner, plan.CCTUS, plan.LowerBoundUS, want)
		}
		checked := succeed(t, "", "plan", "check", "--in", problem, "--plan", out)
		if !strings.Contains(checked, "feasible") ||
			!strings.Contains(checked, map[float64]string{1500: "1500", 1200: "1200"}[want]) {
			t.Errorf("%s: check prints %q", planner, checked)
		}
		var verdict struct {
			Feasible bool    `json:"feasible"`
			CCT      float64 `json:"cct_us"`
		}
		require.NoError(t, json.Unmarshal([]byte(succeed(t, "", "plan", "check", "--json", "--in", problem, "--plan", out)),
			&verdict))
		if !verdict.Feasible || !plans.SameUS(verdict.CCT, want) {
			t.Errorf("%s: check --json prints %+v", planner, verdict)
		}
	}
	free := write(t, "free.json", swotProblem(t, func(p map[string]any) { p["reconfig_us"] = 0 }))
	if plan := decodePlan(t, succeed(t, "", "plan", "solve", "--planner", "perstep", "--in",
		free)); !plans.SameUS(plan.CCTUS, 700) {
		t.Errorf("no switching cost: CCT %v, want 700", plan.CCTUS)
	}
}

func decodePlan(t *testing.T, text string) *plans.Plan {
	t.Helper()
	p, err := plans.DecodePlan([]byte(text))
	require.NoError(t, err)
	return p
}

func TestPlanProblem(t *testing.T) {
	var p struct {
		Ranks, Planes int
		Bandwidth     float64 `json:"bandwidth_gbps"`
		Reconfig      float64 `json:"reconfig_us"`
		Alpha         float64 `json:"alpha_us"`
		Hop           float64 `json:"hop_us"`
		Forwarding    bool
		Circuits      string
		Initial       any
		Final         any
		Steps         []struct {
			Bytes float64
			To    []int
		}
	}
	text := succeed(t, "", "plan", "problem", "--collective", "allreduce", "--algorithm", "rabenseifner", "--ranks", "8",
		"--bytes", "40MB",
		"--planes", "2", "--bandwidth", "400Gbps", "--reconfig", "200us", "--alpha", "20us", "--hop", "500ns", "--forwarding",
		"--final", "initial", "--circuits", "duplex")
	require.NoError(t, json.Unmarshal([]byte(text), &p))
	if p.Ranks != 8 || p.Planes != 2 || p.Bandwidth != 400 || p.Reconfig != 200 || p.Alpha != 20 || p.Hop != 0.5 ||
		!p.Forwarding ||
		p.Circuits != "duplex" || p.Initial != nil || p.Final != "initial" {
		t.Errorf("%+v", p)
	}
	want := []struct {
		bytes float64
		mask  int
	}{{20e6, 1}, {10e6, 2}, {5e6, 4}, {5e6, 4}, {10e6, 2}, {20e6, 1}}
	if len(p.Steps) != len(want) {
		t.Fatalf("%d steps, want %d", len(p.Steps), len(want))
	}
	for i, w := range want {
		if p.Steps[i].Bytes != w.bytes || !circuit.Permutation(p.Steps[i].To).Equal(circuit.Xor(8, w.mask)) {
			t.Errorf("step %d: %+v, want %v bytes to xor %d", i, p.Steps[i], w.bytes, w.mask)
		}
	}
}

func TestPlanSolveThroughPipes(t *testing.T) {
	problem := swotProblem(t, nil)
	toPipe := succeed(t, problem, "plan", "solve", "--planner", "swot", "--in", "-", "--out", "-", "--time-limit", "1s")
	if again := succeed(t, problem, "plan", "solve", "--planner", "swot", "--in", "-", "--seed", "1", "--time-limit",
		"1s"); again != toPipe {
		t.Error("equal problem, seed and limit gave another plan")
	}
	plan := decodePlan(t, toPipe)
	if plan.Planner != "swot" || plan.Digest == "" || len(plan.Initial) != 2 || len(plan.Planes) != 2 {
		t.Errorf("planner %q, digest %q, %d maps, %d planes", plan.Planner, plan.Digest, len(plan.Initial), len(plan.Planes))
	}
	path := write(t, "problem.json", problem)
	succeed(t, toPipe, "plan", "check", "--in", path, "--plan", "-")
	succeed(t, problem, "plan", "check", "--in", "-", "--plan", write(t, "plan.json", toPipe))
}

// TestInfeasibleStatic: without forwarding, static fails where a step's pattern is on no plane.
func TestInfeasibleStatic(t *testing.T) {
	out := filepath.Join(t.TempDir(), "plan.json")
	o := command(t, swotProblem(t, nil), "plan", "solve", "--planner", "static", "--in", "-", "--out", out)
	if o.status != exitNo || o.stdout != "" || !strings.Contains(o.stderr, "infeasible") ||
		!strings.Contains(o.stderr, "step 1") {
		t.Errorf("%+v; want status 1 and step 1", o)
	}
	if _, err := os.Stat(out); !os.IsNotExist(err) {
		t.Errorf("a plan was written for an infeasible problem: %v", err)
	}
}

func TestPlanCheckSaysNo(t *testing.T) {
	problem := write(t, "problem.json", swotProblem(t, nil))
	plan := succeed(t, "", "plan", "solve", "--planner", "swot", "--in", problem)
	bend := func(edit func(p map[string]any)) string {
		var p map[string]any
		require.NoError(t, json.Unmarshal([]byte(plan), &p))
		delete(p, "digest")
		edit(p)
		text, err := json.Marshal(p)
		require.NoError(t, err)
		return write(t, "plan.json", string(text))
	}
	entry := func(p map[string]any, plane, i int) map[string]any {
		return p["planes"].([]any)[plane].([]any)[i].(map[string]any)
	}
	succeed(t, "", "plan", "check", "--in", problem, "--plan", bend(func(map[string]any) {}))
	for _, c := range []struct {
		name string
		edit func(p map[string]any)
		says string
	}{
		{"stated CCT", func(p map[string]any) { p["cct_us"] = 1100 }, "cct_us"},
		{"bytes", func(p map[string]any) { entry(p, 0, 0)["bytes"] = 1 }, "steps[0]"},
		{"digest", func(p map[string]any) { p["digest"] = strings.Repeat("0", 64) }, "digest"},
		{"planes", func(p map[string]any) { p["planes"] = p["planes"].([]any)[:1] }, "planes"},
		{"step", func(p map[string]any) { entry(p, 1, 0)["step"] = 6 }, "planes[1][0]"},
		{"initial", func(p map[string]any) { p["initial"].([]any)[1] = circuit.Xor(8, 2) }, "initial[1]"},
		{"time", func(p map[string]any) { entry(p, 0, 0)["start_us"] = -5 }, "planes[0][0]"},
	} {
		path := bend(c.edit)
		o := command(t, "", "plan", "check", "--in", problem, "--plan", path)
		if o.status != exitNo || o.stdout != "" || !strings.Contains(o.stderr, c.says) {
			t.Errorf("%s: %+v; want status 1 and %q", c.name, o, c.says)
		}
		o = command(t, "", "plan", "check", "--json", "--in", problem, "--plan", path)
		var verdict struct {
			Feasible *bool
			Reason   string
		}
		if err := json.Unmarshal([]byte(o.stdout), &verdict); err != nil || o.status != exitNo || verdict.Feasible == nil ||
			*verdict.Feasible || !strings.Contains(verdict.Reason, c.says) {
			t.Errorf("%s: check --json: %+v, %v", c.name, o, err)
		}
	}
	refuse(t, "", []string{"cct_us", "missing"}, "plan", "check", "--in", problem, "--plan",
		bend(func(p map[string]any) { delete(p, "cct_us") }))
	refuse(t, "", []string{"planes[0][0]", "kind"}, "plan", "check", "--in", problem, "--plan",
		bend(func(p map[string]any) { entry(p, 0, 0)["kind"] = "wait" }))
}

func TestPlanBuild(t *testing.T) {
	fabric := write(t, "fabric.yaml", `version: 1
name: two
ranks: 8
planes:
  - {name: p0, bandwidth: 400Gbps, ocs: ocs0}
  - {name: p1, bandwidth: 400Gbps, ocs: ocs0}
ocs:
  - {name: ocs0, driver: emulator, endpoint: "unix:/tmp/none.sock", reconfig: 200us}
`)
	args := []string{"plan", "build", "--collective", "allreduce", "--algorithm", "rabenseifner", "--bytes", "40MB",
		"--fabric", fabric}
	plan := decodePlan(t, succeed(t, "", append(args, "--ranks", "8", "--planner", "swot")...))
	if plan.Planner != "swot" || len(plan.Planes) != 2 || plan.CCTUS > 1200+1e-6 {
		t.Errorf("%s on %d planes in %v us", plan.Planner, len(plan.Planes), plan.CCTUS)
	}
	if small := decodePlan(t, succeed(t, "", append(args, "--ranks", "4")...)); len(small.Initial[0]) != 4 {
		t.Errorf("a plan of 4 ranks has maps of %d", len(small.Initial[0]))
	}
	refuse(t, "", []string{"--ranks", "16", "8"}, append(args, "--ranks", "16")...)
	refuse(t, "", []string{"--planes", "--fabric"}, append(args, "--ranks", "8", "--planes", "2")...)
	refuse(t, "", []string{"--fabric", "none.yaml"}, "plan", "build", "--collective", "allreduce", "--algorithm", "ring",
		"--ranks", "8", "--bytes", "1M", "--fabric", "none.yaml")
}

func TestPlanShow(t *testing.T) {
	dir := t.TempDir()
	plan := write(t, "plan.json", succeed(t, swotProblem(t, nil), "plan", "solve", "--planner", "swot", "--in", "-"))
	svg, html := filepath.Join(dir, "f.svg"), filepath.Join(dir, "f.html")
	text := succeed(t, "", "plan", "show", "--plan", plan, "--svg", svg, "--html", html)
	for _, want := range []string{"swot: CCT 1200 us", "plane 0", "plane 1", "step 0", "switch to", "xor"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	if s := content(t, svg); !strings.Contains(s, "<svg") {
		t.Errorf("%s holds %.60q", svg, s)
	}
	if s := content(t, html); !strings.Contains(s, "<html") || !strings.Contains(s, "<svg") {
		t.Errorf("%s holds %.60q", html, s)
	}
	if s := succeed(t, "", "plan", "show", "--plan", plan, "--svg", "-"); !strings.Contains(s, "<svg") ||
		strings.Contains(s, "CCT 1200 us,") {
		t.Errorf("--svg - prints %.80q", s)
	}
	var trace chrometrace.File
	text = succeed(t, "", "plan", "show", "--plan", plan, "--trace", "-")
	if err := json.Unmarshal([]byte(text), &trace); err != nil || len(trace.Events) < 10 {
		t.Errorf("--trace - prints %.80q: %v", text, err)
	}
	decodePlan(t, succeed(t, "", "plan", "show", "--json", "--plan", plan))
	refuse(t, "", []string{"--plan", "required"}, "plan", "show")
}

func TestPlanCache(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "plans")
	t.Setenv("LIGHTPATH_PLAN_DIR", dir)
	list := func() (rows []cacheRow) {
		t.Helper()
		if err := json.Unmarshal([]byte(succeed(t, "", "plan", "cache", "ls", "--json")), &rows); err != nil || rows == nil {
			t.Fatalf("%v, %v", rows, err)
		}
		return rows
	}
	if rows := list(); len(rows) != 0 {
		t.Errorf("an empty cache lists %v", rows)
	}
	refuse(t, "", []string{"--all"}, "plan", "cache", "rm")
	if o := command(t, "", "plan", "cache", "show", "abc"); o.status != exitNo || !strings.Contains(o.stderr, "abc") {
		t.Errorf("a plan that is not there: %+v", o)
	}

	problem, err := plans.DecodeProblem([]byte(swotProblem(t, nil)))
	require.NoError(t, err)
	text, err := plans.EncodeProblem(problem)
	require.NoError(t, err)
	plan := decodePlan(t, succeed(t, string(text), "plan", "solve", "--planner", "swot", "--in", "-"))
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
	if table := succeed(t, "", "plan", "cache", "ls"); strings.Count(table, "rabenseifner") != 2 ||
		strings.Count(table, "\n") != 3 {
		t.Errorf("ls prints\n%s", table)
	}
	name := rows[0].Name
	if shown := decodePlan(t, succeed(t, "", "plan", "cache", "show", name)); !plans.SameUS(shown.CCTUS, 1200) ||
		shown.Digest == "" {
		t.Errorf("shows %+v", shown)
	}
	if shown := succeed(t, "", "plan", "cache", "show", "--problem", name); shown != string(text) {
		t.Errorf("shows the problem as\n%s\nwant\n%s", shown, text)
	}

	// One of an earlier format is stale, and no reason to fail.
	old, err := plans.EncodePlan(plan)
	require.NoError(t, err)
	old = append([]byte(`{"key":{"min_bytes":1},"problem":{},`), old[1:]...)
	require.NoError(t, os.WriteFile(filepath.Join(dir, strings.Repeat("0", 64)+".json"), old, 0o600))
	if table := succeed(t, "", "plan", "cache", "ls"); !strings.Contains(table, "stale: written by another release") {
		t.Errorf("ls prints\n%s", table)
	}
	succeed(t, "", "plan", "cache", "rm", "--stale")
	if rows := list(); len(rows) != 2 {
		t.Errorf("rm --stale leaves %v", rows)
	}

	// A file that was tampered with is named, and neither shown nor in the way of its removal.
	require.NoError(t, os.WriteFile(filepath.Join(dir, rows[1].Name), []byte("{}"), 0o600))
	if o := command(t, "", "plan", "cache", "ls"); o.status != exitNo || !strings.Contains(o.stdout, "unusable") ||
		!strings.Contains(o.stderr, rows[1].Name) {
		t.Errorf("a corrupt entry: %+v", o)
	}
	if o := command(t, "", "plan", "cache", "show", rows[1].Name); o.status != exitNo || o.stdout != "" {
		t.Errorf("a corrupt entry is shown: %+v", o)
	}
	succeed(t, "", "plan", "cache", "rm", name)
	if o := command(t, "", "plan", "cache", "rm", name); o.status != exitNo {
		t.Errorf("removed twice: %+v", o)
	}
	succeed(t, "", "plan", "cache", "rm", "--all")
	if rows := list(); len(rows) != 0 {
		t.Errorf("after rm --all: %v", rows)
	}
}

func TestSim(t *testing.T) {
	problem := write(t, "problem.json", swotProblem(t, nil))
	plan := write(t, "plan.json", succeed(t, "", "plan", "solve", "--planner", "swot", "--in", problem))
	if text := succeed(t, "", "sim", "--in", problem, "--plan", plan); !strings.Contains(text, "CCT 1200 us simulated") {
		t.Errorf("sim prints %q", text)
	}
	var r struct {
		CCT    float64 `json:"cct_us"`
		Planes []struct {
			Utilization float64
		}
	}
	require.NoError(t, json.Unmarshal([]byte(succeed(t, "", "sim", "--json", "--in", problem, "--plan", plan)), &r))
	if !plans.SameUS(r.CCT, 1200) || len(r.Planes) != 2 || r.Planes[0].Utilization <= 0 || r.Planes[0].Utilization > 1 {
		t.Errorf("sim --json prints %+v", r)
	}
	out := filepath.Join(t.TempDir(), "retimed.json")
	succeed(t, "", "sim", "--in", problem, "--plan", plan, "--out", out)
	succeed(t, "", "plan", "check", "--in", problem, "--plan", out)
	refuse(t, "", []string{"--plan", "required"}, "sim", "--in", problem)
}
