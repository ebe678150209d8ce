package main

import (
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
		if text := succeed(t, "", "plan", "check", "--in", write(t, "problem.json", problem), "--plan", write(t, "plan.json", o.stdout)); !strings.Contains(text, "feasible") {
			t.Errorf("%s: %s", chosen, text)
		}
	}
}
