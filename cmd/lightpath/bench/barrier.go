package bench

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"lightpath/bench/barrier"
	"lightpath/cmd/lightpath/cli"
	"lightpath/plans"
)

func newBarrier() *cobra.Command {
	var ranks, carrier, jsonOut, svg string
	var rounds int
	cmd := &cobra.Command{
		Use:   "barrier",
		Short: "Time the reconfiguration barrier: from the last rank's post until all ranks see the next epoch",
		Long: `Times the barrier of a plane whose device moves in no time. So the result is the cost that a reconfiguration
has besides the move. Ranks run in this process. They use shared memory, polling (spin) or sleeping until the controller
wakes them (sleep), and gRPC over loopback.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var sizes []int
			for _, s := range strings.Split(ranks, ",") {
				n, err := strconv.Atoi(s)
				if err != nil || n < 2 || n > plans.MaxRanks {
					return fmt.Errorf("--ranks: %q is not a number from 2 to %d", s, plans.MaxRanks)
				}
				sizes = append(sizes, n)
			}
			if carrier != "all" && carrier != "shm" && carrier != "grpc" {
				return fmt.Errorf("--carrier: %q is not shm, grpc or all", carrier)
			}
			if err := cmp.Or(cli.Within("--rounds", rounds, 1, 1e7), cli.CheckOutput("json", jsonOut),
				cli.CheckOutput("svg", svg)); err != nil {
				return err
			}
			reports, err := runBarriers(cmd.Context(), sizes, rounds, carrier)
			if err != nil {
				return cli.No(err)
			}
			printBarriers(beside(jsonOut), reports)
			if svg != "" {
				if err := cli.WriteOutput("svg", svg, reports[0].SVG()); err != nil {
					return err
				}
			}
			return cli.WriteJSON("json", jsonOut, reports)
		},
	}
	fl := cmd.Flags()
	fl.StringVarP(&ranks, "ranks", "n", "8", "numbers of ranks, with commas between")
	fl.IntVar(&rounds, "rounds", 2000, "barriers to time")
	fl.StringVar(&carrier, "carrier", "all", "shm, grpc or all")
	fl.StringVar(&jsonOut, "json", "", "write the results as JSON to this file (- for standard output)")
	fl.StringVar(&svg, "svg", "", "write the histogram of the first row to this file")
	return cmd
}

// runBarriers measures every carrier and mode at every number of ranks.
func runBarriers(ctx context.Context, sizes []int, rounds int, carrier string) ([]*barrier.Report, error) {
	var all []*barrier.Report
	for _, n := range sizes {
		if carrier != "grpc" {
			for _, mode := range []barrier.Mode{barrier.Spin, barrier.Sleep} {
				r, err := barrier.Run(ctx, barrier.Options{Ranks: n, Rounds: rounds, Mode: mode})
				if err != nil {
					return nil, err
				}
				all = append(all, r)
			}
		}
		if carrier == "shm" {
			continue
		}
		dial, stop, err := barrier.Loopback(n)
		if err != nil {
			return nil, err
		}
		r, err := barrier.Run(ctx, barrier.Options{Ranks: n, Rounds: rounds, Mode: barrier.Sleep, Dial: dial,
			Name: "gRPC, loopback"})
		stop()
		if err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	return all, nil
}

func printBarriers(w io.Writer, all []*barrier.Report) {
	fmt.Fprintf(w, "%-16s %-6s %6s %6s  %10s %10s %10s %10s\n",
		"carrier", "waits", "ranks", "CPUs", "p50", "p90", "p99", "max")
	for _, r := range all {
		fmt.Fprintf(w, "%-16s %-6s %6d %6d  %10v %10v %10v %10v\n",
			r.Name, r.Mode, r.Ranks, r.CPUs, r.All.P50, r.All.P90, r.All.P99, r.All.Max)
	}
}
