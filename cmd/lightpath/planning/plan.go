package planning

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"lightpath/cmd/lightpath/cli"
	"lightpath/plans"
	"lightpath/plans/check"
	"lightpath/plans/planner"
	"lightpath/plans/spectra"
)

// New returns the command "plan".
func New() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "Make, check and show plans",
		Long: `Makes, checks and shows plans of one collective. In order: problem describes a collective on a fabric, solve
plans it, check and show read the plan. build does the first two, and chooses the algorithm. cache warm makes plans for
jobs.`,
	}
	cmd.AddCommand(newSolve(), newCheck(), newShow(), newBuild(), newProblem(), newCache())
	return cmd
}

// planFlags are the flags that solve and build share.
type planFlags struct {
	planner string
	out     string
	limit   time.Duration
	seed    int64
	form    formFlag
	// beside makes write leave the problem beside the plan file.
	beside bool
}

func (f *planFlags) register(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVar(&f.planner, "planner", "auto", fmt.Sprintf("planner: one of %v, or %s for a demand matrix",
		planner.Names(), spectra.Name))
	fl.StringVar(&f.out, "out", "", "plan file to write (standard output by default)")
	fl.DurationVar(&f.limit, "time-limit", planner.DefaultTimeLimit,
		"most time to search; the result is the best plan by then")
	fl.Int64Var(&f.seed, "seed", 1, "seed of the search")
	f.form.register(fl)
}

// solve plans a problem and writes the plan.
func (f *planFlags) solve(cmd *cobra.Command, read func() (*plans.Problem, error)) error {
	return f.search(cmd, func(ctx context.Context) (*plans.Problem, *plans.Plan, error) {
		p, err := read()
		if err != nil {
			return nil, nil, err
		}
		defer f.waiting()()
		plan, err := planner.Solve(ctx, f.planner, p, f.options(ctx, p))
		return p, plan, err
	})
}

// waiting shows on a terminal that the search runs, until the caller calls stop.
func (f *planFlags) waiting() (stop func()) {
	return cli.Waiting(fmt.Sprintf("planning, at most %v", f.limit))
}

// search calls find, which plans a problem within the time limit, and writes the plan, sealed with its digest.
func (f *planFlags) search(cmd *cobra.Command, find func(context.Context) (*plans.Problem, *plans.Plan, error)) error {
	if err := cmp.Or(cli.Positive("--time-limit", f.limit), cli.CheckOutput("out", f.out)); err != nil {
		return err
	}
	ctx, cancel := cli.Limited(cmd, f.limit)
	defer cancel()
	p, plan, err := find(ctx)
	switch {
	case errors.Is(err, planner.ErrInfeasible):
		return cli.No(err)
	case errors.Is(err, planner.ErrUnknownPlanner):
		return fmt.Errorf("--planner: %w", err)
	case err != nil:
		return cli.NoResult(ctx, err)
	}
	return cli.Deliver(ctx, "plan", func() error { return f.write(ctx, p, plan) })
}

// options returns the options of a search that ends with ctx. The time is measured, but the effort is not: else the
// same command would give another plan each time.
func (f *planFlags) options(ctx context.Context, p *plans.Problem) planner.Options {
	return planner.Options{TimeLimit: f.searchTime(ctx, p), Effort: planner.EffortWithin(f.limit, p), Seed: f.seed}
}

// searchTime returns the part of the time until ctx ends that is for the search. The rest, at most half, is for the
// digest and the text of the plan. It estimates these from the time to check the problem, which reads similar data on
// the same machine.
func (f *planFlags) searchTime(ctx context.Context, p *plans.Problem) time.Duration {
	began := time.Now()
	_ = p.Validate() // it is valid
	walk := time.Since(began)
	left := f.limit
	if end, ok := ctx.Deadline(); ok {
		left = time.Until(end)
	}
	return max(left-writingFactor*walk, left/2, 1)
}

const writingFactor = 8

