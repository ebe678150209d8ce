package solver

import (
	"context"
	"fmt"
	"math"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"lightpath/plans/internal/mip"
)

// cbc runs COIN-OR's CBC (Debian's coinor-cbc).
type cbc struct{ path string }

func findCBC() (Solver, error) {
	path, err := exec.LookPath("cbc")
	if err != nil {
		return nil, fmt.Errorf("%w: cbc (Debian's coinor-cbc)", ErrNone)
	}
	return cbc{path}, nil
}

func (cbc) Name() string { return "cbc" }

func (c cbc) Solve(ctx context.Context, p *mip.Program, o Options) (Result, error) {
	j, err := newJob(p)
	if err != nil {
		return Result{}, err
	}
	defer j.close()
	args := []string{j.path("model.lp"), "-timeMode", "elapsed"}
	if o.TimeLimit > 0 {
		args = append(args, "-seconds", seconds(o.TimeLimit))
	}
	if o.Gap > 0 {
		args = append(args, "-ratioGap", strconv.FormatFloat(o.Gap, 'g', -1, 64))
	}
	if o.Threads > 1 {
		args = append(args, "-threads", strconv.Itoa(o.Threads))
	}
	if o.Start != nil {
		if err := j.write("start.txt", j.startLines("Feasible - start\n", "%d %s %.17g 0\n", o.Start)); err != nil {
			return Result{}, err
		}
		args = append(args, "-mipstart", j.path("start.txt"))
	}
	args = append(args, "-solve", "-solution", j.path("solution.txt"), "-quit")
	log, err := j.run(ctx, o, c.path, args...)
	if err != nil {
		return Result{}, err
	}
	text, err := os.ReadFile(j.path("solution.txt"))
	if err != nil {
		return Result{}, fmt.Errorf("%w: cbc wrote no solution: %s", ErrSolver, tail(log))
	}
	verdict, rest, _ := strings.Cut(string(text), "\n")
	return j.cbcResult(verdict, rest, log)
}

// cbcResult makes a Result of the first line of cbc's solution, the others, and its log.
func (j *job) cbcResult(verdict, rest, log string) (Result, error) {
	bound := math.Inf(-1)
	if _, after, ok := strings.Cut(log, "\nLower bound:"); ok {
		line, _, _ := strings.Cut(after, "\n")
		if v, err := strconv.ParseFloat(strings.TrimSpace(line), 64); err == nil {
			bound = v
		}
	}
	switch {
	case strings.HasPrefix(verdict, "Optimal"):
		return j.result(Optimal, j.pairs(rest, 1, 2), bound)
	case strings.HasPrefix(verdict, "Infeasible"), strings.HasPrefix(verdict, "Integer infeasible"):
		return j.result(Infeasible, nil, bound)
	case strings.HasPrefix(verdict, "Stopped"):
		values := j.pairs(rest, 1, 2)
		// Without a solution cbc writes the last relaxation under the same heading.
		if strings.Contains(log, "No feasible solution found") || strings.Contains(verdict, "no integer solution") {
			return j.result(Unknown, nil, bound)
		}
		return j.result(Feasible, values, bound)
	}
	return Result{}, fmt.Errorf("%w: cbc says %q", ErrSolver, verdict)
}
