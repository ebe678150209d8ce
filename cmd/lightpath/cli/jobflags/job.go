package jobflags

import (
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"lightpath/plans/delta/train"
)

// Job chooses a job of the generator.
type Job struct {
	Model string
	Over  train.Config // values of the flags that replace those of the preset
}

// Register adds the flags.
func (f *Job) Register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.Model, "model", "megatron-177b",
		fmt.Sprintf("one of %v, with the parallelism of DELTA's evaluation; the other flags change it", train.Names()))
	configFlags(cmd.Flags(), &f.Over)
}

// configFlags adds a flag for each field of c; its value is the default.
func configFlags(fl *pflag.FlagSet, c *train.Config) {
	fl.IntVar(&c.TP, "tp", c.TP, "GPUs that share a layer")
	fl.IntVar(&c.PP, "pp", c.PP, "stages of a pipeline")
	fl.IntVar(&c.EP, "ep", c.EP, "groups of GPUs that share the experts of a layer")
	fl.IntVar(&c.ETP, "etp", c.ETP, "GPUs that share an expert")
	fl.IntVar(&c.GPUs, "gpus", c.GPUs, "GPUs of the job")
	fl.IntVar(&c.GPUsPerPod, "gpus-per-pod", c.GPUsPerPod, "GPUs in a pod, all of one replica")
	fl.IntVar(&c.MicroBatches, "micro-batches", c.MicroBatches, "micro-batches per GPU and iteration")
	fl.IntVar(&c.MicroBatch, "micro-batch", c.MicroBatch, "sequences of a micro-batch")
	fl.IntVar(&c.Sequence, "sequence", c.Sequence, "tokens of a sequence")
	fl.Float64Var(&c.Gbps, "bandwidth", c.Gbps, "Gb/s of a NIC and of a circuit")
	fl.Float64Var(&c.ScaleUpGBs, "scale-up", c.ScaleUpGBs, "GB/s that a GPU reaches within its server")
	fl.Float64Var(&c.TFLOPS, "tflops", c.TFLOPS, "peak TFLOPS of a GPU")
	fl.Float64Var(&c.Efficiency, "efficiency", c.Efficiency, "fraction of the peak that computation reaches")
	fl.BoolVar(&c.Uneven, "uneven", c.Uneven, "each stage takes the time of its own layers, instead of the average")
	fl.BoolVar(&c.Overlap, "overlap", c.Overlap, "senders compute during their transfers")
}

// Config returns the preset with the values of the flags that were given.
func (f *Job) Config(cmd *cobra.Command) (train.Config, error) {
	c, err := train.Preset(f.Model)
	if err != nil {
		return c, fmt.Errorf("--model: %w", err)
	}
	fields := pflag.NewFlagSet("", pflag.ContinueOnError)
	configFlags(fields, &c)
	cmd.Flags().Visit(func(given *pflag.Flag) {
		if field := fields.Lookup(given.Name); field != nil && err == nil {
			err = field.Value.Set(given.Value.String())
		}
	})
	return c, err
}

// Models returns the models of the generator.
func Models() []string { return train.Names() }
