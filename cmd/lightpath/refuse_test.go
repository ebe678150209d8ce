package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lightpath/docs/schema"
	"lightpath/shim"
	"lightpath/shim/settings"
)

// TestProblemRules breaks each rule of the problem file format once: status 2, the field and its
// position, and no plan.
func TestProblemRules(t *testing.T) {
	const good = `{"version":1,"ranks":4,"planes":2,"bandwidth_gbps":400,"reconfig_us":200,"steps":[{"bytes":5,"to":[1,0,3,2]},{"bytes":5,"flows":[[0,1],[0,2]]}]}`
	const demand = `{"version":1,"ranks":2,"planes":1,"bandwidth_gbps":400,"reconfig_us":200,"demand":[[0,1],[2,0]]}`
	swap := func(old, replacement string) string {
		t.Helper()
		if strings.Count(good, old) != 1 {
			t.Fatalf("%q is not once in the problem", old)
		}
		return strings.Replace(good, old, replacement, 1)
	}
	add := func(field string) string { return swap(`"version":1,`, `"version":1,`+field+",") }
	bigMap := func(n int) string {
		to := make([]string, n)
		for i := range to {
			to[i] = "-1"
		}
		return "[" + strings.Join(to, ",") + "]"
	}
	if o := command(t, good, "plan", "solve", "--planner", "perstep", "--in", "-"); o.status == exitUsage {
		t.Fatalf("the problem that all cases bend: %+v", o)
	}
	for _, c := range []struct {
		name, text string
		says       []string
	}{
		{"empty file", "", []string{"object"}},
		{"cut off", good[:60], []string{"line 1"}},
		{"more after it", good + "x", []string{"line 1"}},
		{"a list", "[]", []string{"object"}},
		{"no version", swap(`"version":1,`, ``), []string{"version", "missing"}},
		{"another version", swap(`"version":1`, `"version":2`), []string{"version", "2"}},
		{"no ranks", swap(`"ranks":4,`, ``), []string{"ranks", "missing"}},
		{"zero ranks", swap(`"ranks":4`, `"ranks":0`), []string{"ranks", "0"}},
		{"half a rank", swap(`"ranks":4`, `"ranks":4.5`), []string{"ranks", "4.5"}},
		{"ranks as text", swap(`"ranks":4`, `"ranks":"4"`), []string{"ranks", "number"}},
		{"too many ranks", swap(`"ranks":4`, `"ranks":4097`), []string{"ranks", "4097", "4096"}},
		{"no planes", swap(`"planes":2,`, ``), []string{"planes", "missing"}},
		{"zero planes", swap(`"planes":2`, `"planes":0`), []string{"planes", "0"}},
		{"too many planes", swap(`"planes":2`, `"planes":65`), []string{"planes", "65", "64"}},
		{"no bandwidth", swap(`"bandwidth_gbps":400,`, ``), []string{"bandwidth_gbps", "missing"}},
		{"zero bandwidth", swap(`"bandwidth_gbps":400`, `"bandwidth_gbps":0`), []string{"bandwidth_gbps"}},
		{"negative bandwidth", swap(`"bandwidth_gbps":400`, `"bandwidth_gbps":-1`), []string{"bandwidth_gbps", "-1"}},
		{"infinite bandwidth", swap(`"bandwidth_gbps":400`, `"bandwidth_gbps":1e999`), []string{"bandwidth_gbps", "finite"}},
		{"NaN", swap(`"bandwidth_gbps":400`, `"bandwidth_gbps":NaN`), []string{"bandwidth_gbps"}},
		{"no reconfiguration time", swap(`"reconfig_us":200,`, ``), []string{"reconfig_us", "missing"}},
		{"negative reconfiguration time", swap(`"reconfig_us":200`, `"reconfig_us":-200`), []string{"reconfig_us", "-200"}},
		{"negative alpha", add(`"alpha_us":-1`), []string{"alpha_us", "-1"}},
		{"negative hop", add(`"hop_us":-0.5`), []string{"hop_us", "-0.5"}},
		{"negative port cost", add(`"reconfig_per_port_us":-1`), []string{"reconfig_per_port_us", "-1"}},
		{"forwarding", add(`"forwarding":1`), []string{"forwarding"}},
		{"circuits", add(`"circuits":"triplex"`), []string{"circuits", "triplex"}},
		{"odd interleaved", strings.Replace(add(`"circuits":"interleaved"`), `"planes":2`, `"planes":3`, 1),
			[]string{"planes", "3"}},
		{"unknown field", add(`"speed":1`), []string{"speed", "unknown"}},
		{"unknown field of a step", swap(`"to":[1,0,3,2]`, `"to":[1,0,3,2],"name":"x"`),
			[]string{"steps[0].name", "unknown"}},
		{"a field twice", add(`"ranks":4`), []string{"ranks", "twice"}},
		{"neither steps nor demand", good[:strings.Index(good, `,"steps"`)] + "}", []string{"steps", "missing"}},
		{"both", add(`"demand":[[0,0,0,0],[0,0,0,0],[0,0,0,0],[0,0,0,0]]`), []string{"demand", "not both"}},
		{"a step without bytes", swap(`"bytes":5,"to"`, `"to"`), []string{"steps[0]", "bytes"}},
		{"negative bytes", swap(`"bytes":5,"to"`, `"bytes":-5,"to"`), []string{"steps[0].bytes", "-5"}},
		{"infinite bytes", swap(`"bytes":5,"flows"`, `"bytes":1e400,"flows"`), []string{"steps[1].bytes", "finite"}},
		{"to and flows", swap(`"to":[1,0,3,2]`, `"to":[1,0,3,2],"flows":[]`), []string{"steps[0]", "flows", "not both"}},
		{"neither", swap(`"bytes":5,"to":[1,0,3,2]`, `"bytes":5`), []string{"steps[0]", "to"}},
		{"short to", swap(`[1,0,3,2]`, `[1,0,3]`), []string{"steps[0].to", "3"}},
		{"long to", swap(`[1,0,3,2]`, `[1,0,3,2,-1]`), []string{"steps[0].to", "5"}},
		{"two senders to one", swap(`[1,0,3,2]`, `[1,0,1,2]`), []string{"steps[0].to[2]", "1"}},
		{"to outside", swap(`[1,0,3,2]`, `[1,0,3,4]`), []string{"steps[0].to[3]", "4"}},
		{"below -1", swap(`[1,0,3,2]`, `[1,0,3,-2]`), []string{"steps[0].to[3]", "-2"}},
		{"flow to itself", swap(`[0,2]`, `[2,2]`), []string{"steps[1].flows[1]", "2 -> 2"}},
		{"flow twice", swap(`[0,2]`, `[0,1]`), []string{"steps[1].flows[1]", "twice"}},
		{"flow outside", swap(`[0,2]`, `[0,4]`), []string{"steps[1].flows[1]", "4"}},
		{"flow of three", swap(`[0,2]`, `[0,2,3]`), []string{"steps[1].flows[1]"}},
		{"flow of one", swap(`[0,2]`, `[0]`), []string{"steps[1].flows[1]"}},
		{"one initial map of two", add(`"initial":[[1,0,3,2]]`), []string{"initial", "1"}},
		{"short initial map", add(`"initial":[[1,0,3,2],[1,0]]`), []string{"initial[1]", "2"}},
		{"initial twice the port", add(`"initial":[[1,0,3,2],[1,1,3,2]]`), []string{"initial[1][1]", "1"}},
		{"initial word", add(`"initial":"dark"`), []string{"initial"}},
		{"final word", add(`"final":"start"`), []string{"final", "start"}},
		{"final maps", add(`"final":[[1,0,3,2]]`), []string{"final", "1"}},
		{"initial of a duplex plane", add(`"circuits":"duplex","initial":[[1,0,3,2],[1,2,3,0]]`),
			[]string{"initial[1]", "duplex"}},
		{"initial of interleaved planes", add(`"circuits":"interleaved","initial":[[1,2,3,0],[1,2,3,0]]`),
			[]string{"initial[0]", "interleaved"}},
		{"rows of the demand", strings.Replace(demand, `[[0,1],[2,0]]`, `[[0,1]]`, 1), []string{"demand", "1"}},
		{"columns of the demand", strings.Replace(demand, `[2,0]`, `[2]`, 1), []string{"demand[1]", "1"}},
		{"negative demand", strings.Replace(demand, `[2,0]`, `[-2,0]`, 1), []string{"demand[1][0]", "-2"}},
		{"infinite demand", strings.Replace(demand, `[2,0]`, `[1e999,0]`, 1), []string{"demand[1][0]", "finite"}},
		{"a map beyond all ranks", swap(`[1,0,3,2]`, bigMap(4097)), []string{"steps[0].to"}},
	} {
		t.Run(strings.ReplaceAll(c.name, " ", "_"), func(t *testing.T) {
			out := filepath.Join(t.TempDir(), "plan.json")
			path := write(t, "problem.json", c.text)
			refuse(t, "", append(c.says, path), "plan", "solve", "--planner", "perstep", "--in", path, "--out", out)
			if _, err := os.Stat(out); !os.IsNotExist(err) {
				t.Errorf("a file was written: %v", err)
			}
			refuse(t, c.text, append(c.says, "standard input"), "plan", "check", "--in", "-", "--plan", path)
		})
	}
}

