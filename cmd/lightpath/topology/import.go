package topology

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"lightpath/cmd/lightpath/cli"
	"lightpath/cmd/lightpath/cli/jobflags"
	"lightpath/plans/delta/dag"
)

func newDeltaImport() *cobra.Command {
	var f jobflags.Import
	var out string
	var reduce bool
	cmd := &cobra.Command{
		Use:   "import --format " + strings.Join(jobflags.Formats, "|") + " --gpus-per-pod N FILE... [--out job.json]",
		Short: "Make a job file from a workload or from execution traces",
		Long: `simai: the text that SimAI simulates. aicb: AICB's CSV. chakra: Chakra execution traces, a file for each rank
in order, protobuf (.et) or JSON (.json). Flags give the values that the file does not contain.`,
		Args: cli.Arguments,
		RunE: func(cmd *cobra.Command, files []string) error {
			if err := jobflags.CheckUses(cmd, jobflags.Formats, f.Format, "format", "out", "name", "reduce"); err != nil {
				return err
			}
			g, err := f.Read(files)
			if err != nil {
				return err
			}
			if reduce {
				g = dag.Reduce(g).Graph
			}
			return cli.WriteOutput("out", out, g.Encode())
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&f.Format, "format", "", fmt.Sprintf("one of %v", jobflags.Formats))
	fl.StringVar(&out, "out", "", "job file to write (standard output by default)")
	fl.StringVar(&f.Name, "name", "", "name of the job (default: that of the file)")
	fl.IntVar(&f.PerPod, "gpus-per-pod", 0, "GPUs in a pod")
	fl.IntVar(&f.GPUs, "gpus", 0, "GPUs of the job, if the file does not contain their number")
	fl.IntVar(&f.ETP, "etp", 1, "GPUs that share an expert (simai, aicb)")
	fl.Float64Var(&f.Gbps, "bandwidth", jobflags.DefaultGbps, "Gb/s of a NIC and of a circuit")
	fl.Float64Var(&f.ScaleUp, "scale-up", jobflags.DefaultScaleUp, "GB/s that a GPU reaches within its pod")
	fl.Float64Var(&f.Forward, "forward-us", 0, "forward time of a stage for a micro-batch, if the file has none (aicb)")
	fl.Float64Var(&f.Backward, "backward-us", 0, "the same for backward")
	fl.BoolVar(&reduce, "reduce", false, "write only transfers and the fixed delays between them")
	return cmd
}
