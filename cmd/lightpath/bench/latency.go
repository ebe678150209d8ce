package bench

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"lightpath/bench"
	"lightpath/bench/latency"
	"lightpath/cmd/lightpath/cli"
	"lightpath/collectives/datatype"
	"lightpath/collectives/schedule"
	"lightpath/plans"
)

func newLatency() *cobra.Command {
	var ranks, calls int
	var size, transport, jsonOut, python string
	var loads []string
	cmd := &cobra.Command{
		Use:   "latency",
		Short: "Time single AllReduce calls, alone and beside Go and Python programs that collect garbage",
		Long: `Times every call of a loop of small AllReduces. It prints p50, p90, p99 and the maximum over all calls of all
ranks. The machine is as it is (none), or a Go or Python program beside the ranks makes garbage as fast as it can.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o := &latency.Options{
				Ranks: bench.Ranks{N: ranks, Transport: transport, Deadline: 10 * time.Minute},
				Spec: bench.Spec{
					Collective: schedule.AllReduce, Type: datatype.Float32, Op: datatype.Sum, Warmup: 1000, Iters: calls, Check: true,
				},
				Commands: map[latency.Load][]string{
					latency.Go: {cli.SelfPath(), "bench", "latency", "burn"}, latency.Python: {python, "-c", latency.PythonLoad},
				},
			}
			err := cli.CheckOutput("json", jsonOut)
			if err != nil {
				return err
			}
			if o.Spec.MinBytes, err = bench.ParseBytes(size); err != nil {
				return fmt.Errorf("-b: %w", err)
			}
			if err := cmp.Or(cli.Within("-n", ranks, 2, plans.MaxRanks), cli.Within("--calls", calls, 1, 1e7)); err != nil {
				return err
			}
			for _, l := range loads {
				if !slices.Contains([]latency.Load{latency.None, latency.Go, latency.Python}, latency.Load(l)) {
					return fmt.Errorf("--load: %q is none of none, go, python", l)
				}
				o.Loads = append(o.Loads, latency.Load(l))
			}
			if o.Ranks.Worker, err = cli.SiblingFile("bin", "lightpath-rank"); err != nil {
				return err
			}
			reports, err := latency.Run(cmd.Context(), o)
			if err != nil {
				return cli.No(err)
			}
			return printLatency(reports, jsonOut)
		},
	}
	fl := cmd.Flags()
	fl.IntVarP(&ranks, "ranks", "n", 2, "ranks")
	fl.IntVar(&calls, "calls", 20000, "calls of each rank")
	fl.StringVarP(&size, "bytes", "b", "8", "size of a message")
	fl.StringVar(&transport, "transport", "shm", "shm or tcp")
	fl.StringSliceVar(&loads, "load", []string{"none", "go", "python"}, "loads beside the ranks, one after the other")
	fl.StringVar(&python, "python", "python3", "interpreter for the Python load")
	fl.StringVar(&jsonOut, "json", "", "write the results with histograms as JSON to this file (- for standard output)")
	cmd.AddCommand(newBurn())
	return cmd
}

func newBurn() *cobra.Command {
	return &cobra.Command{
		Use: "burn", Short: "Make garbage until stopped", Hidden: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			latency.Burn(cmd.Context())
			return nil
		},
	}
}

func printLatency(reports []*latency.Report, jsonOut string) error {
	table := beside(jsonOut)
	var wrong int64
	fmt.Fprintf(table, "%-8s %10s %6s %8s %5s  %10s %10s %10s %10s\n",
		"load", "bytes", "ranks", "calls", "CPUs", "p50", "p90", "p99", "max")
	for _, r := range reports {
		wrong += r.Wrong
		fmt.Fprintf(table, "%-8s %10d %6d %8d %5d  %10v %10v %10v %10v\n", r.Load, r.Bytes, r.Ranks, r.Calls, r.CPUs,
			r.Times.P50, r.Times.P90, r.Times.P99, r.Times.Max)
	}
	if err := cli.WriteJSON("json", jsonOut, reports); err != nil {
		return err
	}
	if wrong > 0 {
		return cli.No(fmt.Errorf("%d wrong elements", wrong))
	}
	return nil
}
