package iteration

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"lightpath/cmd/lightpath/cli"
	"lightpath/cmd/lightpath/cli/jobflags"
	"lightpath/plans/delta/calls"
	"lightpath/plans/delta/dag"
	"lightpath/plans/iteration"
	"lightpath/plans/iteration/learn"
	"lightpath/plans/iteration/trace"
	"lightpath/shim/flight"
	"lightpath/shim/flight/job"
)

// traceFlags say where a trace comes from.
type traceFlags struct {
	jobflags.Job
	format, algorithm, out string
	forward, backward      float64
}

// formats are the formats of files from which a trace is made.
var formats = append([]string{"flight", "job"}, jobflags.Formats...)

func newImport() *cobra.Command {
	var f traceFlags
	cmd := &cobra.Command{
		Use:   "import [--format " + strings.Join(formats, "|") + " FILE...] [--model NAME] [--out trace.json]",
		Short: "Make a trace from flight recorders, job files, workloads or a model",
		Long: `flight: dumps of the flight recorders of a job's ranks (lightpath ranks --dump). The trace has the calls that
repeat, with the medians of the gaps between them. job: a job file of topology delta generate --full or import. simai,
aicb and chakra: the files that topology delta import reads. Without files, the trace is that of a model with DELTA's
parallelism, which the other flags change: a pipeline whose stages work side by side, and gradients of all replicas.`,
		RunE: func(cmd *cobra.Command, files []string) error {
			t, err := f.read(cmd, files)
			if err != nil {
				return err
			}
			fmt.Fprintf(os.Stderr, "%d calls on %d ranks, communicators: %d; computation %s\n", len(t.Calls),
				t.Ranks, len(t.Communicators), iteration.Millis(t.Longest(nil)))
			return cli.WriteOutput("out", f.out, t.Encode())
		},
	}
	f.Register(cmd)
	fl := cmd.Flags()
	fl.StringVar(&f.format, "format", "flight", fmt.Sprintf("what the files are: one of %v", formats))
	fl.StringVar(&f.algorithm, "algorithm", "ring:2", "of the all-reduce over replicas (model, simai, aicb)")
	fl.StringVarP(&f.out, "out", "o", "", "trace file to write (standard output by default)")
	fl.Float64Var(&f.forward, "forward-us", 0, "forward time of a stage for a micro-batch, if the file has none (aicb)")
	fl.Float64Var(&f.backward, "backward-us", 0, "the same for backward")
	return cmd
}

func (f *traceFlags) read(cmd *cobra.Command, files []string) (*trace.Trace, error) {
	if len(files) == 0 {
		for _, name := range []string{"format", "forward-us", "backward-us"} {
			if given := cmd.Flags().Lookup(name); given.Changed {
				return nil, fmt.Errorf("--%s %s: want files", name, given.Value)
			}
		}
		c, err := f.Config(cmd)
		if err != nil {
			return nil, err
		}
		return calls.Model(&c, f.algorithm)
	}
	if err := jobflags.CheckUses(cmd, formats, f.format, "format", "out"); err != nil {
		return nil, err
	}
	in := jobflags.Import{Format: f.format, Name: files[0], PerPod: f.Over.GPUsPerPod, GPUs: f.Over.GPUs,
		ETP: max(1, f.Over.ETP), Gbps: jobflags.DefaultGbps, ScaleUp: jobflags.DefaultScaleUp,
		Forward: f.forward, Backward: f.backward}
	if cmd.Flags().Changed("bandwidth") {
		in.Gbps = f.Over.Gbps
	}
	if cmd.Flags().Changed("scale-up") {
		in.ScaleUp = f.Over.ScaleUpGBs
	}
	switch f.format {
	case "flight":
		return f.flights(files)
	case "job":
		if len(files) > 1 {
			return nil, fmt.Errorf("job: one file, not %d", len(files))
		}
		g, err := cli.DecodeArgument(files[0], dag.Decode)
		if err != nil {
			return nil, err
		}
		return graphTrace(files[0], g)
	case "chakra":
		g, err := in.Read(files)
		if err != nil {
			return nil, err
		}
		return graphTrace(files[0], g)
	}
	c, err := in.Workload(files)
	if err != nil {
		return nil, err
	}
	return calls.Model(c, f.algorithm)
}

func graphTrace(file string, g *dag.Graph) (*trace.Trace, error) {
	t, err := calls.Graph(g)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", cli.InputName(file), err)
	}
	return t, nil
}

// flights finds the iteration in dumps of flight recorders.
func (f *traceFlags) flights(files []string) (*trace.Trace, error) {
	dumps := make([]*flight.Dump, len(files))
	for i, file := range files {
		var err error
		if dumps[i], err = cli.DecodeArgument(file, flight.Decode); err != nil {
			return nil, err
		}
	}
	found, err := job.Find(dumps)
	if errors.Is(err, learn.ErrNoPeriod) {
		return nil, cli.No(err)
	}
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(os.Stderr, "%d iterations of %d calls, after %d others\n", found.Repeats(), found.Period(), found.Left)
	if found.Omitted > 0 {
		cli.Warn(fmt.Sprintf("%d operations are left out: groups of sends and receives, or not completed", found.Omitted))
	}
	return found.Trace, nil
}