// write seals a plan for p with its digest and writes it.
func (f *planFlags) write(ctx context.Context, p *plans.Problem, plan *plans.Plan) error {
	until := context.WithoutCancel(ctx)
	if end, ok := ctx.Deadline(); ok { // the file is worth a little more than the limit
		var cancel context.CancelFunc
		until, cancel = context.WithDeadline(until, end.Add(f.limit/8))
		defer cancel()
	}
	err := plans.SealContext(until, p, plan)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		fmt.Fprintln(os.Stderr, "written without a digest, for which there was no time")
	case err != nil:
		return err
	}
	text, err := f.form.encodePlan(plan)
	if err != nil {
		return err
	}
	if err := cli.WriteOutput("out", f.out, text); err != nil {
		return err
	}
	if err := f.writeProblem(p); err != nil {
		return err
	}
	if f.out != "" && f.out != "-" {
		fmt.Fprintf(os.Stderr, "%s: CCT %.6g us, lower bound %.6g us, gap %.2f %%%s\n",
			plan.Planner, plan.CCTUS, plan.LowerBoundUS, gapPercent(plan), cli.EndedEarly(ctx))
	}
	return nil
}

// writeProblem writes the problem of plan.json to plan.problem.json, if asked and if the plan is in a regular file.
func (f *planFlags) writeProblem(p *plans.Problem) error {
	info, err := os.Stat(f.out)
	if !f.beside || err != nil || !info.Mode().IsRegular() {
		return nil
	}
	text, err := plans.EncodeProblem(p)
	if err != nil {
		return err
	}
	path := strings.TrimSuffix(f.out, ".json") + ".problem.json"
	if err := cli.WriteOutput("out", path, text); err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "%s: the problem of this plan\n", path)
	return nil
}

// gapPercent returns how far a plan may be from the optimum, in percent of its lower bound.
func gapPercent(p *plans.Plan) float64 {
	if p.LowerBoundUS <= 0 {
		if p.CCTUS <= plans.ToleranceUS {
			return 0
		}
		return math.Inf(1)
	}
	return max(0, (p.CCTUS/p.LowerBoundUS-1)*100)
}

func newSolve() *cobra.Command {
	f := &planFlags{}
	var in string
	cmd := &cobra.Command{
		Use:   "solve --planner NAME --in problem.json [--out plan.json]",
		Short: "Plan a problem; exit 1 where it cannot be done",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.solve(cmd, func() (*plans.Problem, error) { return cli.DecodeInput("in", in, plans.DecodeProblem) })
		},
	}
	f.register(cmd)
	cmd.Flags().StringVar(&in, "in", "", "problem file (- for standard input)")
	return cmd
}

func newCheck() *cobra.Command {
	var in, planPath string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "check --in problem.json --plan plan.json",
		Short: "Check a plan, independently of every planner; print its CCT, or exit 1 with the reason if it is infeasible",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			p, plan, err := readPair(in, planPath)
			if err != nil {
				return err
			}
			report, err := verify(p, plan)
			if err != nil {
				return cli.Infeasible(err, asJSON)
			}
			if asJSON {
				return cli.PrintJSON(map[string]any{
					"feasible": true, "cct_us": report.CCTUS, "lower_bound_us": plan.LowerBoundUS, "planner": plan.Planner,
				})
			}
			cli.Printf("feasible: CCT %.9g us (%s), lower bound %.9g us\n", report.CCTUS, plan.Planner, plan.LowerBoundUS)
			return nil
		},
	}
	cmd.Flags().StringVar(&in, "in", "", "problem file")
	cmd.Flags().StringVar(&planPath, "plan", "", "plan file")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// verify checks the plan, and its digest if it has one.
func verify(p *plans.Problem, plan *plans.Plan) (check.Report, error) {
	if plan.Digest != "" {
		if err := plans.VerifyDigest(p, plan); err != nil {
			return check.Report{}, err
		}
	}
	return check.Check(p, plan)
}

func readPair(in, planPath string) (*plans.Problem, *plans.Plan, error) {
	if in == "-" && planPath == "-" {
		return nil, nil, errors.New("--in and --plan cannot both be standard input")
	}
	p, err := cli.DecodeInput("in", in, plans.DecodeProblem)
	if err != nil {
		return nil, nil, err
	}
	plan, err := cli.DecodeInput("plan", planPath, plans.DecodePlan)
	if err != nil {
		return nil, nil, err
	}
	return p, plan, nil
}
