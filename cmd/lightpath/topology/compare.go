package topology

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"lightpath/bench/jobs"
	"lightpath/cmd/lightpath/cli"
	"lightpath/cmd/lightpath/cli/jobflags"
	"lightpath/plans/delta/train"
	"lightpath/plans/mip/solver"
)

func newDeltaCompare() *cobra.Command {
	var f jobflags.Job
	var models []string
	var bandwidths []float64
	var sequences, batches []int
	var o jobs.Options
	var asJSON bool
	var exact exactComparison
	cmd := &cobra.Command{
		Use:   "compare [--models NAMES] [--bandwidths 200,400,...] [--sequences 2048,4096,...]",
		Short: "Compare the search with allocations by traffic matrix: communication time, ports, search time",
		Long: `Runs every model with every bandwidth, sequence length and number of micro-batches. NCT is the communication
time on the critical path, divided by that of a non-blocking network. "fast" shares bandwidth fairly. "critical" serves
transfers on the critical path first. The validator checks every schedule.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cmp.Or(checkWorkers(o.Workers), exact.check(cmd.Flags())); err != nil {
				return err
			}
			var configs []train.Config
			for _, f.Model = range models {
				c, err := f.Config(cmd)
				if err != nil {
					return err
				}
				more, err := vary(c, bandwidths, sequences, batches)
				if err != nil {
					return err
				}
				configs = append(configs, more...)
			}
			c := comparison{configs: configs, asJSON: asJSON, rows: []*jobs.Row{}}
			run := func(ctx context.Context) error { return c.run(ctx, o) }
			if exact.solver != "" {
				run = func(ctx context.Context) error { return c.runExact(ctx, exact.solver, o, exact.o) }
			}
			if err := run(cmd.Context()); err != nil && cli.StoppedBy(cmd.Context()) == nil {
				return err
			}
			return cli.Deliver(cmd.Context(), "rows", func() error { return c.print(o.Reallocate) })
		},
	}
	f.Register(cmd)
	fl := cmd.Flags()
	for _, one := range []string{"model", "bandwidth", "sequence", "micro-batches"} {
		_ = fl.MarkHidden(one) // the flag exists; compare has lists instead
	}
	fl.StringSliceVar(&models, "models", train.Names()[1:], "jobs to plan")
	fl.Float64SliceVar(&bandwidths, "bandwidths", nil, "Gb/s of a NIC and of a circuit (default: the preset's)")
	fl.IntSliceVar(&sequences, "sequences", nil, "tokens of a sequence (default: the preset's)")
	fl.IntSliceVar(&batches, "batches", nil, "micro-batches per iteration (default: the preset's)")
	fl.Uint64Var(&o.Seed, "seed", 1, "seed of the search")
	fl.IntVar(&o.Workers, "workers", 0, "topologies to simulate in parallel (0: one per core)")
	fl.BoolVar(&o.Reallocate, "reallocate", false,
		"also plan a copy of each job, with its pods in reverse order, on the ports that the first leaves unused")
	fl.BoolVar(&asJSON, "json", false, "print JSON")
	exact.register(cmd)
	return cmd
}

// comparison is the rows of all jobs, or those until a signal.
type comparison struct {
	configs []train.Config
	asJSON  bool
	rows    []*jobs.Row
	exact   []*jobs.Exact // instead
}

// run compares the search with the baselines.
func (c *comparison) run(ctx context.Context, o jobs.Options) error {
	for _, config := range c.configs {
		row, err := jobs.Compare(ctx, config, o)
		if err != nil {
			return err
		}
		c.rows = append(c.rows, row)
		if !c.asJSON {
			fmt.Fprintf(os.Stderr, "%s, %v Gb/s, %d tokens, %d micro-batches\n",
				row.Model, row.Gbps, row.Sequence, row.MicroBatches)
		}
	}
	return nil
}

// runExact compares the search with the exact models.
func (c *comparison) runExact(ctx context.Context, name string, o jobs.Options, eo jobs.ExactOptions) (err error) {
	if eo.Solver, err = solver.Find(name); err != nil {
		return fmt.Errorf("--solver: %w", err)
	}
	eo.Options, c.exact = o, []*jobs.Exact{}
	for _, config := range c.configs {
		rows, err := jobs.CompareExact(ctx, config, eo)
		if err != nil {
			return err
		}
		c.exact = append(c.exact, rows...)
		fmt.Fprintf(os.Stderr, "%s, %d micro-batches: %s, %s\n",
			config.Model.Name, config.MicroBatches, rows[0].Status, rows[1].Status)
	}
	return nil
}

func (c *comparison) print(reallocated bool) error {
	switch {
	case c.exact != nil && c.asJSON:
		return cli.PrintJSON(c.exact)
	case c.exact != nil:
		cli.Print(jobs.ExactTable(c.exact))
		return nil
	case c.asJSON:
		return cli.PrintJSON(c.rows)
	}
	cli.Print(jobs.Table(c.rows))
	if ties := jobs.TieTable(c.rows); ties != "" {
		cli.Print("\n", ties)
	}
	if reallocated {
		cli.Print("\n", jobs.ReallocationTable(c.rows))
	}
	return nil
}

// exactComparison is the search beside DELTA's models as a solver solves them.
type exactComparison struct {
	solver string
	o      jobs.ExactOptions
}

func (e *exactComparison) register(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVar(&e.solver, "solver", "",
		fmt.Sprintf("compare with the exact models instead, solved by auto or one of %v", solver.Names))
	fl.DurationVar(&e.o.TimeLimit, "time-limit", 10*time.Minute, "wall time of the solver, for each model")
	fl.IntVar(&e.o.Margin, "margin", 1, "see exact")
	fl.IntVar(&e.o.Extra, "extra", 2, "see exact")
	fl.BoolVar(&e.o.Ports, "ports", false, "also minimize ports")
}

// check returns an error if a value is outside, or a flag has no effect.
func (e *exactComparison) check(fl *pflag.FlagSet) error {
	if e.solver != "" && fl.Changed("reallocate") {
		return errors.New("--reallocate has no effect with --solver")
	}
	return cmp.Or(checkExact(e.o.TimeLimit, e.o.Margin, e.o.Extra),
		cli.Needs(fl, "solver", "time-limit", "margin", "extra", "ports"))
}

// vary returns the variants of a job: every value of every list with all others.
func vary(c train.Config, bandwidths []float64, sequences, batches []int) ([]train.Config, error) {
	if bandwidths == nil {
		bandwidths = []float64{c.Gbps}
	}
	if sequences == nil {
		sequences = []int{c.Sequence}
	}
	if batches == nil {
		batches = []int{c.MicroBatches}
	}
	var all []train.Config
	for _, c.Gbps = range bandwidths {
		for _, c.Sequence = range sequences {
			for _, c.MicroBatches = range batches {
				if err := c.Validate(); err != nil {
					return nil, err
				}
				all = append(all, c)
			}
		}
	}
	return all, nil
}
