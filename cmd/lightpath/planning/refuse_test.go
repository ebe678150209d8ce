package planning

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"lightpath/cmd/lightpath/cli"
	"lightpath/cmd/lightpath/cli/clitest"
)

// TestProblemRules breaks each rule of the problem file format once: status 2, the field and its
// position, and no plan.
func TestProblemRules(t *testing.T) {
	const good = `{"version":1,"ranks":4,"planes":2,"bandwidth_gbps":400,"reconfig_us":200,` +
		`"steps":[{"bytes":5,"to":[1,0,3,2]},{"bytes":5,"flows":[[0,1],[0,2]]}]}`
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
	if o := lightpath.Run(t, good, "plan", "solve", "--planner", "perstep", "--in", "-"); o.Status == cli.ExitUsage {
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
			path := clitest.Write(t, "problem.json", c.text)
			lightpath.Refuse(t, "", append(c.says, path), "plan", "solve", "--planner", "perstep", "--in", path, "--out", out)
			if _, err := os.Stat(out); !os.IsNotExist(err) {
				t.Errorf("a file was written: %v", err)
			}
			lightpath.Refuse(t, c.text, append(c.says, "standard input"), "plan", "check", "--in", "-", "--plan", path)
		})
	}
}

// TestProblemFlagsRefused: numbers far outside their bounds are refused before a map is made for each plane, and an
// unknown planner under the name of its flag.
func TestProblemFlagsRefused(t *testing.T) {
	call := []string{"--collective", "allreduce", "--bytes", "1M"}
	for _, more := range [][]string{nil, {"--algorithm", "ring"}} {
		lightpath.Refuse(t, "", []string{"lightpath: --planner: ", "prayer"},
			slices.Concat([]string{"plan", "build", "--ranks", "4", "--planner", "prayer"}, call, more)...)
	}
	for _, command := range [][]string{{"build"}, {"build", "--algorithm", "ring"}, {"problem", "--algorithm", "ring"}} {
		for flag, numbers := range map[string][]string{
			"ranks": {"100000000000", "9223372036854775807"}, "planes": {"-1", "0", "65", "9223372036854775807"},
		} {
			for _, number := range numbers {
				args := slices.Concat([]string{"plan"}, command, call, []string{"--initial", "dark", "--" + flag, number})
				if flag == "planes" {
					args = append(args, "--ranks", "4")
				}
				lightpath.Refuse(t, "", []string{flag + ": " + number + " is outside"}, args...)
			}
		}
	}
}
