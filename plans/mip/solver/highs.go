package solver

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"math"
	"os"

	"lightpath/plans/mip"
)

// highsDriver calls HiGHS through its Python module, which is how it is distributed: there is no
// Debian package, and the module has no program.
//
//go:embed highs.py
var highsDriver []byte

// runHiGHS runs HiGHS (PyPI's highspy) by the interpreter at path.
func runHiGHS(ctx context.Context, path string, j *job, o Options) (Result, error) {
	asked := struct {
		TimeLimit float64   `json:"time_limit"`
		Gap       float64   `json:"gap"`
		Threads   int       `json:"threads"`
		Start     []float64 `json:"start"`
		Names     []string  `json:"names"`
	}{limit(ctx).Seconds(), o.Gap, o.Threads, nil, nil}
	for i, x := range o.Start {
		asked.Names = append(asked.Names, j.program.Name(mip.Var(i)))
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
	log, err := j.run(ctx, path, j.path("driver.py"), j.dir)
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
