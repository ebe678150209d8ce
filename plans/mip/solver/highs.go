package solver

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"

	"lightpath/plans/mip"
)

// highsDriver calls HiGHS through its Python module, which is how it is distributed: there is no
// Debian package, and the module has no program.
//
//go:embed highs.py
var highsDriver []byte

// highs runs HiGHS (PyPI's highspy).
type highs struct{ python string }

func findHiGHS() (Solver, error) {
	python, err := exec.LookPath("python3")
	if err == nil {
		err = exec.Command(python, "-c",
			"import importlib.util, sys; sys.exit(importlib.util.find_spec('highspy') is None)").Run()
	}
	if err != nil {
		return nil, fmt.Errorf("%w: highs (PyPI's highspy, for python3)", ErrNone)
	}
	return highs{python}, nil
}

func (highs) Name() string { return "highs" }

func (h highs) Solve(ctx context.Context, p *mip.Program, o Options) (Result, error) {
	j, err := newJob(p)
	if err != nil {
		return Result{}, err
	}
	defer j.close()
	asked := struct {
		TimeLimit float64   `json:"time_limit"`
		Gap       float64   `json:"gap"`
		Threads   int       `json:"threads"`
		Start     []float64 `json:"start"`
		Names     []string  `json:"names"`
	}{o.TimeLimit.Seconds(), o.Gap, o.Threads, nil, nil}
	for i, x := range o.Start {
		asked.Names = append(asked.Names, p.Name(mip.Var(i)))
		asked.Start = append(asked.Start, x)
	}
	text, err := json.Marshal(asked)
	if err != nil {
		return Result{}, fmt.Errorf("%w: %w", ErrSolver, err)
	}
	for name, text := range map[string][]byte{"options.json": text, "driver.py": highsDriver} {
		if err := j.write(name, text); err != nil {
			return Result{}, err
		}
	}
	log, err := j.run(ctx, o, h.python, j.path("driver.py"), j.dir)
	if err != nil {
		return Result{}, err
	}
	text, err = os.ReadFile(j.path("result.json"))
	if err != nil {
		return Result{}, fmt.Errorf("%w: highs wrote no result: %s", ErrSolver, tail(log))
	}
	var said struct {
		Status string             `json:"status"`
		Bound  *float64           `json:"bound"`
		Values map[string]float64 `json:"values"`
	}
	if err := json.Unmarshal(text, &said); err != nil {
		return Result{}, fmt.Errorf("%w: highs: %w", ErrSolver, err)
	}
	bound := math.Inf(-1)
	if said.Bound != nil {
		bound = *said.Bound
	}
	switch said.Status {
	case "optimal":
		return j.result(Optimal, said.Values, bound)
	case "infeasible":
		return j.result(Infeasible, nil, bound)
	case "stopped":
		if said.Values == nil {
			return j.result(Unknown, nil, bound)
		}
		return j.result(Feasible, said.Values, bound)
	}
	return Result{}, fmt.Errorf("%w: highs says %q", ErrSolver, said.Status)
}
