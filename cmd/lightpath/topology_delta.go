package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

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
	over  train.Config // what flags say instead of the preset
}

func (f *jobFlags) register(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVar(&f.model, "model", "megatron-177b",
		fmt.Sprintf("one of %v, with the parallelism of DELTA's evaluation; the other flags change it", train.Names()))
	fl.IntVar(&f.over.TP, "tp", 0, "GPUs that share a layer")
	fl.IntVar(&f.over.PP, "pp", 0, "stages of a pipeline")
	fl.IntVar(&f.over.EP, "ep", 0, "groups of GPUs that share the experts of a layer")
	fl.IntVar(&f.over.ETP, "etp", 0, "GPUs that share an expert")
	fl.IntVar(&f.over.GPUs, "gpus", 0, "GPUs of the job")
	fl.IntVar(&f.over.GPUsPerPod, "gpus-per-pod", 0, "GPUs in a pod, all of one replica")
	fl.IntVar(&f.over.MicroBatches, "micro-batches", 0, "micro-batches per GPU and iteration")
	fl.IntVar(&f.over.MicroBatch, "micro-batch", 0, "sequences of a micro-batch")
	fl.IntVar(&f.over.Sequence, "sequence", 0, "tokens of a sequence")
	fl.Float64Var(&f.over.Gbps, "bandwidth", 0, "Gb/s of a NIC and of a circuit")
	fl.Float64Var(&f.over.ScaleUpGBs, "scale-up", 0, "GB/s that a GPU reaches within its server")
	fl.Float64Var(&f.over.TFLOPS, "tflops", 0, "peak TFLOPS of a GPU")
	fl.Float64Var(&f.over.Efficiency, "efficiency", 0, "fraction of the peak that computation reaches")
	fl.BoolVar(&f.over.Uneven, "uneven", false, "each stage takes the time of its own layers, instead of the average")
	fl.BoolVar(&f.over.Overlap, "overlap", false, "senders compute during their transfers")
}

// config is the preset with what flags say.
func (f *jobFlags) config(cmd *cobra.Command) (train.Config, error) {
	c, err := train.Preset(f.model)
	if err != nil {
		return c, fmt.Errorf("--model: %w", err)
	}
	set := func(name string, apply func()) {
		if cmd.Flags().Changed(name) {
			apply()
		}
	}
	set("tp", func() { c.TP = f.over.TP })
	set("pp", func() { c.PP = f.over.PP })
	set("ep", func() { c.EP = f.over.EP })
	set("etp", func() { c.ETP = f.over.ETP })
	set("gpus", func() { c.GPUs = f.over.GPUs })
	set("gpus-per-pod", func() { c.GPUsPerPod = f.over.GPUsPerPod })
	set("micro-batches", func() { c.MicroBatches = f.over.MicroBatches })
	set("micro-batch", func() { c.MicroBatch = f.over.MicroBatch })
	set("sequence", func() { c.Sequence = f.over.Sequence })
	set("bandwidth", func() { c.Gbps = f.over.Gbps })
	set("scale-up", func() { c.ScaleUpGBs = f.over.ScaleUpGBs })
	set("tflops", func() { c.TFLOPS = f.over.TFLOPS })
	set("efficiency", func() { c.Efficiency = f.over.Efficiency })
	c.Uneven, c.Overlap = f.over.Uneven, f.over.Overlap
	return c, nil
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

func readJob(flag, path string) (*dag.Graph, error) {
	data, err := readInput(flag, path)
	if err != nil {
		return nil, err
	}
	g, err := dag.Decode(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", inputName(path), err)
	}
	return g, nil
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
		Long: `Chooses the circuits that give the shortest iteration, and of equal choices the one with the fewest ports (fast).
The algorithms prop-alloc, sqrt-alloc and iter-halve use the traffic matrix only. A validator that shares no code
with the search checks the schedule of the result. --maps writes the map of each plane, for "lightpath ocs set
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
	g, err := readJob("in", f.in)
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
				data, err := readInput("topology", topology)
				if err != nil {
					return err
				}
				if c, err = delta.DecodeCircuits(data, p.Graph()); err != nil {
					return fmt.Errorf("%s: %w", inputName(topology), err)
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
