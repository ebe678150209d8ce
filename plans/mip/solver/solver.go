package solver

import (
	"bufio"
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

	"lightpath/plans/mip"
)

var (
	// ErrNone is wrapped by the error that no solver, or not the requested one, is installed.
	ErrNone = errors.New("solver: not installed")
	// ErrSolver is wrapped by errors of a solver: it failed, or its output is unexpected.
	ErrSolver = errors.New("solver")
)

// Status is the proof status of a solution.
type Status int

// The states of a solution.
const (
	Unknown    Status = iota // stopped without a solution
	Feasible                 // stopped with a solution
	Optimal                  // within the gap
	Infeasible               // there is none
)

func (s Status) String() string {
	return [...]string{"no solution", "feasible", "optimal", "infeasible"}[s]
}

// Options of one call. The zero value: the solver's own gap, one thread, no start.
type Options struct {
	Threads int
	Gap     float64   // relative; 0: the solver's default
	Start   []float64 // an assignment to begin with, one value per variable
}

// Result is the result of a solver.
type Result struct {
	Status    Status
	Values    []float64 // one per variable; nil without a solution
	Objective float64   // of Values; +Inf without
	Bound     float64   // no solution is below; -Inf where the solver did not say
}

// Gap returns how far Objective is above Bound, relative to Objective.
func (r *Result) Gap() float64 {
	if r.Objective == r.Bound {
		return 0
	}
	return (r.Objective - r.Bound) / math.Max(1e-9, math.Abs(r.Objective))
}

// Solver is an installed solver. It is safe for concurrent use.
type Solver struct {
	name, path string // path is that of the program
	solve      func(ctx context.Context, path string, j *job, o Options) (Result, error)
}

// Name returns one of [Names].
func (s *Solver) Name() string { return s.name }

// Solve returns at the deadline of ctx at the latest. The solver gets nine tenths of the time until then, to write its
// result in the rest. A solver that continues until the deadline is killed: its status is Unknown. Errors wrap
// [ErrSolver], or say that ctx was cancelled. If the solver finds no solution, this is no error.
func (s *Solver) Solve(ctx context.Context, p *mip.Program, o Options) (Result, error) {
	late := Result{Status: Unknown, Objective: math.Inf(1), Bound: math.Inf(-1)}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return late, nil
	}
	j, err := newJob(p)
	if err != nil {
		return Result{}, err
	}
	defer j.close()
	r, err := s.solve(ctx, s.path, j, o)
	if errors.Is(err, context.DeadlineExceeded) {
		return late, nil
	}
	return r, err
}

// Names lists the solvers that Find knows, in the order in which "auto" tries them.
var Names = []string{"gurobi", "highs", "cbc"}

// Find returns the solver called name, or with "auto" the first that is installed. Errors
// wrap [ErrNone] and say what to install.
func Find(name string) (*Solver, error) {
	if name != "auto" {
		return find(name)
	}
	var all []error
	for _, n := range Names {
		s, err := find(n)
		if err == nil {
			return s, nil
		}
		all = append(all, err)
	}
	return nil, errors.Join(all...)
}

func find(name string) (*Solver, error) {
	s := &Solver{name: name}
	var program, install string
	switch name {
	case "cbc":
		s.solve, program, install = runCBC, "cbc", "Debian's coinor-cbc"
	case "gurobi":
		s.solve, program, install = runGurobi, "gurobi_cl", "gurobi_cl, of Gurobi"
	case "highs":
		s.solve, program, install = runHiGHS, "python3", "PyPI's highspy, for python3"
	default:
		return nil, fmt.Errorf("%w: no solver %q; there are auto, %s", ErrNone, name, strings.Join(Names, ", "))
	}
	var err error
	if s.path, err = exec.LookPath(program); err == nil && name == "highs" {
		err = exec.Command(s.path, "-c",
			"import importlib.util, sys; sys.exit(importlib.util.find_spec('highspy') is None)").Run()
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %s (%s)", ErrNone, name, install)
	}
	return s, nil
}

// job is a temporary directory with the program in it.
type job struct {
	dir     string
	program *mip.Program
}

func newJob(p *mip.Program) (*job, error) {
	dir, err := os.MkdirTemp("", "lightpath-solver-")
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSolver, err)
	}
	j := &job{dir: dir, program: p}
	var text bytes.Buffer
	if err := p.WriteLP(&text, "lightpath"); err != nil {
		j.close()
		return nil, err
	}
	if err := j.write("model.lp", text.Bytes()); err != nil {
		j.close()
		return nil, err
	}
	return j, nil
}

func (j *job) close() { os.RemoveAll(j.dir) }

func (j *job) path(name string) string { return filepath.Join(j.dir, name) }

func (j *job) write(name string, text []byte) error {
	if err := os.WriteFile(j.path(name), text, 0o600); err != nil {
		return fmt.Errorf("%w: %w", ErrSolver, err)
	}
	return nil
}

// limit returns the time that the solver gets, 0 without a deadline.
func limit(ctx context.Context) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return 0
	}
	return max(time.Millisecond, time.Until(deadline)*9/10)
}

// run runs a solver until its end or that of ctx. It returns its output.
func (j *job) run(ctx context.Context, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = j.dir
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		return "", fmt.Errorf("%s: %w", filepath.Base(name), ctx.Err())
	}
	if err != nil {
		return "", fmt.Errorf("%w: %s: %w: %s", ErrSolver, filepath.Base(name), err, tail(string(out)))
	}
	return string(out), nil
}

// result makes a Result of values by name, nil for none.
func (j *job) result(status Status, values map[string]float64, bound float64) (Result, error) {
	r := Result{Status: status, Objective: math.Inf(1), Bound: bound}
	if values == nil || status == Infeasible || status == Unknown {
		if status == Optimal || status == Feasible {
			return r, fmt.Errorf("%w: %v without values", ErrSolver, status)
		}
		return r, nil
	}
	r.Values = make([]float64, j.program.Size().Vars)
	for name, x := range values {
		v, ok := j.program.Lookup(name)
		if !ok {
			return r, fmt.Errorf("%w: a value for %q, which is no variable", ErrSolver, name)
		}
		r.Values[v] = x
	}
	r.Objective = j.program.Cost(r.Values)
	if status == Optimal && (bound > r.Objective || math.IsInf(bound, -1)) {
		r.Bound = r.Objective
	}
	return r, nil
}

// pairs reads lines of a name and a value, the columns of which are given; lines that are too
// short or have no number there are left out. Names are those of variables.
func (j *job) pairs(text string, name, value int) map[string]float64 {
	values := make(map[string]float64)
	for s := bufio.NewScanner(strings.NewReader(text)); s.Scan(); {
		f := strings.Fields(strings.TrimPrefix(strings.TrimSpace(s.Text()), "**"))
		if len(f) <= max(name, value) {
			continue
		}
		if _, ok := j.program.Lookup(f[name]); !ok {
			continue
		}
		if x, err := strconv.ParseFloat(f[value], 64); err == nil {
			values[f[name]] = x
		}
	}
	return values
}

// startLines writes a start as lines of format, which takes the number, the name and the value.
func (j *job) startLines(head, format string, start []float64) []byte {
	var b bytes.Buffer
	b.WriteString(head)
	for i, x := range start {
		v := mip.Var(i)
		if j.program.Integer(v) {
			x = math.Round(x)
		}
		fmt.Fprintf(&b, format, i, j.program.Name(v), x)
	}
	return b.Bytes()
}

func tail(text string) string {
	return strings.TrimSpace(text[max(0, len(text)-300):])
}

func seconds(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', 3, 64) }
