package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"lightpath/plans/delta/aicb"
	"lightpath/plans/delta/chakra"
	"lightpath/plans/delta/dag"
	"lightpath/plans/delta/train"
)

// importFlags are the facts of a job that a trace lacks.
type importFlags struct {
	format, out, name string
	perPod, gpus, etp int
	gbps, scaleUp     float64
	forward, backward float64
	reduce            bool
}

func newDeltaImport() *cobra.Command {
	var f importFlags
	cmd := &cobra.Command{
		Use:   "import --format simai|aicb|chakra --gpus-per-pod N FILE... [--out job.json]",
		Short: "Make a job file from a workload or from execution traces",
		Long: `simai: the text that SimAI simulates. aicb: AICB's CSV. chakra: Chakra execution traces, a file for each rank
in order, protobuf (.et) or JSON (.json). Flags give the values that the file does not contain.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, files []string) error {
			g, err := f.read(files)
			if err != nil {
				return err
			}
			if f.reduce {
				g = dag.Reduce(g).Graph
			}
			return writeOutput("out", f.out, g.Encode())
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&f.format, "format", "", "simai, aicb or chakra")
	fl.StringVar(&f.out, "out", "", "job file to write (standard output by default)")
	fl.StringVar(&f.name, "name", "", "name of the job (default: that of the file)")
	fl.IntVar(&f.perPod, "gpus-per-pod", 0, "GPUs in a pod")
	fl.IntVar(&f.gpus, "gpus", 0, "GPUs of the job, if the file does not contain their number")
	fl.IntVar(&f.etp, "etp", 1, "GPUs that share an expert (simai, aicb)")
	fl.Float64Var(&f.gbps, "bandwidth", 400, "Gb/s of a NIC and of a circuit")
	fl.Float64Var(&f.scaleUp, "scale-up", 360, "GB/s that a GPU reaches within its pod")
	fl.Float64Var(&f.forward, "forward-us", 0, "forward time of a stage for a micro-batch, if the file has none (aicb)")
	fl.Float64Var(&f.backward, "backward-us", 0, "the same for backward")
	fl.BoolVar(&f.reduce, "reduce", false, "write only transfers and the fixed delays between them")
	return cmd
}

func (f *importFlags) read(files []string) (*dag.Graph, error) {
	if f.format == "chakra" {
		return f.traces(files)
	}
	c, err := f.workload(files)
	if err != nil {
		return nil, err
	}
	return train.Generate(*c)
}

// nameBy names the job, if no flag does, by its first file.
func (f *importFlags) nameBy(files []string) {
	if f.name == "" {
		f.name = filepath.Base(files[0])
	}
}

// workload reads the file of a workload.
func (f *importFlags) workload(files []string) (*train.Config, error) {
	f.nameBy(files)
	parse := map[string]func(string, aicb.Options) (*train.Config, error){"simai": aicb.SimAI, "aicb": aicb.CSV}[f.format]
	switch {
	case parse == nil:
		return nil, fmt.Errorf("--format: %q is not simai, aicb or chakra", f.format)
	case len(files) > 1:
		return nil, fmt.Errorf("%s: a workload is one file, not %d", f.format, len(files))
	}
	text, err := readArgument(files[0])
	if err != nil {
		return nil, err
	}
	c, err := parse(string(text), aicb.Options{Name: f.name, GPUsPerPod: f.perPod, Gbps: f.gbps, ScaleUpGBs: f.scaleUp,
		GPUs: f.gpus, ETP: f.etp, ForwardUS: f.forward, BackwardUS: f.backward, Warn: warn})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", inputName(files[0]), err)
	}
	return c, nil
}

// traces reads execution traces.
func (f *importFlags) traces(files []string) (*dag.Graph, error) {
	f.nameBy(files)
	traces := make([]*chakra.Trace, len(files))
	for i, file := range files {
		text, err := readArgument(file)
		if err != nil {
			return nil, err
		}
		decode := chakra.Decode
		if strings.HasSuffix(file, ".json") {
			decode = chakra.DecodeJSON
		}
		if traces[i], err = decode(text); err != nil {
			return nil, fmt.Errorf("%s: %w", inputName(file), err)
		}
	}
	return chakra.Graph(traces, chakra.Options{
		Name: f.name, GPUsPerPod: f.perPod, Gbps: f.gbps, ScaleUpGBs: f.scaleUp, Warn: warn,
	})
}

// warn prints a warning about an accepted input.
func warn(text string) { fmt.Fprintln(os.Stderr, "lightpath: warning:", text) }
