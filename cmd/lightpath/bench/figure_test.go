package bench

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestFigureCommand(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "figures")
	out := lightpath.Succeed(t, "", "figure", "swot", "8", "--quick", "--out", dir)
	for _, want := range []string{"printed 46.9 %, ours ", "p=10", "wrote " + filepath.Join(dir, "swot-8.svg")} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	for _, name := range []string{"swot-8.csv", "swot-8-printed.csv", "swot-8.json", "swot-8.svg", "swot-8.png"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Size() < 300 {
			t.Error(name, info, err)
		}
	}
	if out := lightpath.Succeed(t, "", "figure", "--list"); !strings.Contains(out, "harvest 5: ") ||
		!strings.Contains(out, "lightpath weave: ") {
		t.Errorf("list:\n%s", out)
	}
}

func TestFigureReport(t *testing.T) {
	dir := t.TempDir()
	out := lightpath.Succeed(t, "", "figure", "lightpath", "harvest", "--quick", "--out", dir)
	if !strings.HasPrefix(out, "what ") || !strings.Contains(out, "\nMeasured on ") {
		t.Errorf("%s", out)
	}
	if _, err := os.Stat(filepath.Join(dir, "lightpath-harvest.json")); err != nil {
		t.Error(err)
	}
}

func TestFigureOfDemand(t *testing.T) {
	file := filepath.Join(t.TempDir(), "m.txt")
	if err := os.WriteFile(file, []byte("# tokens\n0 4 2\n4 0 2\n1 1 0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out := lightpath.Succeed(t, "", "figure", "lightpath", "spectra", "--quick", "--demand", file, "--out",
		t.TempDir()); !strings.Contains(out, "given (n=3)") || strings.Contains(out, "GPT-like") {
		t.Errorf("%s", out)
	}
	lightpath.Refuse(t, "1 2\n3 -4\n", []string{"--demand -", "line 2: entry 2: -4 is negative"}, "figure", "lightpath",
		"spectra",
		"--demand", "-")
	lightpath.Refuse(t, "", []string{"--demand", "swot 8 takes no matrix"}, "figure", "swot", "8", "--demand", file)
}

func TestFigureRefuses(t *testing.T) {
	for _, c := range []struct {
		says []string
		args []string
	}{
		{[]string{"nosuch 5", "figure --list"}, []string{"figure", "nosuch", "5"}},
		{[]string{"swot 6", "figure --list"}, []string{"figure", "swot", "6"}},
		{[]string{"lightpath nosuch", "figure --list"}, []string{"figure", "lightpath", "nosuch"}},
		{[]string{"want a paper and a figure", "swot 7"}, []string{"figure"}},
		{[]string{"want a paper and a figure"}, []string{"figure", "swot"}},
		{[]string{"--runs", "-1"}, []string{"figure", "swot", "8", "--runs", "-1"}},
		{[]string{"--out", "/dev/null"}, []string{"figure", "swot", "8", "--out", "/dev/null/x"}},
	} {
		lightpath.Refuse(t, "", c.says, c.args...)
	}
}
