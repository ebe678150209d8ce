package solver

import (
	"context"
	"math"
	"os"
	"strconv"
	"strings"
)

// runGurobi runs Gurobi's command line, the solver of DELTA's paper.
func runGurobi(ctx context.Context, path string, j *job, o Options) (Result, error) {
	args := []string{"ResultFile=" + j.path("result.sol"), "LogFile="}
	if limit := limit(ctx); limit > 0 {
		args = append(args, "TimeLimit="+seconds(limit))
	}
	if o.Gap > 0 {
		args = append(args, "MIPGap="+strconv.FormatFloat(o.Gap, 'g', -1, 64))
	}
	if o.Threads > 0 {
		args = append(args, "Threads="+strconv.Itoa(o.Threads))
	}
	if o.Start != nil {
		if err := j.write("start.mst", j.startLines("# start\n", "%[2]s %.17[3]g\n", o.Start)); err != nil {
			return Result{}, err
		}
		args = append(args, "InputFile="+j.path("start.mst"))
	}
	log, err := j.run(ctx, path, append(args, j.path("model.lp"))...)
	if err != nil {
		return Result{}, err
	}
	return j.gurobiResult(log)
}

// gurobiResult makes a Result of the log and of the solution file, which is there only if there
// is a solution.
func (j *job) gurobiResult(log string) (Result, error) {
	bound := math.Inf(-1)
	if i := strings.LastIndex(log, "best bound "); i >= 0 { // "Best objective o, best bound b, gap g"
		text, _, _ := strings.Cut(log[i+len("best bound "):], ",")
		if v, err := strconv.ParseFloat(strings.TrimSpace(text), 64); err == nil {
			bound = v
		}
	}
	if strings.Contains(log, "Model is infeasible") || strings.Contains(log, "Infeasible model") {
		return j.result(Infeasible, nil, bound)
	}
	text, err := os.ReadFile(j.path("result.sol"))
	if err != nil {
		return j.result(Unknown, nil, bound)
	}
	status := Feasible
	if strings.Contains(log, "Optimal solution found") || strings.Contains(log, "Optimal objective") {
		status = Optimal
	}
	return j.result(status, j.pairs(string(text), 0, 1), bound)
}
