package milp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"lightpath/plans"
)

// ErrSolver says that cbc is not installed, failed, or said something unexpected.
var ErrSolver = errors.New("milp: cbc")

// Result is CBC's result for a problem.
type Result struct {
	CCTUS   float64 // of the best solution; +Inf where it found none
	BoundUS float64 // proven to be below every solution
	Optimal bool    // it is proven that CCTUS is the optimum
}

// SolveCBC solves SWOT's program of p (see [WriteSWOT]) with cbc on one thread within a
// limit of wall time. Numbers are those of the solver: exact to its tolerances, 1e-6 of
// the times that the program's big-M lets appear. Errors: [ErrUnsupported], [ErrSolver]
// (see [Available]), and that of ctx.
func SolveCBC(ctx context.Context, p *plans.Problem, timeLimit time.Duration) (Result, error) {
	m, err := newModel(p)
	if err != nil {
		return Result{}, err
	}
	if len(m.cfg) == 0 { // cbc says less about a program without integers
		return Result{Optimal: true}, nil
	}
	var model bytes.Buffer
	if err := WriteSWOT(&model, p); err != nil {
		return Result{}, err
	}
	dir, err := os.MkdirTemp("", "lightpath-milp-")
	if err != nil {
		return Result{}, fmt.Errorf("milp: %w", err)
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "swot.lp")
	if err := os.WriteFile(file, model.Bytes(), 0o600); err != nil {
		return Result{}, fmt.Errorf("milp: %w", err)
	}
	seconds := strconv.FormatFloat(timeLimit.Seconds(), 'f', 3, 64)
	cmd := exec.CommandContext(ctx, "cbc", file, "-timeMode", "elapsed", "-seconds", seconds, "-threads", "0", "-solve",
		"-quit")
	text, err := cmd.Output()
	if ctx.Err() != nil {
		return Result{}, ctx.Err()
	}
	if err != nil {
		return Result{}, fmt.Errorf("%w: %w", ErrSolver, err)
	}
	return parse(string(text))
}

// Available says whether cbc can be run, and else why not.
func Available() error {
	if _, err := exec.LookPath("cbc"); err != nil {
		return fmt.Errorf("%w: %w (Debian's coinor-cbc)", ErrSolver, err)
	}
	return nil
}

// parse reads the summary with which cbc ends.
func parse(text string) (Result, error) {
	_, summary, ok := strings.Cut(text, "\nResult - ")
	if !ok {
		return Result{}, fmt.Errorf("%w: no result in %q", ErrSolver, tail(text))
	}
	r := Result{CCTUS: math.Inf(1)}
	verdict, rest, _ := strings.Cut(summary, "\n")
	switch {
	case strings.HasPrefix(verdict, "Optimal solution found"):
		r.Optimal = true
	case strings.HasPrefix(verdict, "Stopped on time limit"), strings.HasPrefix(verdict, "User ctrl-cuser"):
	default:
		return Result{}, fmt.Errorf("%w: %s", ErrSolver, verdict)
	}
	fields := map[string]float64{}
	for line := range strings.Lines(rest) {
		name, value, ok := strings.Cut(line, ":")
		if v, err := strconv.ParseFloat(strings.TrimSpace(value), 64); ok && err == nil {
			fields[strings.TrimSpace(name)] = v
		}
	}
	if v, ok := fields["Objective value"]; ok && v < 1e40 {
		r.CCTUS = v
	}
	r.BoundUS = fields["Lower bound"]
	if r.Optimal {
		r.BoundUS = r.CCTUS
	}
	if r.Optimal && math.IsInf(r.CCTUS, 1) || math.IsNaN(r.BoundUS) {
		return Result{}, fmt.Errorf("%w: no objective value in %q", ErrSolver, tail(text))
	}
	return r, nil
}

func tail(text string) string {
	return text[max(0, len(text)-300):]
}
