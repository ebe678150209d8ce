package topology

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"lightpath/cmd/lightpath/cli/clitest"
	"lightpath/plans/mip/solver"
)

// deltaJob writes a small job file.
func deltaJob(t *testing.T) string {
	t.Helper()
	job := filepath.Join(t.TempDir(), "job.json")
	lightpath.Succeed(t, "", "topology", "delta", "generate", "--model", "gpt-7b", "--micro-batches", "2", "--out", job)
	return job
}

func TestDeltaExactWrites(t *testing.T) {
	job, dir := deltaJob(t), t.TempDir()
	for name, want := range map[string]string{"model.lp": "Subject To", "model.mps": "ROWS"} {
		path := filepath.Join(dir, name)
		lightpath.Succeed(t, "", "topology", "delta", "exact", "--in", job, "--write", path)
		if !strings.Contains(clitest.Content(t, path), want) {
			t.Errorf("%s without %s", name, want)
		}
	}
	for _, tc := range [][2]string{{"--write=model.txt", "ends in .lp or .mps"}, {"--model=both", "--model"},
		{"--time-limit=0s", "--time-limit"},
		{"--margin=-2", "--margin"}, {"--solver=abacus", "abacus"}} {
		lightpath.Refuse(t, "", []string{tc[1]}, "topology", "delta", "exact", "--in", job, tc[0])
	}
}

func TestDeltaExactSolves(t *testing.T) {
	if _, err := solver.Find("auto"); errors.Is(err, solver.ErrNone) {
		t.Skip(err)
	}
	job, dir := deltaJob(t), t.TempDir()
	topology, page := filepath.Join(dir, "topology.json"), filepath.Join(dir, "page.html")
	lightpath.Succeed(t, "", "topology", "delta", "exact", "--in", job, "--time-limit", "5s", "--out", topology,
		"--report", page,
		"--schedule", filepath.Join(dir, "s.json"))
	if !strings.Contains(clitest.Content(t, page), "Gradients from") {
		t.Error("no gradients in the page")
	}
	lightpath.Succeed(t, "", "topology", "delta", "simulate", "--in", job, "--topology", topology, "--sharing", "critical",
		"--report", page)
}

func TestDeltaImport(t *testing.T) {
	small, pair := filepath.Join("..", "..", "..", "plans", "delta", "aicb", "testdata"),
		filepath.Join("..", "..", "..", "plans", "delta", "chakra", "testdata")
	out := filepath.Join(t.TempDir(), "job.json")
	to := func(format string, files ...string) []string {
		return append([]string{"topology", "delta", "import", "--format", format, "--gpus-per-pod", "2", "--out", out},
			files...)
	}
	for _, args := range [][]string{to("simai", filepath.Join(small, "small.txt")),
		to("aicb", filepath.Join(small, "small.csv"), "--reduce"),
		to("chakra", filepath.Join(pair, "pair.0.json"), filepath.Join(pair, "pair.1.json"))} {
		lightpath.Succeed(t, "", args...)
		lightpath.Succeed(t, "", "topology", "delta", "plan", "--in", out, "--out", filepath.Join(t.TempDir(), "t.json"))
	}
	lightpath.Refuse(t, "", []string{"line 1"}, to("simai", filepath.Join(small, "small.csv"))...)
	lightpath.Refuse(t, "", []string{"--format"}, to("astra", filepath.Join(small, "small.csv"))...)
	lightpath.Refuse(t, "", []string{"one file"}, to("aicb", filepath.Join(small, "small.csv"),
		filepath.Join(small, "small.csv"))...)
	lightpath.Refuse(t, "", []string{"small.csv", "cut short"}, to("chakra", filepath.Join(pair, "pair.0.json"),
		filepath.Join(small, "small.csv"))...)
}
