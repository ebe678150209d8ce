package iteration

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lightpath/cmd/lightpath/cli"
	"lightpath/cmd/lightpath/cli/clitest"
	"lightpath/cmd/lightpath/topology"
	"lightpath/internal/chrometrace"
	"lightpath/internal/require"
	"lightpath/plans/iteration"
	"lightpath/plans/iteration/trace"
	"lightpath/shim/flight"
)

// lightpath runs the commands of this room, and the commands that make its jobs.
var lightpath = clitest.Of(New, topology.New)

const testdata = "../../../plans/iteration/testdata/"

// TestIteration: import, plan, check, show and explain, each with the files of the one before.
func TestIteration(t *testing.T) {
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	fabric := testdata + "fabric.yaml"
	o := lightpath.Run(t, "", "iteration", "plan", testdata+"small.trace.json", "--fabric", fabric,
		"-o", file("plan.json"))
	if o.Status != 0 || o.Stdout != "" {
		t.Fatalf("%+v", o)
	}
	for _, says := range []string{"4 calls of 4 shapes", "percall", "iteration", "free", "packet", "hidden"} {
		if !strings.Contains(o.Stderr, says) {
			t.Errorf("no %q in\n%s", says, o.Stderr)
		}
	}
	plan, err := iteration.Decode([]byte(clitest.Content(t, file("plan.json"))))
	require.NoError(t, err)
	if text := lightpath.Succeed(t, "", "iteration", "check", file("plan.json"), "--fabric",
		fabric); !strings.Contains(text,
		"feasible: 4 calls") {
		t.Error(text)
	}
	var report struct {
		Feasible bool    `json:"feasible"`
		US       float64 `json:"iteration_us"`
	}
	require.NoError(t, json.Unmarshal([]byte(lightpath.Succeed(t, "", "iteration", "check", file("plan.json"), "--fabric",
		fabric,
		"--json")), &report))
	if !report.Feasible || report.US != plan.IterationUS {
		t.Errorf("%+v, want %v us", report, plan.IterationUS)
	}
	text := lightpath.Succeed(t, "", "iteration", "show", file("plan.json"), "--svg", file("p.svg"), "--html",
		file("p.html"),
		"--trace", file("t.json"))
	for _, says := range []string{"small: iteration", "call 1, experts: alltoall pairwise", "switch planes"} {
		if !strings.Contains(text, says) {
			t.Errorf("no %q in\n%s", says, text)
		}
	}
	for _, name := range []string{"p.svg", "p.html"} {
		if !strings.Contains(clitest.Content(t, file(name)), ">computation<") {
			t.Errorf("no computation in %s", name)
		}
	}
	var events chrometrace.File
	require.NoError(t, json.Unmarshal([]byte(clitest.Content(t, file("t.json"))), &events))
	if len(events.Events) < 10 {
		t.Errorf("%d events", len(events.Events))
	}
	if again := lightpath.Succeed(t, "", "iteration", "show", "--json", file("plan.json")); again != clitest.Content(t,
		file("plan.json")) {
		t.Error("show --json is not the file")
	}
	text = lightpath.Succeed(t, "", "iteration", "explain", testdata+"small.trace.json", "--fabric", fabric, "--planes",
		"1,2",
		"--reconfig", "10us,1ms", "--time-limit", "300ms")
	lines := strings.Split(strings.TrimSpace(text), "\n")
	if len(lines) != 7 || !strings.Contains(lines[6], "packet planes") {
		t.Errorf("%q", text)
	}
	var explained struct {
		Advice  string `json:"advice"`
		Fabrics []struct {
			Planes   int     `json:"planes"`
			Reconfig float64 `json:"reconfig_us"`
		} `json:"fabrics"`
	}
	require.NoError(t, json.Unmarshal([]byte(lightpath.Succeed(t, "", "iteration", "explain", testdata+"small.trace.json",
		"--fabric", fabric, "--reconfig", "1ms", "--time-limit", "300ms", "--json")), &explained))
	if len(explained.Fabrics) != 1 || explained.Fabrics[0].Planes != 2 || explained.Fabrics[0].Reconfig != 1000 {
		t.Errorf("%+v", explained)
	}
	var table struct {
		Ways []outcomeJSON `json:"ways"`
	}
	text = lightpath.Succeed(t, clitest.Content(t, testdata+"small.trace.json"), "iteration", "plan", "-", "--fabric",
		fabric, "--json")
	require.NoError(t, json.Unmarshal([]byte(text), &table))
	if len(table.Ways) < 4 || table.Ways[0].Name != iteration.PerCall {
		t.Errorf("%+v", table)
	}
}

