package planning

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"lightpath/cmd/lightpath/cli"
	"lightpath/cmd/lightpath/cli/clitest"
	"lightpath/internal/chrometrace"
	"lightpath/internal/require"
	"lightpath/plans"
	"lightpath/plans/circuit"
)

// lightpath is the commands of this room.
var lightpath = clitest.Of(New, NewSim, NewSchedule)

// swotProblem is the example of SWOT Fig. 5 by way of the command: Rabenseifner's AllReduce of 40 MB on 8
// ranks and two planes that both begin at xor 1.
func swotProblem(t *testing.T, edit func(map[string]any)) string {
	t.Helper()
	text := lightpath.Succeed(t, "", "plan", "problem", "--collective", "allreduce", "--algorithm", "rabenseifner",
		"--ranks", "8",
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

// TestEffortRepeats: how much the command searches does not depend on the time that is left, so that plans repeat.
func TestEffortRepeats(t *testing.T) {
	f := &planFlags{limit: 3 * time.Second}
	p := &plans.Problem{Version: plans.Version, Ranks: 2, Planes: 1, BandwidthGbps: 1, Circuits: plans.Simplex}
	for _, left := range []time.Duration{2 * time.Second, 3 * time.Second} {
		ctx, cancel := context.WithTimeout(t.Context(), left)
		if o := f.options(ctx, p); o.Effort != time.Second || o.TimeLimit > left {
			t.Errorf("%v are left: effort %v within %v", left, o.Effort, o.TimeLimit)
		}
		cancel()
	}
}

func TestSWOTFigure5(t *testing.T) {
	problem := clitest.Write(t, "problem.json", swotProblem(t, nil))
	for planner, want := range map[string]float64{"perstep": 1500, "swot": 1200, "auto": 1200} {
		out := filepath.Join(t.TempDir(), "plan.json")
		o := lightpath.Run(t, "", "plan", "solve", "--planner", planner, "--in", problem, "--out", out)
		if o.Status != 0 || o.Stdout != "" || !strings.Contains(o.Stderr, "CCT") {
			t.Fatalf("%s: %+v", planner, o)
		}
		plan := decodePlan(t, clitest.Content(t, out))
		if !plans.SameUS(plan.CCTUS, want) || plan.LowerBoundUS > plan.CCTUS+1e-6 || plan.LowerBoundUS <= 0 {
			t.Errorf("%s: CCT %v, bound %v; want %v", planner, plan.CCTUS, plan.LowerBoundUS, want)
		}
		checked := lightpath.Succeed(t, "", "plan", "check", "--in", problem, "--plan", out)
		if !strings.Contains(checked, "feasible") ||
			!strings.Contains(checked, map[float64]string{1500: "1500", 1200: "1200"}[want]) {
			t.Errorf("%s: check prints %q", planner, checked)
		}
		var verdict struct {
			Feasible bool    `json:"feasible"`
			CCT      float64 `json:"cct_us"`
		}
		require.NoError(t, json.Unmarshal([]byte(lightpath.Succeed(t, "", "plan", "check", "--json", "--in", problem,
			"--plan", out)),
			&verdict))
		if !verdict.Feasible || !plans.SameUS(verdict.CCT, want) {
			t.Errorf("%s: check --json prints %+v", planner, verdict)
		}
	}
	free := clitest.Write(t, "free.json", swotProblem(t, func(p map[string]any) { p["reconfig_us"] = 0 }))
	if plan := decodePlan(t, lightpath.Succeed(t, "", "plan", "solve", "--planner", "perstep", "--in",
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
	text := lightpath.Succeed(t, "", "plan", "problem", "--collective", "allreduce", "--algorithm", "rabenseifner",
		"--ranks", "8",
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

// TestInitialFirst: all planes begin on the first step's circuits, and so the second of an interleaved pair on their
// inverse.
func TestInitialFirst(t *testing.T) {
	for kind, odd := range map[string]int{"simplex": 1, "interleaved": -1} {
		var p struct{ Initial []circuit.Permutation }
		text := lightpath.Succeed(t, "", "plan", "problem", "--collective", "allreduce", "--algorithm", "ring",
			"--ranks", "5", "--bytes", "1M", "--planes", "4", "--bandwidth", "100Gbps", "--circuits", kind, "--initial", "first")
		require.NoError(t, json.Unmarshal([]byte(text), &p))
		for j, m := range p.Initial {
			if want := circuit.Shift(5, []int{1, odd}[j%2]); len(p.Initial) != 4 || !m.Equal(want) {
				t.Errorf("%s: plane %d of %d: %v, want %v", kind, j, len(p.Initial), m, want)
			}
		}
	}
}

func TestPlanSolveThroughPipes(t *testing.T) {
	problem := swotProblem(t, nil)
	toPipe := lightpath.Succeed(t, problem, "plan", "solve", "--planner", "swot", "--in", "-", "--out", "-",
		"--time-limit", "1s")
	if again := lightpath.Succeed(t, problem, "plan", "solve", "--planner", "swot", "--in", "-", "--seed", "1",
		"--time-limit",
		"1s"); again != toPipe {
		t.Error("equal problem, seed and limit gave another plan")
	}
	plan := decodePlan(t, toPipe)
	if plan.Planner != "swot" || plan.Digest == "" || len(plan.Initial) != 2 || len(plan.Planes) != 2 {
		t.Errorf("planner %q, digest %q, %d maps, %d planes", plan.Planner, plan.Digest, len(plan.Initial), len(plan.Planes))
	}
	path := clitest.Write(t, "problem.json", problem)
	lightpath.Succeed(t, toPipe, "plan", "check", "--in", path, "--plan", "-")
	lightpath.Succeed(t, problem, "plan", "check", "--in", "-", "--plan", clitest.Write(t, "plan.json", toPipe))
}

// TestInfeasibleStatic: without forwarding, static fails where a step's pattern is on no plane.
func TestInfeasibleStatic(t *testing.T) {
	out := filepath.Join(t.TempDir(), "plan.json")
	o := lightpath.Run(t, swotProblem(t, nil), "plan", "solve", "--planner", "static", "--in", "-", "--out", out)
	if o.Status != cli.ExitNo || o.Stdout != "" || !strings.Contains(o.Stderr, "infeasible") ||
		!strings.Contains(o.Stderr, "step 1") {
		t.Errorf("%+v; want status 1 and step 1", o)
	}
	if _, err := os.Stat(out); !os.IsNotExist(err) {
		t.Errorf("a plan was written for an infeasible problem: %v", err)
	}
}

func TestPlanCheckSaysNo(t *testing.T) {
	problem := clitest.Write(t, "problem.json", swotProblem(t, nil))
	plan := lightpath.Succeed(t, "", "plan", "solve", "--planner", "swot", "--in", problem)
	bend := func(edit func(p map[string]any)) string {
		var p map[string]any
		require.NoError(t, json.Unmarshal([]byte(plan), &p))
		delete(p, "digest")
		edit(p)
		text, err := json.Marshal(p)
		require.NoError(t, err)
		return clitest.Write(t, "plan.json", string(text))
	}
	entry := func(p map[string]any, plane, i int) map[string]any {
		return p["planes"].([]any)[plane].([]any)[i].(map[string]any)
	}
	lightpath.Succeed(t, "", "plan", "check", "--in", problem, "--plan", bend(func(map[string]any) {}))
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
		o := lightpath.Run(t, "", "plan", "check", "--in", problem, "--plan", path)
		if o.Status != cli.ExitNo || o.Stdout != "" || !strings.Contains(o.Stderr, c.says) {
			t.Errorf("%s: %+v; want status 1 and %q", c.name, o, c.says)
		}
		o = lightpath.Run(t, "", "plan", "check", "--json", "--in", problem, "--plan", path)
		var verdict struct {
			Feasible *bool
			Reason   string
		}
		if err := json.Unmarshal([]byte(o.Stdout), &verdict); err != nil || o.Status != cli.ExitNo ||
			verdict.Feasible == nil ||
			*verdict.Feasible || !strings.Contains(verdict.Reason, c.says) {
			t.Errorf("%s: check --json: %+v, %v", c.name, o, err)
		}
	}
	lightpath.Refuse(t, "", []string{"cct_us", "missing"}, "plan", "check", "--in", problem, "--plan",
		bend(func(p map[string]any) { delete(p, "cct_us") }))
	lightpath.Refuse(t, "", []string{"planes[0][0]", "kind"}, "plan", "check", "--in", problem, "--plan",
		bend(func(p map[string]any) { entry(p, 0, 0)["kind"] = "wait" }))
}

func TestPlanBuild(t *testing.T) {
	fabric := clitest.Write(t, "fabric.yaml", `version: 1
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
	plan := decodePlan(t, lightpath.Succeed(t, "", append(args, "--ranks", "8", "--planner", "swot")...))
	if plan.Planner != "swot" || len(plan.Planes) != 2 || plan.CCTUS > 1200+1e-6 {
		t.Errorf("%s on %d planes in %v us", plan.Planner, len(plan.Planes), plan.CCTUS)
	}
	if small := decodePlan(t, lightpath.Succeed(t, "", append(args, "--ranks", "4")...)); len(small.Initial[0]) != 4 {
		t.Errorf("a plan of 4 ranks has maps of %d", len(small.Initial[0]))
	}
	lightpath.Refuse(t, "", []string{"--ranks", "16", "8"}, append(args, "--ranks", "16")...)
	lightpath.Refuse(t, "", []string{"--planes", "--fabric"}, append(args, "--ranks", "8", "--planes", "2")...)
	lightpath.Refuse(t, "", []string{"--fabric", "none.yaml"}, "plan", "build", "--collective", "allreduce",
		"--algorithm", "ring",
		"--ranks", "8", "--bytes", "1M", "--fabric", "none.yaml")
}

func TestPlanShow(t *testing.T) {
	dir := t.TempDir()
	plan := clitest.Write(t, "plan.json", lightpath.Succeed(t, swotProblem(t, nil), "plan", "solve", "--planner", "swot",
		"--in", "-"))
	svg, html := filepath.Join(dir, "f.svg"), filepath.Join(dir, "f.html")
	text := lightpath.Succeed(t, "", "plan", "show", "--plan", plan, "--svg", svg, "--html", html)
	for _, want := range []string{"swot: CCT 1200 us", "plane 0", "plane 1", "step 0", "switch to", "xor"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	if s := clitest.Content(t, svg); !strings.Contains(s, "<svg") {
		t.Errorf("%s holds %.60q", svg, s)
	}
	if s := clitest.Content(t, html); !strings.Contains(s, "<html") || !strings.Contains(s, "<svg") {
		t.Errorf("%s holds %.60q", html, s)
	}
	if s := lightpath.Succeed(t, "", "plan", "show", "--plan", plan, "--svg", "-"); !strings.Contains(s, "<svg") ||
		strings.Contains(s, "CCT 1200 us,") {
		t.Errorf("--svg - prints %.80q", s)
	}
	var trace chrometrace.File
	text = lightpath.Succeed(t, "", "plan", "show", "--plan", plan, "--trace", "-")
	if err := json.Unmarshal([]byte(text), &trace); err != nil || len(trace.Events) < 10 {
		t.Errorf("--trace - prints %.80q: %v", text, err)
	}
	decodePlan(t, lightpath.Succeed(t, "", "plan", "show", "--json", "--plan", plan))
	lightpath.Refuse(t, "", []string{"--plan", "required"}, "plan", "show")
}

func TestSim(t *testing.T) {
	problem := clitest.Write(t, "problem.json", swotProblem(t, nil))
	plan := clitest.Write(t, "plan.json", lightpath.Succeed(t, "", "plan", "solve", "--planner", "swot", "--in", problem))
	if text := lightpath.Succeed(t, "", "sim", "--in", problem, "--plan", plan); !strings.Contains(text,
		"CCT 1200 us simulated") {
		t.Errorf("sim prints %q", text)
	}
	var r struct {
		CCT    float64 `json:"cct_us"`
		Planes []struct {
			Utilization float64
		}
	}
	require.NoError(t, json.Unmarshal([]byte(lightpath.Succeed(t, "", "sim", "--json", "--in", problem, "--plan", plan)),
		&r))
	if !plans.SameUS(r.CCT, 1200) || len(r.Planes) != 2 || r.Planes[0].Utilization <= 0 || r.Planes[0].Utilization > 1 {
		t.Errorf("sim --json prints %+v", r)
	}
	out := filepath.Join(t.TempDir(), "retimed.json")
	lightpath.Succeed(t, "", "sim", "--in", problem, "--plan", plan, "--out", out)
	lightpath.Succeed(t, "", "plan", "check", "--in", problem, "--plan", out)
	lightpath.Refuse(t, "", []string{"--plan", "required"}, "sim", "--in", problem)
	lightpath.Refuse(t, "", []string{"--form needs --out"}, "sim", "--in", problem, "--plan", plan, "--form", "compact")
}
