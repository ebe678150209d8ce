package topology

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"lightpath/cmd/lightpath/cli"
	"lightpath/plans/delta"
	"lightpath/plans/delta/check"
	"lightpath/plans/delta/dag"
	"lightpath/plans/delta/milp"
	"lightpath/plans/delta/report"
	"lightpath/plans/mip/solver"
)

// exactFlags are those of the exact models.
type exactFlags struct {
	in, out, schedule, report, write string
	model, solver                    string
	limit                            time.Duration
	gap                              float64
	threads, margin, extra           int
	ports, cold                      bool
	seed                             uint64
}

func newDeltaExact() *cobra.Command {
	var f exactFlags
	cmd := &cobra.Command{
		Use:   "exact --in job.json [--model topo|joint] [--solver cbc|highs|gurobi] [--out topology.json]",
		Short: "Choose circuits, or circuits and rates, by a mixed-integer program and an installed solver",
		Long: `Solves DELTA-Topo (circuits under fair shares) or DELTA-Joint (circuits and rates) as a mixed-integer program,
with CBC (Debian's coinor-cbc), HiGHS (PyPI's highspy) or Gurobi. The start is the result of the search. With --margin
0, 1, ... tasks stay within so many intervals of the start; -1 is no such limit. --ports minimizes ports in a second
pass, in half of the time. --write only writes the program (.lp or .mps). If the solver finds nothing in time, the
result is the start; exit status 1 without a start (--cold).`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	fl := cmd.Flags()
	fl.StringVar(&f.in, "in", "", "job file (- for standard input)")
	fl.StringVar(&f.out, "out", "", "topology file to write (standard output by default)")
	fl.StringVar(&f.schedule, "schedule", "", "file to write: the times of tasks and the rates of transfers")
	fl.StringVar(&f.report, "report", "", "HTML page to write, with pictures of the start and of the solution")
	fl.StringVar(&f.write, "write", "", "file to write the program to, instead of solving it: .lp or .mps")
	fl.StringVar(&f.model, "model", "joint", "topo or joint")
	fl.StringVar(&f.solver, "solver", "auto", fmt.Sprintf("auto, or one of %v", solver.Names))
	fl.DurationVar(&f.limit, "time-limit", 10*time.Minute, "wall time of all the work")
	fl.Float64Var(&f.gap, "gap", 1e-4, "relative gap at which the solver stops")
	fl.IntVar(&f.threads, "threads", 1, "threads of the solver")
	fl.IntVar(&f.margin, "margin", 1, "intervals by which a task may leave its place in the start (-1: any number)")
	fl.IntVar(&f.extra, "extra", 2, "intervals in addition to those of the start")
	fl.BoolVar(&f.ports, "ports", false, "then minimize ports, with that makespan")
	fl.BoolVar(&f.cold, "cold", false, "do not give the solver the start")
	fl.Uint64Var(&f.seed, "seed", 1, "seed of the search that makes the start")
	return cmd
}

// kind returns the model and the rule of sharing that goes with it.
func (f *exactFlags) kind() (milp.Kind, delta.Sharing, error) {
	switch f.model {
	case "topo":
		return milp.Topo, delta.Fair, nil
	case "joint":
		return milp.Joint, delta.Critical, nil
	}
	return 0, "", fmt.Errorf("--model: %q is not topo or joint", f.model)
}

// checkExact checks the flags of every command that solves an exact model.
func checkExact(limit time.Duration, margin, extra int) error {
	return cmp.Or(cli.Positive("--time-limit", limit), cli.Within("--margin", margin, milp.Exact, 1e6),
		cli.Within("--extra", extra, 0, 1000))
}

// checkWrite returns an error if --write names no kind of program, or makes other flags useless.
func (f *exactFlags) checkWrite(fl *pflag.FlagSet) error {
	if f.write == "" {
		return nil
	}
	for _, name := range []string{"out", "schedule", "report", "solver", "gap", "threads", "ports", "cold"} {
		if fl.Changed(name) {
			return fmt.Errorf("--%s has no effect with --write", name)
		}
	}
	if !strings.HasSuffix(f.write, ".lp") && !strings.HasSuffix(f.write, ".mps") {
		return errors.New("--write: want a name that ends in .lp or .mps")
	}
	return nil
}

func (f *exactFlags) run(cmd *cobra.Command) error {
	kind, sharing, err := f.kind()
	if err := cmp.Or(err, checkExact(f.limit, f.margin, f.extra), cli.Positive("--gap", f.gap),
		cli.Within("--threads", f.threads, 1, 4096), cli.CheckOutput("out", f.out), cli.CheckOutput("schedule", f.schedule),
		cli.CheckOutput("report", f.report), cli.CheckOutput("write", f.write)); err != nil {
		return err
	}
	if err := f.checkWrite(cmd.Flags()); err != nil {
		return err
	}
	g, err := cli.DecodeInput("in", f.in, dag.Decode)
	if err != nil {
		return err
	}
	ctx, cancel := cli.Limited(cmd, f.limit)
	defer cancel()
	p, err := delta.NewPlanner(g)
	if err != nil {
		return err
	}
	found, err := p.Fast(ctx, delta.Options{Sharing: sharing, Seed: f.seed})
	if err != nil {
		return err
	}
	start, err := checkedSchedule(p, found.Plan)
	if err != nil {
		return err
	}
	job, err := milp.NewJob(g, milp.Options{Kind: kind, Start: start, Upper: dag.Circuits(found.Bounds), Margin: f.margin,
		Extra: f.extra})
	if err != nil {
		return err
	}
	if f.write != "" {
		return f.writeProgram(job)
	}
	s, err := solver.Find(f.solver)
	if err != nil {
		return fmt.Errorf("--solver: %w", err)
	}
	stop := cli.Waiting(fmt.Sprintf("%s, at most %v", s.Name(), f.limit))
	solved, err := job.Solve(ctx, milp.SolveOptions{
		Solver: s, Gap: f.gap, Threads: f.threads, Cold: f.cold, Ports: f.ports,
	})
	stop()
	switch {
	case cli.StoppedBy(ctx) != nil:
		return f.searched(ctx, p, found)
	case err != nil:
		return err
	case solved.Schedule == nil:
		return cli.No(fmt.Errorf("%s: %v after %v; the search has %.10g us",
			s.Name(), solved.Status, solved.Wall.Round(time.Second), found.Makespan))
	}
	return cli.Deliver(ctx, "topology", func() error { return f.finish(p, found, start, solved, s.Name()) })
}

// searched writes what the search has found, where a signal has ended the solver.
func (f *exactFlags) searched(ctx context.Context, p *delta.Planner, found *delta.Found) error {
	r := resultOf(p, found, f.seed)
	return cli.Deliver(ctx, "topology, of the search", func() error { return cli.WriteOutput("out", f.out, r.Encode()) })
}

func (f *exactFlags) writeProgram(job *milp.Job) error {
	var text bytes.Buffer
	write := job.WriteMPS
	if strings.HasSuffix(f.write, ".lp") {
		write = job.WriteLP
	}
	if err := write(&text); err != nil {
		return err
	}
	return cli.WriteOutput("write", f.write, text.Bytes())
}

// finish checks the solution, and writes the files that the flags name.
func (f *exactFlags) finish(
	p *delta.Planner, found *delta.Found, start *dag.Schedule, solved *milp.Result, solverName string,
) error {
	if err := check.Check(p.Graph(), solved.Schedule); err != nil {
		return cli.No(fmt.Errorf("%s: the solution does not pass: %w", solverName, err))
	}
	algorithm := fmt.Sprintf("%s (%s)", f.model, solverName)
	r := p.Result(algorithm, &delta.Plan{Circuits: solved.Schedule.Circuits, Sharing: found.Sharing,
		Makespan: solved.Schedule.Makespan})
	r.Seed, r.Seconds = f.seed, solved.Wall.Seconds()
	if f.model == "joint" { // rates are the schedule's own
		r.Sharing = "solved"
	}
	if f.schedule != "" {
		if err := cli.WriteOutput("schedule", f.schedule, solved.Schedule.Encode(p.Graph())); err != nil {
			return err
		}
	}
	note := fmt.Sprintf("%v within %.4g %% after %.1f s", solved.Status, 100*solved.Gap, solved.Wall.Seconds())
	if f.report != "" {
		runs := []report.Run{{Name: "fast, " + string(found.Sharing), Schedule: start},
			{Name: algorithm, Schedule: solved.Schedule, Note: note}}
		if err := writeReport(f.report, p.Graph(), runs); err != nil {
			return err
		}
	}
	if err := cli.WriteOutput("out", f.out, r.Encode()); err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "%s: iteration %.10g us (search %.10g, bound %.10g), %s, %d of %d ports, %s\n",
		algorithm, r.MakespanUS, found.Makespan, solved.BoundUS, r.NCTText(), r.PortsUsed, r.Ports, note)
	return nil
}

// writeReport writes a page about runs of a job.
func writeReport(path string, g *dag.Graph, runs []report.Run) error {
	var page bytes.Buffer
	if err := report.HTML(&page, g, runs); err != nil {
		return err
	}
	return cli.WriteOutput("report", path, page.Bytes())
}

// reportCircuits writes a page about a topology: the job by both rules of sharing.
func reportCircuits(path string, p *delta.Planner, c dag.Circuits) error {
	var runs []report.Run
	for _, sharing := range []delta.Sharing{delta.Fair, delta.Critical} {
		plan, err := p.Evaluate(c, sharing)
		if err != nil {
			return err
		}
		s, err := p.Schedule(plan)
		if err != nil {
			return err
		}
		note := "NCT " + p.Ideal().NCT(plan.Makespan).String()
		runs = append(runs, report.Run{Name: string(sharing), Schedule: s, Note: note})
	}
	return writeReport(path, p.Graph(), runs)
}

// Solvers returns the values of --solver.
func Solvers() []string { return append([]string{"auto"}, solver.Names...) }
