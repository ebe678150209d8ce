package planning

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"lightpath/cmd/lightpath/cli/clitest"
)

// TestPlanBuildChooses: without an algorithm, build chooses one, says what it considered, and the
// plan answers the problem of the algorithm that it names.
func TestPlanBuildChooses(t *testing.T) {
	for _, algorithm := range [][]string{nil, {"--algorithm", "auto"}} {
		args := []string{"--collective", "alltoall", "--ranks", "8", "--bytes", "8MB", "--planes", "2", "--alpha", "5"}
		o := lightpath.Run(t, "", slices.Concat([]string{"plan", "build", "--time-limit", "300ms"}, algorithm, args)...)
		lines := strings.Split(o.Stderr, "\n")
		if o.Status != 0 || len(lines) < 5 || !strings.HasPrefix(lines[0], "algorithm ") {
			t.Fatalf("%+v", o)
		}
		chosen, _, _ := strings.Cut(strings.TrimPrefix(lines[0], "algorithm "), ",")
		problem := lightpath.Succeed(t, "", slices.Concat([]string{"plan", "problem", "--algorithm", chosen}, args)...)
		if text := lightpath.Succeed(t, "", "plan", "check", "--in", clitest.Write(t, "problem.json", problem), "--plan",
			clitest.Write(t, "plan.json", o.Stdout)); !strings.Contains(text, "feasible") {
			t.Errorf("%s: %s", chosen, text)
		}
	}
}

// TestPods: the parts of an algorithm go to the pods of the fabric file, as in a job with that algorithm.
func TestPods(t *testing.T) {
	const planes = "version: 1\nranks: 6\nplanes:\n" +
		"- {name: a, bandwidth: 1Gbps, ocs: o}\n- {name: b, bandwidth: 1Gbps, ocs: o}\n" +
		"ocs: [{name: o, driver: emulator, reconfig: 1ms}]\n"
	problem := func(pods, algorithm, ranks string) string {
		return lightpath.Succeed(t, "", "plan", "problem", "--collective", "allreduce", "--algorithm", algorithm, "--ranks",
			ranks, "--bytes", "1M", "--fabric", clitest.Write(t, "fabric.yaml", planes+pods))
	}
	const pods = "pods: [[0, 2, 4], [1, 3, 5]]\n"
	for _, c := range []struct{ name, arranged, ranks string }{
		{"ring", "ring~0.2.4.1.3.5", "6"},
		{"hierarchical-ring", "hierarchical-ring:3~0.2.4.1.3.5", "6"},
		{"ring~5-0", "ring~5-0", "6"},
		{"ring", "ring~0.2.1.3", "4"},
	} {
		if got, want := problem(pods, c.name, c.ranks), problem("", c.arranged, c.ranks); got != want {
			t.Errorf("%s: %s, want %s", c.name, got, want)
		}
	}
}

// TestBuildWritesProblem: plan build leaves a problem beside the plan, with which plan check and plan show work.
func TestBuildWritesProblem(t *testing.T) {
	plan := filepath.Join(t.TempDir(), "p.json")
	lightpath.Succeed(t, "", "plan", "build", "--collective", "allreduce", "--algorithm", "ring", "--ranks", "4",
		"--bytes", "1M",
		"--out", plan)
	problem := strings.TrimSuffix(plan, ".json") + ".problem.json"
	lightpath.Succeed(t, "", "plan", "check", "--in", problem, "--plan", plan)
	lightpath.Succeed(t, "", "plan", "show", "--in", problem, "--plan", plan)
	other := filepath.Join(t.TempDir(), "other.json")
	lightpath.Succeed(t, "", "plan", "problem", "--collective", "allreduce", "--algorithm", "ring", "--ranks", "8",
		"--bytes", "1M",
		"--out", other)
	lightpath.Refuse(t, "", []string{"--in", other, "is not the problem of this plan"}, "plan", "show", "--in", other,
		"--plan",
		plan)
	if out := lightpath.Succeed(t, "", "plan", "build", "--collective", "allreduce", "--algorithm", "ring", "--ranks", "4",
		"--bytes", "1M",
		"--out", "/dev/null"); out != "" {
		t.Errorf("output %q", out)
	}
}