func TestRefusedArguments(t *testing.T) {
	problem := write(t, "problem.json", swotProblem(t, nil))
	none := filepath.Join(t.TempDir(), "none.json")
	solve := func(more ...string) []string { return append([]string{"plan", "solve", "--in", problem}, more...) }
	build := func(more ...string) []string {
		return append([]string{"plan", "problem", "--collective", "allreduce", "--algorithm", "ring", "--ranks", "4",
			"--bytes", "1M"}, more...)
	}
	auto := func(more ...string) []string {
		return append([]string{"plan", "build", "--collective", "allreduce", "--ranks", "4", "--bytes", "1M", "--time-limit",
			"20ms"}, more...)
	}
	bench := func(more ...string) []string { return append([]string{"bench", "allreduce"}, more...) }
	for _, c := range []struct {
		args []string
		says []string
	}{
		{[]string{"fly"}, []string{"fly"}},
		{[]string{"plan", "fly"}, []string{"fly"}},
		{[]string{"--fly"}, []string{"--fly"}},
		{solve("--fly"), []string{"--fly"}},
		{solve("more"), []string{"more"}},
		{solve("--planner", "magic"), []string{"--planner", "magic", "swot"}},
		{solve("--planner", ""), []string{"--planner"}},
		{solve("--time-limit", "soon"), []string{"--time-limit", "soon"}},
		{solve("--time-limit", "2"), []string{"--time-limit", "2"}},
		{solve("--time-limit", "0s"), []string{"--time-limit", "0s"}},
		{solve("--time-limit", "-1s"), []string{"--time-limit", "-1s"}},
		{solve("--seed", "x"), []string{"--seed"}},
		{solve("--out", filepath.Join(none, "plan.json")), []string{"--out", "none.json"}},
		{[]string{"plan", "solve"}, []string{"--in", "required"}},
		{[]string{"plan", "solve", "--in", none}, []string{"--in", none}},
		{[]string{"plan", "solve", "--in", t.TempDir()}, []string{"--in"}},
		{[]string{"plan", "check", "--in", problem}, []string{"--plan", "required"}},
		{[]string{"plan", "check", "--in", "-", "--plan", "-"}, []string{"--in", "--plan", "both"}},
		{[]string{"plan", "check", "--in", problem, "--plan", none}, []string{"--plan", none}},
		{[]string{"plan", "check", "--in", problem, "--plan", problem}, []string{problem, "planes"}},
		{[]string{"plan", "show", "--plan", none}, []string{"--plan", none}},
		{[]string{"plan", "problem"}, []string{"--collective", "required"}},
		{[]string{"plan", "build"}, []string{"--collective", "required"}},
		{auto("--initial", "first"), []string{"--initial", "--algorithm"}},
		{auto("--bytes", "lots"), []string{"--bytes", "lots"}},
		{auto("--bandwidth", "0"), []string{"bandwidth"}},
		{auto("--planner", "magic"), []string{"planner", "magic"}},
		{auto("--time-limit", "0s"), []string{"--time-limit"}},
		{build("--collective", "gossip"), []string{"--collective", "gossip"}},
		{build("--algorithm", "telepathy"), []string{"telepathy"}},
		{build("--algorithm", "auto"), []string{"--algorithm", "plan build"}},
		{build("--ranks", "-1"), []string{"--ranks"}},
		{build("--ranks", "5000"), []string{"5000"}},
		{build("--bytes", "lots"), []string{"--bytes", "lots"}},
		{build("--planes", "0"), []string{"planes"}},
		{build("--bandwidth", "400furlongs"), []string{"--bandwidth", "400furlongs"}},
		{build("--bandwidth", "-4Gbps"), []string{"--bandwidth", "-4Gbps"}},
		{build("--reconfig", "200moons"), []string{"--reconfig", "200moons"}},
		{build("--initial", "warm"), []string{"--initial", "warm"}},
		{build("--reconfig", "-1us"), []string{"reconfig_us", "-1"}},
		{build("--circuits", "triplex"), []string{"circuits", "triplex"}},
		{build("--final", "start"), []string{"--final", "start"}},
		{build("--collective", "broadcast", "--algorithm", "binomial", "--root", "9"), []string{"root", "9"}},
		{[]string{"sim", "--in", problem, "--plan", none}, []string{"--plan", none}},
		{[]string{"schema"}, []string{"1 arg"}},
		{[]string{"schema", "dream"}, []string{"dream", "problem"}},
		{[]string{"ocsd"}, []string{"--config"}},
		{[]string{"ocsd", "--config", none}, []string{none}},
		{[]string{"run", "-n", "0", "--", "true"}, []string{"-n", "0"}},
		{[]string{"run"}, []string{"arg"}},
		{[]string{"demo", "--break", "bones"}, []string{"--break", "bones"}},
		{[]string{"demo", "--iters", "0"}, []string{"--iters", "0"}},
		{[]string{"doctor", "more"}, []string{"more"}},
		{[]string{"bench"}, []string{"arg"}},
		{[]string{"bench", "gossip"}, []string{"gossip"}},
		{bench("-n", "0"), []string{"-n"}},
		{bench("-b", "x"), []string{"-b", `"x"`}},
		{bench("-e", "x"), []string{"-e", `"x"`}},
		{bench("-b", "8K", "-e", "8"), []string{"-e", "8K"}},
		{bench("-f", "1"), []string{"-f"}},
		{bench("-f", "NaN"), []string{"-f"}},
		{bench("-d", "quad"), []string{"-d", "quad"}},
		{bench("-o", "xor"), []string{"-o", "xor"}},
		{bench("-i", "0"), []string{"-i"}},
		{bench("-w", "-1"), []string{"-w"}},
		{bench("-r", "2"), []string{"-r", "2"}},
		{bench("--transport", "pigeon"), []string{"--transport", "pigeon"}},
		{bench("--algorithm", "telepathy"), []string{"--algorithm", "telepathy", "ring"}},
		{bench("--planner", "magic"), []string{"--planner", "magic"}},
		{bench("--planes", "-1"), []string{"--planes"}},
		{bench("--memory", "core"), []string{"--memory", "core"}},
		{bench("--graph", "2"), []string{"--graph", "--memory device"}},
		{bench("--graph", "2", "--memory", "device", "--sync"), []string{"--graph", "--sync"}},
		{bench("--library", "/lib/libnccl.so"), []string{"--library", "libnccl.so.2"}},
		{bench("--fabric", none), []string{"--fabric", none}},
	} {
		refuse(t, "", c.says, c.args...)
	}
}

