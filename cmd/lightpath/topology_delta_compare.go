package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"lightpath/bench/jobs"
	"lightpath/plans/delta/solver"
	"lightpath/plans/delta/train"
)

func newDeltaCompare() *cobra.Command {
	var f jobFlags
	var models []string
	var bandwidths []float64
	var sequences, batches []int
	var o jobs.Options
	var asJSON bool
	var exact exactComparison
	cmd := &cobra.Command{
		Use:   "compare [--models NAMES] [--bandwidths 200,400,...] [--sequences 2048,4096,...]",
		Short: "The search beside the allocations by traffic matrix: communication time, ports, search time",
		Long: `Runs every model with every bandwidth, sequence length and number of micro-batches. NCT is the communication time on
the critical path over that of a non-blocking network; "fast" shares bandwidth fairly, "critical" serves critical
transfers first. Every schedule passes the validator.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var rows []*jobs.Row
			for _, f.model = range models {
				configs, err := f.vary(cmd, bandwidths, sequences, batches)
				if err != nil {
					return err
				}
				if exact.solver != "" {
					if err := exact.add(cmd.Context(), configs, o); err != nil {
						return err
					}
					continue
				}
				for _, c := range configs {
					row, err := jobs.Compare(cmd.Context(), c, o)
					if err != nil {
						return err
					}
					rows = append(rows, row)
					if !asJSON {
						fmt.Fprintf(os.Stderr, "%s, %v Gb/s, %d tokens, %d micro-batches\n", row.Model, row.Gbps, row.Sequence, row.MicroBatches)
					}
				}
			}
			if exact.solver != "" {
				return exact.print(asJSON)
			}
			if asJSON {
				return printJSON(rows)
			}
			fmt.Print(jobs.Table(rows))
			if o.Reallocate {
				fmt.Print("\n", jobs.ReallocationTable(rows))
			}
			return nil
		},
	}
	f.register(cmd)
	fl := cmd.Flags()
	for _, one := range []string{"model", "bandwidth", "sequence", "micro-batches"} {
		_ = fl.MarkHidden(one) // the flag exists; compare has lists instead
	}
	fl.StringSliceVar(&models, "models", train.Names()[1:], "jobs to plan")
	fl.Float64SliceVar(&bandwidths, "bandwidths", nil, "Gb/s of a NIC and of a circuit (default: the preset's)")
	fl.IntSliceVar(&sequences, "sequences", nil, "tokens of a sequence (default: the preset's)")
	fl.IntSliceVar(&batches, "batches", nil, "micro-batches per iteration (default: the preset's)")
	fl.Uint64Var(&o.Seed, "seed", 1, "seed of the search")
	fl.IntVar(&o.Workers, "workers", 0, "topologies judged side by side (0: one per core)")
	fl.BoolVar(&o.Reallocate, "reallocate", false, "also plan a copy of each job, placed the other way round, with the ports that the first leaves")
	fl.BoolVar(&asJSON, "json", false, "print JSON")
	exact.register(cmd)
	return cmd
}

// exactComparison is the search beside DELTA's models as a solver solves them.
type exactComparison struct {
	solver string
	o      jobs.ExactOptions
	rows   []*jobs.Exact
}

func (e *exactComparison) register(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVar(&e.solver, "solver", "", fmt.Sprintf("compare with the exact models instead, solved by auto or one of %v", solver.Names))
	fl.DurationVar(&e.o.TimeLimit, "time-limit", 10*time.Minute, "wall time of the solver, for each model and pass")
	fl.IntVar(&e.o.Margin, "margin", 1, "see exact")
	fl.IntVar(&e.o.Extra, "extra", 2, "see exact")
	fl.BoolVar(&e.o.Ports, "ports", false, "also minimize ports")
}

func (e *exactComparison) add(ctx context.Context, configs []train.Config, o jobs.Options) error {
	var err error
	if e.o.Solver, err = solver.Find(e.solver); err != nil {
		return fmt.Errorf("--solver: %w", err)
	}
	e.o.Options = o
	for _, c := range configs {
		rows, err := jobs.CompareExact(ctx, c, e.o)
		if err != nil {
			return err
		}
		e.rows = append(e.rows, rows...)
		fmt.Fprintf(os.Stderr, "%s, %d micro-batches: %s, %s\n", c.Model.Name, c.MicroBatches, rows[0].Status, rows[1].Status)
	}
	return nil
}

func (e *exactComparison) print(asJSON bool) error {
	if asJSON {
		return printJSON(e.rows)
	}
	fmt.Print(jobs.ExactTable(e.rows))
	return nil
}

// vary returns the configurations of one model: every value of every list with all others.
func (f *jobFlags) vary(cmd *cobra.Command, bandwidths []float64, sequences, batches []int) ([]train.Config, error) {
	c, err := f.config(cmd)
	if err != nil {
		return nil, err
	}
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
