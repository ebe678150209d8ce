package main

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A bare number is in the units of the problem file, so that its fields can be copied.
func TestUnitsOfFlags(t *testing.T) {
	for text, want := range map[string]float64{"200": 200, "200us": 200, "1.5ms": 1500, "0": 0} {
		var m micros
		if err := m.Set(text); err != nil || float64(m) != want {
			t.Errorf("%s: %v us, %v; want %v", text, m, err, want)
		}
	}
	for text, want := range map[string]float64{"400": 400, "400Gbps": 400, "500Mbps": 0.5} {
		var g gbps
		if err := g.Set(text); err != nil || float64(g) != want {
			t.Errorf("%s: %v Gb/s, %v; want %v", text, g, err, want)
		}
	}
}

// TestPlanBuildChooses: without an algorithm, build chooses one, says what it considered, and the
// plan answers the problem of the algorithm that it names.
func TestPlanBuildChooses(t *testing.T) {
	for _, algorithm := range [][]string{nil, {"--algorithm", "auto"}} {
		args := []string{"--collective", "alltoall", "--ranks", "8", "--bytes", "8MB", "--planes", "2", "--alpha", "5"}
		o := command(t, "", slices.Concat([]string{"plan", "build", "--time-limit", "300ms"}, algorithm, args)...)
		lines := strings.Split(o.stderr, "\n")
		if o.status != 0 || len(lines) < 5 || !strings.HasPrefix(lines[0], "algorithm ") {
			t.Fatalf("%+v", o)
		}
		chosen, _, _ := strings.Cut(strings.TrimPrefix(lines[0], "algorithm "), ",")
		problem := succeed(t, "", slices.Concat([]string{"plan", "problem", "--algorithm", chosen}, args)...)
		if text := succeed(t, "", "plan", "check", "--in", write(t, "problem.json", problem), "--plan",
			write(t, "plan.json", o.stdout)); !strings.Contains(text, "feasible") {
			t.Errorf("%s: %s", chosen, text)
		}
	}
}

// TestBuildWritesProblem: plan build leaves a problem beside the plan, with which plan check and plan show work.
func TestBuildWritesProblem(t *testing.T) {
	plan := filepath.Join(t.TempDir(), "p.json")
	succeed(t, "", "plan", "build", "--collective", "allreduce", "--algorithm", "ring", "--ranks", "4", "--bytes", "1M",
		"--out", plan)
	problem := strings.TrimSuffix(plan, ".json") + ".problem.json"
	succeed(t, "", "plan", "check", "--in", problem, "--plan", plan)
	succeed(t, "", "plan", "show", "--in", problem, "--plan", plan)
	other := filepath.Join(t.TempDir(), "other.json")
	succeed(t, "", "plan", "problem", "--collective", "allreduce", "--algorithm", "ring", "--ranks", "8", "--bytes", "1M",
		"--out", other)
	refuse(t, "", []string{"--in", other, "is not the problem of this plan"}, "plan", "show", "--in", other, "--plan",
		plan)
	if out := succeed(t, "", "plan", "build", "--collective", "allreduce", "--algorithm", "ring", "--ranks", "4",
		"--bytes", "1M",
		"--out", "/dev/null"); out != "" {
		t.Errorf("output %q", out)
	}
}
