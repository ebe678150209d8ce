package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"lightpath/plans/delta"
	"lightpath/plans/delta/check"
	"lightpath/plans/delta/dag"
	"lightpath/plans/delta/train"
)

// newTopologyDeltaCommand is DELTA: circuits between the pods of one training job.
func newTopologyDeltaCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "delta",
		Short: "Plan circuits between the pods of one training job (DELTA)",
	}
	cmd.AddCommand(newDeltaGenerate(), newDeltaPlan(), newDeltaSimulate(), newDeltaCompare(), newDeltaExact(),
		newDeltaImport())
	return cmd
}

// jobFlags choose a job of the generator.
type jobFlags struct {
	model string
	over  train.Config // values of the flags that replace those of the preset
}

func (f *jobFlags) register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.model, "model", "megatron-177b",
		fmt.Sprintf("one of %v, with the parallelism of DELTA's evaluation; the other flags change it", train.Names()))
	configFlags(cmd.Flags(), &f.over)
}

// configFlags adds a flag for each field of c; its value is the default.
func configFlags(fl *pflag.FlagSet, c *train.Config) {
	fl.IntVar(&c.TP, "tp", c.TP, "GPUs that share a layer")
	fl.IntVar(&c.PP, "pp", c.PP, "stages of a pipeline")
	fl.IntVar(&c.EP, "ep", c.EP, "groups of GPUs that share the experts of a layer")
	fl.IntVar(&c.ETP, "etp", c.ETP, "GPUs that share an expert")
	fl.IntVar(&c.GPUs, "gpus", c.GPUs, "GPUs of the job")
	fl.IntVar(&c.GPUsPerPod, "gpus-per-pod", c.GPUsPerPod, "GPUs in a pod, all of one replica")
	fl.IntVar(&c.MicroBatches, "micro-batches", c.MicroBatches, "micro-batches per GPU and iteration")
	fl.IntVar(&c.MicroBatch, "micro-batch", c.MicroBatch, "sequences of a micro-batch")
	fl.IntVar(&c.Sequence, "sequence", c.Sequence, "tokens of a sequence")
	fl.Float64Var(&c.Gbps, "bandwidth", c.Gbps, "Gb/s of a NIC and of a circuit")
	fl.Float64Var(&c.ScaleUpGBs, "scale-up", c.ScaleUpGBs, "GB/s that a GPU reaches within its server")
	fl.Float64Var(&c.TFLOPS, "tflops", c.TFLOPS, "peak TFLOPS of a GPU")
	fl.Float64Var(&c.Efficiency, "efficiency", c.Efficiency, "fraction of the peak that computation reaches")
	fl.BoolVar(&c.Uneven, "uneven", c.Uneven, "each stage takes the time of its own layers, instead of the average")
	fl.BoolVar(&c.Overlap, "overlap", c.Overlap, "senders compute during their transfers")
}

// config returns the preset with the values of the flags that were given.
func (f *jobFlags) config(cmd *cobra.Command) (train.Config, error) {
	c, err := train.Preset(f.model)
	if err != nil {
		return c, fmt.Errorf("--model: %w", err)
	}
	fields := pflag.NewFlagSet("", pflag.ContinueOnError)
	configFlags(fields, &c)
	cmd.Flags().Visit(func(given *pflag.Flag) {
		if field := fields.Lookup(given.Name); field != nil && err == nil {
			err = field.Value.Set(given.Value.String())
		}
	})
	return c, err
}

// modelNames returns the models of the generator; for topology delta exact, --model is a program.
func modelNames(c *cobra.Command, _ []string) []string {
	if c.Name() == "exact" {
		return nil
	}
	return train.Names()
}

func newDeltaGenerate() *cobra.Command {
	var f jobFlags
	var out string
	var full, reduce bool
	cmd := &cobra.Command{
		Use:   "generate --model NAME [--out job.json]",
		Short: "Write the graph of one training iteration, from a model and its parallelism",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := f.config(cmd)
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
			return writeOutput("out", out, g.Encode())
		},
	}
	f.register(cmd)
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
			if limit <= 0 {
				return fmt.Errorf("--time-limit: %v is not positive", limit)
			}
			ctx, cancel := limited(cmd, limit)
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
			return deliver(ctx, "topology", func() error { return f.finish(ctx, p, plan, r) })
		},
	}
	f.register(cmd)
	f.files.register(cmd)
	fl := cmd.Flags()
	fl.StringVar(&algorithm, "algorithm", fastName, fmt.Sprintf("%s, or one of %v", fastName, delta.Baselines()))
	fl.Uint64Var(&seed, "seed", 1, "seed of the search")
	fl.IntVar(&workers, "workers", 0, "topologies to simulate in parallel (0: one per core); does not change the result")
	fl.DurationVar(&limit, "time-limit", time.Minute, "time limit; the result is the best topology by then")
	return cmd
}

// fastName is the search among the algorithms.
const fastName = "fast"

func (f *deltaFlags) planner() (*delta.Planner, error) {
	g, err := decodeInput("in", f.in, dag.Decode)
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
		r := p.Result(algorithm, found.Plan)
		r.Seed, r.Bounds, r.Evaluations = o.Seed, found.Bounds, found.Evaluations
		return found.Plan, r, nil
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
	if err := writeOutput("out", f.out, r.Encode()); err != nil {
		return err
	}
	if f.out != "" && f.out != "-" {
		fmt.Fprintf(os.Stderr, "%s, %s shares: iteration %.6g us (ideal %.6g), %s, %d of %d ports%s\n",
			r.Algorithm, r.Sharing, r.MakespanUS, r.IdealUS, r.NCTText(), r.PortsUsed, r.Ports, endedEarly(ctx))
	}
	return nil
}

// endedEarly returns the end of the line about a result: why the search ended early, where it did.
func endedEarly(ctx context.Context) string {
	if ctx.Err() == nil {
		return ""
	}
	return "; the search ended early: " + context.Cause(ctx).Error()
}

// checkedSchedule runs the whole job and has the run judged.
func checkedSchedule(p *delta.Planner, plan *delta.Plan) (*dag.Schedule, error) {
	s, err := p.Schedule(plan)
	if err != nil {
		return nil, err
	}
	if err := check.Check(p.Graph(), s); err != nil {
		return nil, no(fmt.Errorf("the simulator's schedule does not pass: %w", err))
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
			p, err := f.planner()
			if err != nil {
				return err
			}
			c := dag.Circuits(circuits)
			if topology != "" {
				decode := func(data []byte) (dag.Circuits, error) { return delta.DecodeCircuits(data, p.Graph()) }
				if c, err = decodeInput("topology", topology, decode); err != nil {
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
				if err := writeOutput("schedule", schedule, s.Encode(p.Graph())); err != nil {
					return err
				}
			}
			return deliver(cmd.Context(), "topology", func() error {
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
