package solver

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
)

// runCBC runs COIN-OR's CBC (Debian's coinor-cbc).
func runCBC(ctx context.Context, path string, j *job, o Options) (Result, error) {
	args := []string{j.path("model.lp"), "-timeMode", "elapsed"}
	if limit := limit(ctx); limit > 0 {
		args = append(args, "-seconds", seconds(limit))
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
	// The text has names, but only eight digits. The binary file has all digits, but no names.
	args = append(args, "-printingOptions", "all", "-solve", "-solution", j.path("solution.txt"), "-saveSolution",
		j.path("solution.bin"), "-quit")
	log, err := j.run(ctx, path, args...)
	if err != nil {
		return Result{}, err
	}
	text, err := os.ReadFile(j.path("solution.txt"))
	if err != nil {
		return Result{}, fmt.Errorf("%w: cbc wrote no solution: %s", ErrSolver, tail(log))
	}
	verdict, rest, _ := strings.Cut(string(text), "\n")
	exact, _ := os.ReadFile(j.path("solution.bin")) // absent where there is no solution
	return j.cbcResult(verdict, j.cbcValues(rest, exact), log)
}

// cbcValues reads the lines of cbc's text: first rows, then variables. It takes the digits from the binary
// file: two counts of 32 bits, then doubles (the objective, values and multipliers of rows, values of
// variables). If the binary file does not belong to this solution, the values of the text remain.
func (j *job) cbcValues(text string, exact []byte) map[string]float64 {
	values := j.pairs(text, 1, 2)
	if len(exact) < 8 {
		return values
	}
	rows, columns := int(binary.NativeEndian.Uint32(exact)), int(binary.NativeEndian.Uint32(exact[4:]))
	lines := strings.Split(strings.TrimSpace(text), "\n")
	if columns != len(values) || len(lines) < columns || len(exact) < 8+8*(1+2*rows+columns) {
		return values
	}
	precise := make(map[string]float64, columns)
	at := exact[8+8*(1+2*rows):]
	for i, line := range lines[len(lines)-columns:] {
		f := strings.Fields(strings.TrimPrefix(strings.TrimSpace(line), "**"))
		if len(f) < 2 {
			return values
		}
		v := math.Float64frombits(binary.NativeEndian.Uint64(at[8*i:]))
		if said, ok := values[f[1]]; !ok || math.Abs(v-said) > 1e-6*math.Max(1, math.Abs(said)) {
			return values
		}
		precise[f[1]] = v
	}
	return precise
}

// cbcResult makes a Result of the first line of cbc's solution, its values, and its log.
func (j *job) cbcResult(verdict string, values map[string]float64, log string) (Result, error) {
	bound := math.Inf(-1)
	if _, after, ok := strings.Cut(log, "\nLower bound:"); ok {
		line, _, _ := strings.Cut(after, "\n")
		if v, err := strconv.ParseFloat(strings.TrimSpace(line), 64); err == nil {
			bound = v
		}
	}
	switch {
	case strings.HasPrefix(verdict, "Optimal"):
		return j.result(Optimal, values, bound)
	case strings.HasPrefix(verdict, "Infeasible"), strings.HasPrefix(verdict, "Integer infeasible"):
		return j.result(Infeasible, nil, bound)
	case strings.HasPrefix(verdict, "Stopped"):
		// Without a solution cbc writes the last relaxation under the same heading.
		if strings.Contains(log, "No feasible solution found") || strings.Contains(verdict, "no integer solution") {
			return j.result(Unknown, nil, bound)
		}
		return j.result(Feasible, values, bound)
	}
	return Result{}, fmt.Errorf("%w: cbc says %q", ErrSolver, verdict)
}
