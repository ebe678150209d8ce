package topology

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"lightpath/cmd/lightpath/cli"
	"lightpath/cmd/lightpath/cli/jobflags"
	"lightpath/plans/delta"
	"lightpath/plans/delta/check"
	"lightpath/plans/delta/dag"
	"lightpath/plans/delta/train"
)

// newDelta is DELTA: circuits between the pods of one training job.
func newDelta() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "delta",
		Short: "Plan circuits between the pods of one training job (DELTA)",
		Long: `Plans circuits between the pods of one training job (DELTA). In order: generate or import makes a job file,
plan chooses its circuits, simulate says how long an iteration takes on them. docs/jobs-delta.md has an example.`,
	}
	cmd.AddCommand(newDeltaGenerate(), newDeltaPlan(), newDeltaSimulate(), newDeltaCompare(), newDeltaExact(),
		newDeltaImport())
	return cmd
}

func newDeltaGenerate() *cobra.Command {
	var f jobflags.Job
	var out string
	var full, reduce bool
	cmd := &cobra.Command{
		Use:   "generate --model NAME [--out job.json]",
		Short: "Write the graph of one training iteration, from a model and its parallelism",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := f.Config(cmd)
			if err != nil {
				return err
			}
			c.Full = full
			g, err := train.Generate(c)
			if err != nil {
				return err
			}
			if reduce {
				g = dag.Reduce(g).Graph
			}
			return cli.WriteOutput("out", out, g.Encode())
		},
	}
	f.Register(cmd)
	fl := cmd.Flags()
	fl.StringVar(&out, "out", "", "job file to write (standard output by default)")
	fl.BoolVar(&full, "full", false, "write all replicas, instead of one that stands for all")
	fl.BoolVar(&reduce, "reduce", false, "write only transfers and the fixed delays between them")
	return cmd
}

// deltaFlags are the flags that plan and simulate share.
type deltaFlags struct {
	in, out, sharing, report string
	files                    planeFiles
}

func (f *deltaFlags) register(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVar(&f.in, "in", "", "job file (- for standard input)")
	fl.StringVar(&f.out, "out", "", "topology file to write (standard output by default)")
	fl.StringVar(&f.sharing, "sharing", string(delta.Fair),
		"fair: equal shares; critical: transfers on the critical path first")
	fl.StringVar(&f.report, "report", "", "HTML page to write, with pictures of the topology and the iteration")
}

func (f *deltaFlags) checkOutputs() error {
	return cmp.Or(cli.CheckOutput("out", f.out), cli.CheckOutput("report", f.report))
}

