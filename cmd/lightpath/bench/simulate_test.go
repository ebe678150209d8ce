package bench

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lightpath/bench/protocols"
	"lightpath/cmd/lightpath/cli"
	"lightpath/cmd/lightpath/cli/clitest"
)

// TestSimulate checks that equal flags print equal summaries, and that a diagram is drawn.
func TestSimulate(t *testing.T) {
	svg := filepath.Join(t.TempDir(), "run.svg")
	first := lightpath.Run(t, "", "simulate", "--operations", "5", "--svg", svg)
	again := lightpath.Run(t, "", "simulate", "--operations", "5", "--seed", "1")
	if first.Status != 0 || first.Stdout != again.Stdout || !strings.Contains(first.Stdout, "1 runs, ") {
		t.Errorf("%+v, then %+v", first, again)
	}
	if text := clitest.Content(t, svg); !strings.Contains(text, "End of a simulated run") {
		t.Error(text)
	}
	if o := lightpath.Run(t, "", "simulate", "--operations", "5", "--json"); o.Status != 0 ||
		!strings.Contains(o.Stdout, `"coverage"`) {
		t.Errorf("%+v", o)
	}
}

// TestSimulateViolation checks what a violation prints, and that the file of the run makes it again.
func TestSimulateViolation(t *testing.T) {
	was := simulate
	t.Cleanup(func() { simulate = was })
	simulate = func(cfg protocols.Config, c protocols.Chooser) *protocols.Result {
		r := &protocols.Result{Operations: 1}
		for range 20 {
			if c.Choose(100) >= 90 && cfg.Planes > 1 {
				r.Violation = errors.New("one-leader: two controllers lead")
			}
		}
		return r
	}
	o := lightpath.Run(t, "", "simulate", "--runs", "100", "--planes", "5")
	const says = "lightpath: one-leader: two controllers lead; to repeat: lightpath simulate --seed 1 --planes 5\n"
	if o.Status != cli.ExitNo || o.Stderr != says {
		t.Errorf("%+v", o)
	}
	file := filepath.Join(t.TempDir(), "failed.json")
	o = lightpath.Run(t, "", "simulate", "--runs", "100", "--planes", "5", "--out", file)
	if o.Status != cli.ExitNo || !strings.HasSuffix(o.Stderr, "to repeat: lightpath simulate --in "+file+"\n") {
		t.Errorf("%+v", o)
	}
	if text := clitest.Content(t, file); !strings.Contains(text, `"planes":2,`) ||
		!strings.Contains(text, `"choices":[90]`) {
		t.Error(text)
	}
	if o = lightpath.Run(t, "", "simulate", "--in", file, "--json"); o.Status != cli.ExitNo ||
		!strings.Contains(o.Stdout, `"invariant": "one-leader"`) {
		t.Errorf("%+v", o)
	}
	simulate = was
	if o = lightpath.Run(t, "", "simulate", "--in", file); o.Status != 0 ||
		!strings.Contains(o.Stderr, "does not violate one-leader") {
		t.Errorf("%+v", o)
	}
}

func TestSimulateRefuses(t *testing.T) {
	file := filepath.Join(t.TempDir(), "bad.json")
	if err := os.WriteFile(file, []byte(`{"version": 2, "config": {"planes": -2}, "seed": 1}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ args, says string }{
		{"--runs 0", "--runs: 0; at least 1"},
		{"--planes 65", "--planes: 65 is outside 1..64"},
		{"--fault fire", `--fault: there is no fault "fire"`},
		{"--seed -1", `--seed "-1": want a whole number of at least 0`},
		{"--seed 9007199254740991 --runs 2", "--seed: 9007199254740991 is too large for 2 runs"},
		{"--in " + file + " --seed 2", "--seed and --in: the file has the world and the choices"},
		{"--in " + file, file + ": config.planes: -2 is outside 1..64"},
		{"--json --svg -", "--json, --out -, --svg -: standard output takes one of them"},
		{"--oprations 2", "did you mean --operations?"},
	} {
		lightpath.Refuse(t, "", []string{c.says}, append([]string{"simulate"}, strings.Fields(c.args)...)...)
	}
}
