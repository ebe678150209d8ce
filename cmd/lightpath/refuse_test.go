package main

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"lightpath/cmd/lightpath/cli/clitest"
	"lightpath/docs/schema"
	"lightpath/shim"
)

func TestRefusedArguments(t *testing.T) {
	problem := clitest.Write(t, "problem.json", lightpath.Succeed(t, "", "plan", "problem", "--collective",
		"allreduce", "--algorithm", "ring", "--ranks", "4", "--bytes", "1M"))
	none := filepath.Join(t.TempDir(), "none.json")
	solve := func(more ...string) []string { return append([]string{"plan", "solve", "--in", problem}, more...) }
	build := func(more ...string) []string {
		return append([]string{"plan", "problem", "--collective", "allreduce", "--algorithm", "ring", "--ranks", "4",
			"--bytes", "1M"}, more...)
	}
	auto := func(more ...string) []string {
		return append([]string{"plan", "build", "--collective", "allreduce", "--ranks", "4", "--bytes", "1M", "--time-limit",
			"1m"}, more...)
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
		{[]string{"plan", "show", "--in", "-", "--plan", "-"}, []string{"--in", "--plan", "both"}},
		{[]string{"plan", "check", "--in", problem, "--plan", none}, []string{"--plan", none}},
		{[]string{"plan", "check", "--in", problem, "--plan", problem}, []string{problem, "planes"}},
		{[]string{"plan", "show", "--plan", none}, []string{"--plan", none}},
		{[]string{"plan", "cache", "ls", "--dir", none}, []string{"--dir", none}},
		{[]string{"plan", "problem"}, []string{"--collective", "required"}},
		{[]string{"plan", "build"}, []string{"--collective", "required"}},
		{auto("--initial", "first"), []string{"--initial", "--algorithm"}},
		{auto("--bytes", "lots"), []string{"--bytes", "lots"}},
		{auto("--bandwidth", "0"), []string{"bandwidth"}},
		{auto("--planner", "magic"), []string{"planner", "magic"}},
		{auto("--time-limit", "0s"), []string{"--time-limit"}},
		{[]string{"plan", "problem", "--collective", "allreduce", "--ranks", "2"},
			[]string{": --algorithm and --bytes are required"}},
		{[]string{"fabric", "status", "--fabric", none}, []string{"--fabric: ", none}},
		{[]string{"completion", "cmd"}, []string{`unknown command "cmd"`}},
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
		{build("--root", "9"), []string{"--root: 9 is outside 0..3"}},
		{auto("--root", "-1"), []string{"--root: -1 is outside 0..3"}},
		{build("--algorithm", "ring:x"), []string{"--algorithm: ", "ring:x"}},
		{build("--form", "short"), []string{`--form "short": want auto, expanded or compact`}},
		{[]string{"schedule", "show", "--collective", "allreduce", "--algorithm", "ring", "--ranks", "4", "--root", "4"},
			[]string{"--root: 4 is outside 0..3"}},
		{[]string{"ocs", "status", "--controller", "127.0.0.1:1", "--timeout", "0s"},
			[]string{"--timeout: 0s is not positive"}},
		{[]string{"ocs", "history", "--controller", "127.0.0.1:1", "--timeout", "-1s"}, []string{"--timeout: -1s"}},
		{[]string{"jobs", "end", "1", "--controller", "127.0.0.1:1", "--timeout", "0s"}, []string{"--timeout: 0s"}},
		{[]string{"ranks", "--timeout", "-1s"}, []string{"--timeout: -1s is not positive"}},
		{[]string{"iteration", "import", "--forward-us", "NaN"}, []string{"--forward-us NaN: want files"}},
		{[]string{"iteration", "record", "--out", filepath.Join(none, "x"), "--", "true"}, []string{"--out: ", none}},
		{[]string{"simulate", "--out", filepath.Join(none, "x")}, []string{"--out: ", none}},
		{[]string{"sim", "--in", problem, "--plan", none}, []string{"--plan", none}},
		{[]string{"schema"}, []string{"an argument is missing"}},
		{[]string{"schema", "dream"}, []string{"dream", "problem"}},
		{[]string{"ocsd"}, []string{"--config"}},
		{[]string{"ocsd", "--config", none}, []string{"--config", none}},
		{[]string{"ocs", "drift"}, []string{"--fabric", "--controller"}},
		{[]string{"ocs", "emulate", "--preset", "magic", "--scpi", "127.0.0.1:0"}, []string{"magic", "polatis-25ms"}},
		{[]string{"topology", "lumos", "place", "--gpus", "-5"}, []string{"--gpus", "-5"}},
		{[]string{"run", "-n", "0", "--", "true"}, []string{"-n", "0"}},
		{[]string{"run"}, []string{"arg"}},
		{[]string{"demo", "--break", "bones"}, []string{"--break", "bones"}},
		{[]string{"demo", "--iters", "0"}, []string{"--iters", "0"}},
		{[]string{"demo", "--report", t.TempDir()}, []string{"--report", "is a directory"}},
		{[]string{"demo", "--json", filepath.Join(none, "x")}, []string{"--json", none}},
		{[]string{"doctor", "more"}, []string{"more"}},
		{[]string{"bench"}, []string{"arg"}},
		{[]string{"bench", "gossip"}, []string{"gossip"}},
		{bench("-n", "0"), []string{"-n"}},
		{bench("-n", "9223372036854775807"), []string{"-n: 9223372036854775807 is outside 1..4096"}},
		{bench("-i", "9223372036854775807"), []string{"-i: 9223372036854775807 is outside 1..1073741824"}},
		{bench("-w", "9223372036854775807"), []string{"-w: 9223372036854775807 is outside"}},
		{bench("--rest", "2540400h"), []string{"--rest: 2540400h0m0s is outside"}},
		{[]string{"bench", "alltoallv", "--planes", "99999999999"}, []string{"--planes: 99999999999 is outside 1..64"}},
		{[]string{"bench", "alltoallv", "--ranks", "99999999999"}, []string{"-n: 99999999999 is outside 2..4096"}},
		{[]string{"bench", "alltoallv", "--matrix", none}, []string{": --matrix: open " + none}},
		{[]string{"bench", "barrier", "--rounds", "99999999999"}, []string{"--rounds: 99999999999 is outside"}},
		{[]string{"bench", "barrier", "--ranks", "99999999999"}, []string{"--ranks: \"99999999999\""}},
		{[]string{"bench", "latency", "--ranks", "99999999999"}, []string{"-n: 99999999999 is outside 2..4096"}},
		{[]string{"bench", "latency", "--calls", "99999999999"}, []string{"--calls: 99999999999 is outside"}},
		{[]string{"run", "-n", "99999999999", "--", "true"}, []string{"-n: 99999999999 is outside 1..4096"}},
		{bench("-b", "x"), []string{"-b", `"x"`}},
		{bench("-e", "x"), []string{"-e", `"x"`}},
		{bench("-b", "8K", "-e", "8"), []string{"-e", "8K"}},
		{bench("-f", "1"), []string{"-f"}},
		{bench("-f", "NaN"), []string{"-f"}},
		{bench("-d", "quad"), []string{"-d", "quad", "float, double"}},
		{bench("-o", "xor"), []string{"-o", "xor", "sum, prod"}},
		{bench("-i", "0"), []string{"-i"}},
		{bench("-w", "-1"), []string{": -w: -1 is outside 0.."}},
		{bench("-r", "2"), []string{"-r", "2"}},
		{bench("--transport", "pigeon"), []string{"--transport", "pigeon"}},
		{bench("--algorithm", "telepathy"), []string{"--algorithm", "telepathy", "ring"}},
		{bench("-n", "4", "--algorithm", "msccl:../../collectives/schedule/msccl/testdata/allreduce-ring-3.xml"),
			[]string{"wrong file", "ngpus: 3, want 4"}},
		{bench("--planner", "magic"), []string{"--planner", "magic", "swot, weave"}},
		{bench("--planner", "swot"), []string{"--planner", "--fabric"}},
		{bench("-b", "0", "-e", "1M"), []string{"-b", "0", "-e 1M"}},
		{bench("--planes", "-1"), []string{"--planes"}},
		{bench("--planes", "17"), []string{"--planes: 17 is outside 0..16"}},
		{[]string{"bench", "latency", "--calls", "0"}, []string{": --calls: 0 is outside 1..10000000"}},
		{[]string{"bench", "alltoallv", "--skew", "-1"}, []string{"--skew: -1"}},
		{[]string{"bench", "peers", "--collective", "gossip"}, []string{"--collective", "gossip"}},
		{[]string{"bench", "peers", "--resume"}, []string{"--resume needs --out"}},
		{[]string{"bench", "barrier", "--rounds", "-1"}, []string{"--rounds", "-1"}},
		{bench("--timeout", "-1s"), []string{"--timeout", "-1s"}},
		{bench("--rest", "-1s"), []string{"--rest", "-1s"}},
		{bench("--device", "0"), []string{"--device", "--memory device"}},
		{bench("--json", filepath.Join(none, "x")), []string{"--json", none}},
		{bench("--memory", "core"), []string{"--memory", "core"}},
		{bench("--graph", "2"), []string{"--graph", "--memory device"}},
		{bench("--fit", "--transport", "shm"), []string{"--fit", "tcp"}},
		{bench("--fit", "-b", "8", "-e", "8"), []string{"--fit", "two sizes"}},
		{bench("--graph", "2", "--memory", "device", "--sync"), []string{"--graph", "--sync"}},
		{bench("--library", "/lib/libnccl.so"), []string{"--library", "libnccl.so.2"}},
		{bench("--fabric", none), []string{"--fabric", none}},
	} {
		lightpath.Refuse(t, "", c.says, c.args...)
	}
}

func TestHelpAndVersion(t *testing.T) {
	for _, args := range [][]string{{}, {"--help"}, {"help"}, {"plan"}, {"plan", "solve", "--help"}, {"bench", "--help"}} {
		if text := lightpath.Succeed(t, "", args...); !strings.Contains(text, "Usage:") {
			t.Errorf("lightpath %v prints %.80q", args, text)
		}
	}
	if text := lightpath.Succeed(t, "", "--version"); !strings.Contains(text, shim.Version) {
		t.Errorf("--version prints %q", text)
	}
}

func TestSchema(t *testing.T) {
	for _, name := range schema.Names() {
		var s map[string]any
		if err := json.Unmarshal([]byte(lightpath.Succeed(t, "", "schema", name)), &s); err != nil || s["$schema"] == nil {
			t.Errorf("schema %s: %v", name, err)
		}
	}
}
