package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"lightpath/bench/demo"
	"lightpath/plans/fabric"
)

func newDemoCommand() *cobra.Command {
	var breakWhat, report, data, only, jsonOut string
	var iters int
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Run the main job on this machine: collectives over an emulated optical fabric",
		Long: `Starts an emulated optical switch and 8 rank processes with 2 planes. Runs an AllReduce and
All-to-Alls through libnccl.so.2 under each planner; circuits switch during the collective. Prints predicted
and measured completion times, and writes an HTML report with every timeline. Needs no root and no arguments.
With --data-plane kernel, 2 and 4 planes are interfaces whose circuits switch in the kernel, at
reconfiguration times of 1 to 40 ms. This needs root and takes minutes.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if breakWhat != "" && breakWhat != "drain" {
				return fmt.Errorf("--break: %q is not \"drain\"", breakWhat)
			}
			if data != fabric.DataMemory && data != fabric.DataKernel {
				return fmt.Errorf("--data-plane: %q is not memory or kernel", data)
			}
			if iters < 1 {
				return fmt.Errorf("--iters: %d; at least 1", iters)
			}
			worker, err := siblingFile("bin", "lightpath-rank")
			if err != nil {
				return err
			}
			o := &demo.Options{
				Lightpath: selfPath(), Worker: worker, Report: report, Iters: iters, Only: only, Kernel: data == fabric.DataKernel,
				Progress: progressLine(isTerminal(os.Stderr)),
			}
			if breakWhat != "" {
				return no(demo.Break(cmd.Context(), o))
			}
			if err := os.MkdirAll(filepath.Dir(report), 0o755); err != nil {
				return fmt.Errorf("--report: %w", err)
			}
			text := os.Stdout
			if jsonOut == "-" {
				text = os.Stderr
			}
			trials, err := demo.Run(cmd.Context(), o, text)
			if err != nil {
				return no(err)
			}
			fmt.Fprintf(text, "report: %s\n", report)
			if jsonOut != "" {
				if err := writeJSON("json", jsonOut, trials); err != nil {
					return err
				}
			}
			for _, t := range trials {
				if t.Wrong > 0 {
					return no(fmt.Errorf("experiment %s, %s: %d wrong elements", t.Experiment.Key, t.Planner, t.Wrong))
				}
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&breakWhat, "break", "", "\"drain\": one rank skips a drain; the run must fail")
	cmd.Flags().StringVar(&jsonOut, "json", "", "write the table as JSON to this file (- for standard output)")
	cmd.Flags().StringVar(&data, "data-plane", fabric.DataMemory, "what carries the planes: memory or kernel")
	cmd.Flags().StringVar(&only, "only", "", "run the experiments whose name in brackets contains this")
	cmd.Flags().StringVar(&report, "report", "demo-report/index.html", "HTML report to write")
	cmd.Flags().IntVar(&iters, "iters", 5, "timed iterations of each trial")
	return cmd
}

// progressLine returns a function that shows what runs now: one line that is rewritten on a
// terminal, a line each elsewhere.
func progressLine(terminal bool) func(format string, args ...any) {
	return func(format string, args ...any) {
		text := fmt.Sprintf(format, args...)
		switch {
		case terminal:
			fmt.Fprintf(os.Stderr, "\r\033[K%s", text)
		case text != "":
			fmt.Fprintln(os.Stderr, text)
		}
	}
}
