package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"lightpath/bench/demo"
	"lightpath/cmd/lightpath/cli"
	"lightpath/plans/fabric"
)

// demoFlags are the flags as typed.
type demoFlags struct {
	breakWhat, report, data, only, jsonOut string
	iters                                  int
}

// NewDemo returns the command "demo".
func NewDemo() *cobra.Command {
	var f demoFlags
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
			o, err := f.options()
			if err != nil {
				return err
			}
			if f.breakWhat != "" {
				return cli.No(demo.Break(cmd.Context(), o))
			}
			return f.run(cmd.Context(), o)
		},
	}
	cmd.Flags().StringVar(&f.breakWhat, "break", "", "\"drain\": one rank skips a drain; the run must fail")
	cmd.Flags().StringVar(&f.jsonOut, "json", "", "write the table as JSON to this file (- for standard output)")
	cmd.Flags().StringVar(&f.data, "data-plane", fabric.DataMemory, "what carries the planes: memory or kernel")
	cmd.Flags().StringVar(&f.only, "only", "", "run the experiments whose title contains this, such as \"(a)\"")
	cmd.Flags().StringVar(&f.report, "report", "demo-report/index.html", "HTML report to write")
	cmd.Flags().IntVar(&f.iters, "iters", 5, "timed iterations of each trial")
	return cmd
}

func (f *demoFlags) options() (*demo.Options, error) {
	switch {
	case f.breakWhat != "" && f.breakWhat != "drain":
		return nil, fmt.Errorf("--break: %q is not \"drain\"", f.breakWhat)
	case f.data != fabric.DataMemory && f.data != fabric.DataKernel:
		return nil, fmt.Errorf("--data-plane: %q is not memory or kernel", f.data)
	}
	if err := cmp.Or(cli.AtLeast("--iters", f.iters, 1), f.checkOutputs()); err != nil {
		return nil, err
	}
	worker, err := cli.SiblingFile("bin", "lightpath-rank")
	return &demo.Options{
		Lightpath: cli.SelfPath(), Worker: worker, Report: f.report, Iters: f.iters, Only: f.only,
		Kernel: f.data == fabric.DataKernel, Progress: cli.ProgressLine(),
	}, err
}

// checkOutputs makes the folder of the report. It returns an error if a file cannot be written.
func (f *demoFlags) checkOutputs() error {
	if f.breakWhat != "" {
		return nil
	}
	if err := cli.CheckOutput("json", f.jsonOut); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(f.report), 0o755); err != nil {
		return fmt.Errorf("--report: %w", err)
	}
	return cli.CheckOutput("report", f.report)
}

// run makes the trials, and writes the table and the report.
func (f *demoFlags) run(ctx context.Context, o *demo.Options) error {
	text := beside(f.jsonOut)
	trials, err := demo.Run(ctx, o, text)
	if errors.Is(err, demo.ErrNone) {
		return fmt.Errorf("--only: %w", err)
	}
	if err != nil {
		return cli.No(err)
	}
	fmt.Fprintf(text, "report: %s\n", f.report)
	if err := cli.WriteJSON("json", f.jsonOut, trials); err != nil {
		return err
	}
	for _, t := range trials {
		if t.Wrong > 0 {
			return cli.No(fmt.Errorf("experiment %s, %s: %d wrong elements", t.Experiment.Key, t.Planner, t.Wrong))
		}
	}
	return nil
}
