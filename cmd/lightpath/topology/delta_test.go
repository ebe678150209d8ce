package topology

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lightpath/bench/jobs"
	"lightpath/cmd/lightpath/cli"
	"lightpath/cmd/lightpath/cli/clitest"
	"lightpath/cmd/lightpath/planning"
	"lightpath/internal/require"
	"lightpath/plans/circuit"
	"lightpath/plans/delta"
	"lightpath/plans/fabric"
)

// lightpath runs the commands of this room, and the commands that plan on its fabrics.
var lightpath = clitest.Of(New, planning.New)

// TestDelta goes the whole way: a job, a topology for it, the files that bring it onto switches, a
// simulation of the topology as read back, and a plan on the fabric.
func TestDelta(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	must := func(args ...string) clitest.Outcome {
		t.Helper()
		o := lightpath.Run(t, "", append([]string{"topology", "delta"}, args...)...)
		if o.Status != 0 {
			t.Fatalf("%v: %+v", args, o)
		}
		return o
	}
	must("generate", "--model", "gpt-7b", "--bandwidth", "100", "--out", at("job.json"))
	must("plan", "--in", at("job.json"), "--out", at("topology.json"), "--fabric", at("fabric.yaml"), "--ocsd",
		at("ocsd.yaml"), "--maps", at("maps"), "--plane-names", "a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p")
	lightpath.Refuse(t, "", []string{"--plane-names: 1 names"}, "topology", "delta", "plan", "--in", at("job.json"),
		"--maps", at("maps"), "--plane-names", "a")
	var planned, simulated delta.Result
	read(t, at("topology.json"), &planned)
	if planned.Job != "gpt-7b" || planned.PortsUsed > planned.Ports || planned.MakespanUS < planned.LowerBoundUS {
		t.Errorf("%+v", planned)
	}
	must("simulate", "--in", at("job.json"), "--topology", at("topology.json"), "--out", at("again.json"), "--schedule",
		at("schedule.json"))
	read(t, at("again.json"), &simulated)
	if simulated.MakespanUS != planned.MakespanUS {
		t.Errorf("%v us simulated, %v planned", simulated.MakespanUS, planned.MakespanUS)
	}
	var schedule struct {
		Tasks []struct {
			End float64 `json:"end_us"`
		} `json:"tasks"`
	}
	read(t, at("schedule.json"), &schedule)
	last := 0.0
	for _, task := range schedule.Tasks {
		last = max(last, task.End)
	}
	if d := last - planned.MakespanUS; d > 1e-3 || d < -1e-3 {
		t.Errorf("the schedule ends at %v us, the plan at %v", last, planned.MakespanUS)
	}
	f, err := fabric.Load(at("fabric.yaml"))
	require.NoError(t, err)
	if o, _, err := fabric.LoadOCSD(at("ocsd.yaml")); err != nil || o.Listen == "" || f.PinnedBy != planned.Job {
		t.Errorf("%v: listens on %q, pinned by %q", err, o.Listen, f.PinnedBy)
	}
	circuits := 0
	for _, plane := range f.Planes {
		var m circuit.Permutation
		read(t, at("maps/"+plane.Name+".json"), &m)
		if err := m.Validate(f.Ranks); err != nil {
			t.Errorf("%s: %v", plane.Name, err)
		}
		for _, to := range m {
			if to >= 0 {
				circuits++
			}
		}
	}
	for _, pair := range planned.Pairs {
		circuits -= 2 * pair.Circuits
	}
	if circuits != 0 {
		t.Errorf("maps have %d circuits more than the topology", circuits)
	}
	o := lightpath.Run(t, "", "plan", "build", "--collective", "allreduce", "--algorithm", "ring", "--ranks", "4",
		"--bytes",
		"1MiB",
		"--fabric", at("fabric.yaml"), "--planner", "static", "--out", at("plan.json"))
	if o.Status != 0 {
		t.Errorf("plan on the fabric: %+v", o)
	}
}

func read(t *testing.T, path string, v any) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(data, v)
	}
	require.NoError(t, err)
}

func TestDeltaCompare(t *testing.T) {
	args := []string{"topology", "delta", "compare", "--models", "gpt-7b", "--bandwidths", "50,100", "--reallocate"}
	o := lightpath.Run(t, "", args...)
	if o.Status != 0 || strings.Count(o.Stdout, "gpt-7b") != 4 {
		t.Fatalf("%+v", o)
	}
	o = lightpath.Run(t, "", append(args, "--json")...)
	var rows []*jobs.Row
	if err := json.Unmarshal([]byte(o.Stdout), &rows); err != nil || len(rows) != 2 {
		t.Fatalf("%v %+v", err, o)
	}
	for _, r := range rows {
		if len(r.Outcomes) != 5 || len(r.Reallocated) != 2 {
			t.Errorf("%+v", r)
		}
		for _, search := range []delta.Sharing{delta.Fair, delta.Critical} {
			if f := r.Find(search); f.NCT > r.Best().NCT*(1+1e-9) {
				t.Errorf("%s: NCT %v, the best baseline %v", search, f.NCT, r.Best().NCT)
			}
		}
	}
}