// TestIterationNo: a plan that is changed, or for another fabric, is refused with status 1 and the reason.
func TestIterationNo(t *testing.T) {
	good := clitest.Content(t, testdata+"small.iteration.json")
	for _, c := range []struct{ old, with, says string }{
		{`"fabric":"`, `"fabric":"0`, "fabric: the plan is for the fabric"},
		{`"compute_us":36`, `"compute_us":37`, "compute_us: the plan states 3700 us"},
		{`"digest":"`, `"digest":"0`, "bad digest"},
	} {
		if !strings.Contains(good, c.old) {
			t.Fatalf("no %q in the plan", c.old)
		}
		o := lightpath.Run(t, strings.Replace(good, c.old, c.with, 1), "iteration", "check", "-", "--fabric",
			testdata+"fabric.yaml")
		if o.Status != cli.ExitNo || !strings.Contains(o.Stderr, c.says) {
			t.Errorf("%s: %+v", c.with, o)
		}
	}
	o := lightpath.Run(t, strings.Replace(good, `"digest":"`, `"digest":"0`, 1), "iteration", "check", "-", "--fabric",
		testdata+"fabric.yaml", "--json")
	if o.Status != cli.ExitNo || !strings.Contains(o.Stdout, `"feasible": false`) {
		t.Errorf("%+v", o)
	}
}

func TestIterationRefuses(t *testing.T) {
	fabric := testdata + "fabric.yaml"
	text := clitest.Content(t, testdata+"small.trace.json")
	bad := func(old, with string) string {
		t.Helper()
		if !strings.Contains(text, old) {
			t.Fatalf("no %q in the trace", old)
		}
		return strings.Replace(text, old, with, 1)
	}
	for _, c := range []struct {
		stdin string
		says  []string
		args  []string
	}{
		{bad(`"bytes":8000000`, `"bytes":-8`), []string{"calls[1].bytes", "-8 is negative"},
			[]string{"plan", "-", "--fabric", fabric}},
		{bad(`"alltoall"`, `"allmagic"`), []string{"calls[1]", `"allmagic"`}, []string{"plan", "-", "--fabric", fabric}},
		{bad(`"pairwise"`, `"magic"`), []string{"calls[1]", "magic", "pairwise"}, []string{"plan", "-", "--fabric", fabric}},
		{bad(`"ranks":4`, `"ranks":5`), []string{"ranks", "5 on a fabric of 4"}, []string{"plan", "-", "--fabric", fabric}},
		{"", []string{"line 1", "the text ends"}, []string{"plan", "-", "--fabric", fabric}},
		{text, []string{"--fabric", "required", cli.FabricVariable}, []string{"plan", "-"}},
		{text, []string{"--time-limit", "not positive"}, []string{"plan", "-", "--fabric", fabric, "--time-limit", "0s"}},
		{text, []string{"--json, --out -"}, []string{"plan", "-", "--fabric", fabric, "--json", "-o", "-"}},
		{text, []string{"--reconfig", "soon"}, []string{"explain", "-", "--fabric", fabric, "--reconfig", "soon"}},
		{text, []string{"--planes", "0 is outside"}, []string{"explain", "-", "--fabric", fabric, "--planes", "0"}},
		{text, []string{"bad iteration plan"}, []string{"check", "-", "--fabric", fabric}},
		{text, []string{"bad iteration plan"}, []string{"show", "-"}},
		{text, []string{"not a flight recorder's dump"}, []string{"import", "-"}},
		{text, []string{"--format", "paper", "flight, job"}, []string{"import", "--format", "paper", "-"}},
		{text, []string{"bad job"}, []string{"import", "--format", "job", "-"}},
		{"", []string{"--format aicb", "want files"}, []string{"import", "--format", "aicb"}},
		{"", []string{"--model", "gpt-9"}, []string{"import", "--model", "gpt-9"}},
		{text, []string{"--tp has no effect"}, []string{"import", "--format", "aicb", "--tp", "8", "-"}},
		{text, []string{"--model has no effect"}, []string{"import", "--format", "job", "--model", "gpt-7b", "-"}},
		{text, []string{"--algorithm has no effect"}, []string{"import", "--algorithm", "ring", "-"}},
		{text, []string{"--forward-us has no effect"}, []string{"import", "--format", "simai", "--forward-us", "5", "-"}},
	} {
		t.Setenv(cli.FabricVariable, "")
		lightpath.Refuse(t, c.stdin, c.says, append([]string{"iteration"}, c.args...)...)
	}
}

