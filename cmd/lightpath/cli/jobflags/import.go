package jobflags

import (
	"fmt"
	"path/filepath"
	"strings"

	"lightpath/cmd/lightpath/cli"
	"lightpath/plans/delta/aicb"
	"lightpath/plans/delta/chakra"
	"lightpath/plans/delta/dag"
	"lightpath/plans/delta/train"
)

// Values of facts that no file contains, unless a flag gives another.
const (
	DefaultGbps    = 400 // Gb/s of a NIC and of a circuit
	DefaultScaleUp = 360 // GB/s that a GPU reaches within its pod
)

// Import describes a job's files: their form, and the facts that they lack.
type Import struct {
	Format, Name      string
	PerPod, GPUs, ETP int
	Gbps, ScaleUp     float64
	Forward, Backward float64
}

// Read reads the graph of the job in files.
func (f *Import) Read(files []string) (*dag.Graph, error) {
	if f.Format == "chakra" {
		return f.traces(files)
	}
	c, err := f.Workload(files)
	if err != nil {
		return nil, err
	}
	return train.Generate(*c)
}

// nameBy names the job, if no flag does, by its first file.
func (f *Import) nameBy(files []string) {
	if f.Name == "" {
		f.Name = filepath.Base(files[0])
	}
}

// Workload reads the file of a workload.
func (f *Import) Workload(files []string) (*train.Config, error) {
	f.nameBy(files)
	parse := map[string]func(string, aicb.Options) (*train.Config, error){"simai": aicb.SimAI, "aicb": aicb.CSV}[f.Format]
	if len(files) > 1 {
		return nil, fmt.Errorf("%s: a workload is one file, not %d", f.Format, len(files))
	}
	return cli.DecodeArgument(files[0], func(text []byte) (*train.Config, error) {
		return parse(string(text), aicb.Options{Name: f.Name, GPUsPerPod: f.PerPod, Gbps: f.Gbps, ScaleUpGBs: f.ScaleUp,
			GPUs: f.GPUs, ETP: f.ETP, ForwardUS: f.Forward, BackwardUS: f.Backward, Warn: cli.Warn})
	})
}

// traces reads execution traces.
func (f *Import) traces(files []string) (*dag.Graph, error) {
	f.nameBy(files)
	traces := make([]*chakra.Trace, len(files))
	for i, file := range files {
		decode := chakra.Decode
		if strings.HasSuffix(file, ".json") {
			decode = chakra.DecodeJSON
		}
		var err error
		if traces[i], err = cli.DecodeArgument(file, decode); err != nil {
			return nil, err
		}
	}
	return chakra.Graph(traces, chakra.Options{
		Name: f.Name, GPUsPerPod: f.PerPod, Gbps: f.Gbps, ScaleUpGBs: f.ScaleUp, Warn: cli.Warn,
	})
}