func newDeltaPlan() *cobra.Command {
	var f deltaFlags
	var algorithm string
	var seed uint64
	var workers int
	var limit time.Duration
	cmd := &cobra.Command{
		Use:   "plan --in job.json [--out topology.json] [--fabric fabric.yaml --maps DIR]",
		Short: "Choose how many circuits join each pair of pods",
		Long: `Chooses the circuits that give the shortest iteration, and of equal choices the one with the fewest ports
(fast). The algorithms prop-alloc, sqrt-alloc and iter-halve use the traffic matrix only. A validator that shares no
code with the search checks the schedule of the result. --maps writes the map of each plane, for "lightpath ocs set
--map". --fabric writes the fabric file of the planes.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			sharing, err := delta.ParseSharing(f.sharing)
			if err != nil {
				return fmt.Errorf("--sharing: %w", err)
			}
			if err := cmp.Or(cli.Positive("--time-limit", limit), checkWorkers(workers), f.checkOutputs()); err != nil {
				return err
			}
			if err := f.files.check(cmd.Flags()); err != nil { // may make a directory
				return err
			}
			ctx, cancel := cli.Limited(cmd, limit)
			defer cancel()
			p, err := f.planner()
			if err != nil {
				return err
			}
			begin := time.Now()
			plan, r, err := decide(ctx, p, algorithm, delta.Options{Sharing: sharing, Seed: seed, Workers: workers})
			if err != nil {
				return err
			}
			r.Seconds = time.Since(begin).Seconds()
			return cli.Deliver(ctx, "topology", func() error { return f.finish(ctx, p, plan, r) })
		},
	}
	f.register(cmd)
	f.files.register(cmd.Flags())
	fl := cmd.Flags()
	fl.StringVar(&algorithm, "algorithm", fastName, fmt.Sprintf("%s, or one of %v", fastName, delta.Baselines()))
	fl.Uint64Var(&seed, "seed", 1, "seed of the search")
	fl.IntVar(&workers, "workers", 0, "topologies to simulate in parallel (0: one per core); does not change the result")
	fl.DurationVar(&limit, "time-limit", time.Minute, "time limit; the result is the best topology by then")
	return cmd
}

// checkWorkers checks --workers: each worker has memory of its own.
func checkWorkers(n int) error { return cli.Within("--workers", n, 0, 4096) }

// fastName is the search among the algorithms.
const fastName = "fast"

func (f *deltaFlags) planner() (*delta.Planner, error) {
	g, err := cli.DecodeInput("in", f.in, dag.Decode)
	if err != nil {
		return nil, err
	}
	return delta.NewPlanner(g)
}

// decide runs an algorithm.
func decide(
	ctx context.Context, p *delta.Planner, algorithm string, o delta.Options,
) (*delta.Plan, *delta.Result, error) {
	if algorithm == fastName {
		found, err := p.Fast(ctx, o)
		if err != nil {
			return nil, nil, err
		}
		return found.Plan, resultOf(p, found, o.Seed), nil
	}
	c, err := p.Baseline(algorithm)
	if err != nil {
		return nil, nil, fmt.Errorf("--algorithm: %w, and %s", err, fastName)
	}
	plan, err := p.Evaluate(c, o.Sharing)
	if err != nil {
		return nil, nil, err
	}
	return plan, p.Result(algorithm, plan), nil
}

// resultOf states what the search has found.
func resultOf(p *delta.Planner, found *delta.Found, seed uint64) *delta.Result {
	r := p.Result(fastName, found.Plan)
	r.Seed, r.Bounds, r.Evaluations = seed, found.Bounds, found.Evaluations
	return r
}

// finish checks the schedule of a plan, and writes the files that the flags name.
func (f *deltaFlags) finish(ctx context.Context, p *delta.Planner, plan *delta.Plan, r *delta.Result) error {
	if _, err := checkedSchedule(p, plan); err != nil {
		return err
	}
	if err := f.files.write(p.Graph(), plan.Circuits); err != nil {
		return err
	}
	if f.report != "" {
		if err := reportCircuits(f.report, p, plan.Circuits); err != nil {
			return err
		}
	}
	if err := cli.WriteOutput("out", f.out, r.Encode()); err != nil {
		return err
	}
	if f.out != "" && f.out != "-" {
		fmt.Fprintf(os.Stderr, "%s, %s shares: iteration %.10g us (ideal %.10g), %s, %d of %d ports%s\n",
			r.Algorithm, r.Sharing, r.MakespanUS, r.IdealUS, r.NCTText(), r.PortsUsed, r.Ports, cli.EndedEarly(ctx))
	}
	return nil
}

// checkedSchedule runs the whole job and has the run judged.
func checkedSchedule(p *delta.Planner, plan *delta.Plan) (*dag.Schedule, error) {
	s, err := p.Schedule(plan)
	if err != nil {
		return nil, err
	}
	if err := check.Check(p.Graph(), s); err != nil {
		return nil, cli.No(fmt.Errorf("the simulator's schedule does not pass: %w", err))
	}
	return s, nil
}

func newDeltaSimulate() *cobra.Command {
	var f deltaFlags
	var topology, schedule string
	var circuits []int
	cmd := &cobra.Command{
		Use:   "simulate --in job.json (--topology topology.json | --circuits N,N,...)",
		Short: "Compute how long an iteration takes on a topology",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			sharing, err := delta.ParseSharing(f.sharing)
			if err != nil {
				return fmt.Errorf("--sharing: %w", err)
			}
			if (topology == "") == (len(circuits) == 0) {
				return errors.New("one of --topology and --circuits is required")
			}
			if f.in == "-" && topology == "-" {
				return errors.New("--in and --topology cannot both be standard input")
			}
			if err := cmp.Or(f.checkOutputs(), cli.CheckOutput("schedule", schedule)); err != nil {
				return err
			}
			p, err := f.planner()
			if err != nil {
				return err
			}
			c := dag.Circuits(circuits)
			if topology != "" {
				decode := func(data []byte) (dag.Circuits, error) { return delta.DecodeCircuits(data, p.Graph()) }
				if c, err = cli.DecodeInput("topology", topology, decode); err != nil {
					return err
				}
			}
			plan, err := p.Evaluate(c, sharing)
			if err != nil {
				return err
			}
			if schedule != "" {
				s, err := checkedSchedule(p, plan)
				if err != nil {
					return err
				}
				if err := cli.WriteOutput("schedule", schedule, s.Encode(p.Graph())); err != nil {
					return err
				}
			}
			return cli.Deliver(cmd.Context(), "topology", func() error {
				return f.finish(cmd.Context(), p, plan, p.Result("given", plan))
			})
		},
	}
	f.register(cmd)
	fl := cmd.Flags()
	fl.StringVar(&topology, "topology", "", "topology file, as plan writes it (- for standard input)")
	fl.IntSliceVar(&circuits, "circuits", nil, "circuits of each link, in the order of the job file")
	fl.StringVar(&schedule, "schedule", "", "file to write: the times of tasks and the rates of transfers")
	return cmd
}