// TestIterationImport makes traces from each kind of file.
func TestIterationImport(t *testing.T) {
	dir := t.TempDir()
	job, dump := filepath.Join(dir, "job.json"), filepath.Join(dir, "rank0.json")
	lightpath.Succeed(t, "", "topology", "delta", "generate", "--model", "gpt-7b", "--full", "--out", job)
	d := &flight.Dump{Version: flight.Version, Comm: "c", Ranks: 2, Host: "h", PID: 1}
	for i := range int64(9) { // three iterations of three calls, and one group that has no place in a trace
		d.Operations = append(d.Operations, flight.Operation{Number: uint64(i + 1), Seq: uint64(i + 1), Call: "AllReduce",
			Bytes: 4 << (i % 3), Algorithm: "ring", Outcome: flight.Completed, Arrived: 1e6 * (i + i/3),
			Ended: 1e6*(i+i/3) + 1e5})
	}
	d.Operations = append(d.Operations, flight.Operation{Number: 10, Call: "Group", Outcome: flight.Completed})
	text, err := d.Encode()
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(dump, text, 0o600))
	const delta = "../../../plans/delta/"
	for name, c := range map[string]struct {
		calls int
		says  string
		args  []string
	}{
		"model":  {2*(4+3) + 1, "16 ranks", []string{"--model", "gpt-7b", "--micro-batches", "4"}},
		"flight": {3, "3 iterations of 3 calls", []string{dump}},
		"job":    {14, "16 ranks", []string{"--format", "job", job}},
		"aicb": {7, "7 calls", []string{"--format", "aicb", "--gpus-per-pod", "8", "--forward-us", "100", "--backward-us",
			"200", delta + "aicb/testdata/small.csv"}},
		"simai": {7, "7 calls", []string{"--format", "simai", "--gpus-per-pod", "8", delta + "aicb/testdata/small.txt"}},
	} {
		o := lightpath.Run(t, "", append([]string{"iteration", "import"}, c.args...)...)
		if o.Status != 0 || !strings.Contains(o.Stderr, c.says) {
			t.Errorf("%s: status %d: %s", name, o.Status, o.Stderr)
			continue
		}
		tr, err := trace.Decode([]byte(o.Stdout))
		if err != nil || len(tr.Calls) != c.calls {
			t.Errorf("%s: %d calls, want %d; %v", name, len(tr.Calls), c.calls, err)
		}
		if warned := strings.Contains(o.Stderr, "1 operations are left out"); warned != (name == "flight") {
			t.Errorf("%s: %s", name, o.Stderr)
		}
	}
	lightpath.Refuse(t, "", []string{"nothing is sent between pods"}, "iteration", "import", "--format", "chakra",
		"--gpus-per-pod", "2", delta+"chakra/testdata/pair.0.json", delta+"chakra/testdata/pair.1.json")
	d.Operations = d.Operations[:2]
	if text, err = d.Encode(); err != nil {
		t.Fatal(err)
	}
	if o := lightpath.Run(t, string(text), "iteration", "import", "-"); o.Status != cli.ExitNo ||
		!strings.Contains(o.Stderr,
			"no iteration repeats") {
		t.Errorf("%+v", o)
	}
}
