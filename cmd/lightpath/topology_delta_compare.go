package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"lightpath/bench/jobs"
	"lightpath/plans/delta/train"
)

func newDeltaCompare() *cobra.Command {
	var f jobFlags
	var models []string
	var bandwidths []float64
	var sequences, batches []int
	var o jobs.Options
	var asJSON bool
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
			if asJSON {
				return writeJSON("-", rows)
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
	return cmd
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