// TestDeltaWithoutReference: where the ideal iteration waits for no communication, the answer is a topology without
// an NCT.
func TestDeltaWithoutReference(t *testing.T) {
	const job = `{"version":1,"bandwidth_gbps":100,"pods":[{"name":"a","ports":8},{"name":"b","ports":8}],
"links":[{"pods":[0,1]}],"deps":[[1,2]],
"tasks":[{"pod":0,"duration_us":100},{"from":0,"to":1,"flows":8,"bytes":80000},{"pod":1,"duration_us":99}]}`
	out := filepath.Join(t.TempDir(), "topology.json")
	o := lightpath.Run(t, job, "topology", "delta", "simulate", "--in", "-", "--circuits", "1", "--out", out)
	if says := "105.4 us (ideal 100), NCT none"; o.Status != 0 || !strings.Contains(o.Stderr, says) ||
		!strings.Contains(clitest.Content(t, out), `"nct": null`) {
		t.Errorf("%+v", o)
	}
}

// TestDeltaRefuses: bad jobs and bad requests are refused with status 2, naming what is wrong.
func TestDeltaRefuses(t *testing.T) {
	const job = `{"version":1,"name":"x","bandwidth_gbps":400,` +
		`"pods":[{"name":"a","ports":2},{"name":"b","ports":2}],"links":[{"pods":[0,1]}],
"tasks":[{"name":"w","pod":0,"duration_us":5},{"name":"t","from":0,"to":1,"flows":1,"bytes":7}],"deps":[[0,1]]}`
	topology := filepath.Join(t.TempDir(), "topology.json")
	write := func(text string) {
		require.NoError(t, os.WriteFile(topology, []byte(text), 0o644))
	}
	plan := []string{"plan", "--in", "-"}
	simulate := func(circuits string) []string { return []string{"simulate", "--in", "-", "--circuits", circuits} }
	for _, c := range []struct {
		name, old, now string
		args           []string
		says           []string
	}{
		{"cycle", `[[0,1]]`, `[[0,1],[1,0]]`, plan, []string{"cycle", "tasks[0]"}},
		{"negative duration", `"duration_us":5`, `"duration_us":-5`, plan, []string{"tasks[0].duration_us", "-5"}},
		{"odd ports", `"name":"a","ports":2`, `"name":"a","ports":3`, plan, []string{"pods[0].ports", "odd"}},
		{"no ports", `"name":"a","ports":2`, `"name":"a","ports":0`, plan, []string{"pods[0].ports", `"a"`}},
		{"cut short", `[[0,1]]}`, `[[0,`, plan, []string{"line 2"}},
		{"over-subscribed", "", "", simulate("3"), []string{"over-subscribed", `"a"`}},
		{"no circuit", "", "", simulate("0"), []string{"circuits[0]", "one at least"}},
		{"too many links", "", "", simulate("1,1"), []string{"2 circuit counts for 1 links"}},
		{"no topology", "", "", []string{"simulate", "--in", "-"}, []string{"--topology", "--circuits"}},
		{"sharing", "", "", append(plan, "--sharing", "best"), []string{"--sharing", "best"}},
		{"algorithm", "", "", append(plan, "--algorithm", "best"), []string{"--algorithm", "best", "iter-halve"}},
		{"time limit", "", "", append(plan, "--time-limit", "0s"), []string{"--time-limit"}},
		{"fabric", "", "", append(plan, "--ocsd", "x.yaml"), []string{"--ocsd", "--fabric"}},
		{"model", "", "", []string{"generate", "--model", "gpt-9"}, []string{"--model", "gpt-9", "deepseek-671b"}},
		{"spread", "", "", []string{"generate", "--gpus", "100"}, []string{"gpus", "100"}},
		{"bandwidth", "", "", []string{"generate", "--bandwidth", "-1"}, []string{"bandwidth_gbps", "-1"}},
	} {
		text := job
		if c.old != "" {
			text = strings.Replace(job, c.old, c.now, 1)
		}
		o := lightpath.Run(t, text, append([]string{"topology", "delta"}, c.args...)...)
		if o.Status != cli.ExitUsage || o.Stdout != "" {
			t.Errorf("%s: %+v", c.name, o)
		}
		for _, word := range c.says {
			if !strings.Contains(o.Stderr, word) {
				t.Errorf("%s: %q does not say %q", c.name, o.Stderr, word)
			}
		}
	}
	for bad, says := range map[string]string{
		`{"version":1,"circuits":[1],"job":"y"}`: `"y"`, `{"version":1,"circuits":[3]}`: "over-subscribed",
		`{"version":1}`:    "circuits: missing",
		`{"circuits":[1]}`: "version: missing", `{"version":1,"circuits":[1.5]}`: "circuits[0]",
		`{"version":1,"circuits":[1]`: "line 1",
	} {
		write(bad)
		o := lightpath.Run(t, job, "topology", "delta", "simulate", "--in", "-", "--topology", topology)
		if o.Status != cli.ExitUsage || !strings.Contains(o.Stderr, says) {
			t.Errorf("%s: %+v does not say %s", bad, o, says)
		}
	}
	write(`{"version":1,"circuits":[2]}`)
	if o := lightpath.Run(t, job, "topology", "delta", "simulate", "--in", "-", "--topology", topology); o.Status != 0 {
		t.Errorf("%+v", fmt.Sprint(o))
	}
}