func TestHelpAndVersion(t *testing.T) {
	for _, args := range [][]string{{}, {"--help"}, {"help"}, {"plan"}, {"plan", "solve", "--help"}, {"bench", "--help"}} {
		if text := succeed(t, "", args...); !strings.Contains(text, "Usage:") {
			t.Errorf("lightpath %v prints %.80q", args, text)
		}
	}
	if text := succeed(t, "", "--version"); !strings.Contains(text, shim.Version) {
		t.Errorf("--version prints %q", text)
	}
}

func TestSchema(t *testing.T) {
	for _, name := range schema.Names() {
		var s map[string]any
		if err := json.Unmarshal([]byte(succeed(t, "", "schema", name)), &s); err != nil || s["$schema"] == nil {
			t.Errorf("schema %s: %v", name, err)
		}
	}
}

func TestDoctor(t *testing.T) {
	t.Setenv("NCCL_DEBUG", "INFO")
	text := succeed(t, "", "doctor", "--env")
	for _, name := range []string{"LIGHTPATH_TRANSPORT", "LIGHTPATH_FABRIC", "LIGHTPATH_PLANNER", "LIGHTPATH_TIMEOUT",
		"NCCL_DEBUG", "NCCL_DEBUG_FILE",
		"NCCL_DEBUG_SUBSYS", "NCCL_SOCKET_IFNAME", "NCCL_COMM_ID"} {
		if !strings.Contains(text, name+" (") {
			t.Errorf("doctor --env does not list %s", name)
		}
	}
	if !strings.Contains(text, "now: INFO") {
		t.Error("doctor --env does not say what NCCL_DEBUG is")
	}
	var rows []map[string]string
	if err := json.Unmarshal([]byte(succeed(t, "", "doctor", "--env", "--json")), &rows); err != nil ||
		len(rows) != len(settings.Vars()) {
		t.Errorf("doctor --env --json: %d rows, %v", len(rows), err)
	}
	// Beside a test binary there is no installation: unhealthy, status 1, in both forms.
	o := command(t, "", "doctor")
	if o.status != exitNo || !strings.Contains(o.stdout, "FAIL libnccl.so.2") ||
		!strings.Contains(o.stdout, "ok   version") {
		t.Errorf("doctor: %+v", o)
	}
	var findings []finding
	o = command(t, "", "doctor", "--json")
	if err := json.Unmarshal([]byte(o.stdout), &findings); err != nil || o.status != exitNo || len(findings) == 0 {
		t.Errorf("doctor --json: %+v, %v", o, err)
	}
}

func TestRun(t *testing.T) {
	o := command(t, "", "run", "-n", "2", "--preload=false", "--", "sh", "-c", "echo $RANK of $WORLD_SIZE; echo oops >&2")
	if o.status != 0 || !strings.Contains(o.stdout, "[0] 0 of 2\n") || !strings.Contains(o.stdout, "[1] 1 of 2\n") ||
		strings.Count(o.stderr, "oops") != 2 {
		t.Errorf("run: %+v", o)
	}
	o = command(t, "", "run", "-n", "2", "--preload=false", "--", "sh", "-c", "test $RANK = 0 || exit 3; exec sleep 60")
	if o.status != exitNo || !strings.Contains(o.stderr, "rank 1: exit status 3") {
		t.Errorf("a rank that fails: %+v", o)
	}
}
