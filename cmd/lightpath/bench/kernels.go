package bench

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"lightpath/bench"
	"lightpath/bench/kernels"
	"lightpath/cmd/lightpath/cli"
	"lightpath/collectives/datatype"
)

func newKernels() *cobra.Command {
	var o kernels.Options
	var size, typ, op, jsonOut string
	cmd := &cobra.Command{
		Use:   "kernels",
		Short: "Time reductions beyond the caches beside STREAM",
		Long: `Times the reduction kernels on buffers larger than the caches, by turns with STREAM's copy, add and triad in C
on as many threads. STREAM runs with ordinary stores and with stores past the caches (-nt). Rates count the bytes that
must move through memory, as STREAM counts them: a sum of two reads two buffers and writes one. "of add" is the rate
over that of STREAM's faster addition.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			bytes, err := bench.ParseBytes(size)
			if err != nil {
				return fmt.Errorf("-b: %w", err)
			}
			if o.Type, err = datatype.ParseType(typ); err != nil {
				return fmt.Errorf("-d: %w", err)
			}
			if o.Op, err = datatype.ParseOp(op); err != nil {
				return fmt.Errorf("-o: %w", err)
			}
			o.Bytes = int(bytes)
			if err := checkKernels(&o); err != nil {
				return err
			}
			if o.Stream, err = cli.SiblingFile("bin", "lightpath-stream"); err != nil {
				return fmt.Errorf("%w (make bin/lightpath-stream)", err)
			}
			if err := cli.CheckOutput("json", jsonOut); err != nil {
				return err
			}
			lines, err := kernels.Run(cmd.Context(), &o)
			if err != nil {
				return cli.No(err)
			}
			return printKernels(lines, jsonOut)
		},
	}
	fl := cmd.Flags()
	fl.StringVarP(&size, "bytes", "b", "256M", "size of a buffer, all threads together")
	fl.IntSliceVarP(&o.Threads, "threads", "t", []int{1, 2}, "numbers of threads")
	fl.IntSliceVar(&o.Sources, "sources", []int{2, 4, 8}, "numbers of buffers that one kernel combines")
	fl.StringVarP(&typ, "datatype", "d", "float", "element type")
	fl.StringVarP(&op, "op", "o", "sum", "reduction operator")
	fl.IntVar(&o.Rounds, "rounds", 15, "samples of each kernel")
	fl.StringVar(&jsonOut, "json", "", "write the results as JSON to this file (- for standard output)")
	return cmd
}

func checkKernels(o *kernels.Options) error {
	if err := cli.AtLeast("--rounds", o.Rounds, 1); err != nil {
		return err
	}
	if len(o.Threads) == 0 {
		return errors.New("-t: no number of threads")
	}
	for _, n := range o.Threads {
		if err := cli.Within("-t", n, 1, 256); err != nil {
			return err
		}
		if o.Bytes/n < 4096 {
			return fmt.Errorf("-b: %d bytes are less than 4096 for each of %d threads", o.Bytes, n)
		}
	}
	for _, n := range o.Sources {
		if err := cli.Within("--sources", n, 2, 64); err != nil {
			return err
		}
	}
	return nil
}

func printKernels(lines []*kernels.Line, jsonOut string) error {
	table := beside(jsonOut)
	fmt.Fprintf(table, "%7s  %-28s %7s  %10s %8s  %10s %8s\n",
		"threads", "GB/s", "buffers", "best", "of add", "median", "of add")
	for _, l := range lines {
		name := l.Name
		if l.Stream {
			name = "STREAM " + name
		}
		fmt.Fprintf(table, "%7d  %-28s %7d  %10.2f %7.0f%%  %10.2f %7.0f%%\n",
			l.Threads, name, l.Arrays, l.Best, 100*l.OfAdd, l.Median, 100*l.OfAddMedian)
	}
	return cli.WriteJSON("json", jsonOut, lines)
}
