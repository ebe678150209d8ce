// Package aicb reads communication workloads of training jobs in the two forms that AICB writes. The text
// form, which SimAI simulates, has a header line, a count and a line per layer. The CSV form, which runs on a
// cluster, has a section per pipeline stage and a row per operation. Both become a [train.Config] with the
// measured costs of every stage. Package train adds the pipeline.
//
// Layer: inside plans/delta, above train. It must not open files; callers pass the text.
//
// Sizes of collectives are those of the whole buffer. A ring sends (n-1)/n of it, and an all-reduce twice
// that. Collectives of tensor and expert parallelism stay in the pod and take their time at the scale-up
// rate. In collectives of data parallelism, R replicas send (R-1)/R to other pods, divided over the lanes of
// a stage.
package aicb

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"lightpath/plans/delta/train"
)

// ErrWorkload is wrapped by every error about a workload. The message names the line.
var ErrWorkload = errors.New("bad workload")

// Options hold the facts of a job that a workload file lacks.
type Options struct {
	Name       string
	GPUsPerPod int
	Gbps       float64 // of a NIC, and of a circuit
	ScaleUpGBs float64 // GB/s per GPU and direction within a pod
	GPUs       int     // of the job, where the file does not say; 0: it must. A file that says another number is refused
	ETP        int     // GPUs that share an expert; 0: 1
	// ForwardUS and BackwardUS are a stage's computation for one micro-batch, if the file has none; 0: the file must
	// have it.
	ForwardUS, BackwardUS float64
	// Warn, unless nil, is called with a warning about an accepted workload.
	Warn func(text string)
}

// gpus returns the number of the job's GPUs. file is the number in the file, or 0 if it has none.
func (o *Options) gpus(file int) (int, error) {
	if file > 0 && o.GPUs > 0 && o.GPUs != file {
		return 0, fmt.Errorf("%w: gpus: %d are given, and the file says %d", ErrWorkload, o.GPUs, file)
	}
	return max(file, o.GPUs), nil
}

// finish checks a configuration, and warns of replicas that exchange no gradients.
func (o *Options) finish(c *train.Config) (*train.Config, error) {
	silent := 0
	for _, k := range c.Stages {
		if k.Flow == 0 {
			silent++
		}
	}
	if silent > 0 && c.Replicas() > 1 && o.Warn != nil {
		o.Warn(fmt.Sprintf("%d of %d stages have gradients of 0 bytes, and the job has %d replicas: "+
			"the file has no data-parallel collective with bytes for them", silent, len(c.Stages), c.Replicas()))
	}
	return c, c.Validate()
}

// maxNumber bounds sizes and times; beyond it doubles are not exact.
const maxNumber = 1 << 53

// config returns the configuration that both forms complete.
func (o *Options) config(tp, pp, ep, gpus, batches int) (*train.Config, error) {
	c := &train.Config{Model: train.Model{Name: o.Name}, TP: tp, PP: pp, EP: ep, ETP: max(1, o.ETP), GPUs: gpus,
		GPUsPerPod:   o.GPUsPerPod,
		MicroBatches: batches, Gbps: o.Gbps, ScaleUpGBs: o.ScaleUpGBs}
	if pp < 1 || pp > 1<<12 {
		return nil, fmt.Errorf("%w: pp: %d stages", ErrWorkload, pp)
	}
	c.Stages = make([]train.Costs, pp)
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrWorkload, err)
	}
	return c, nil
}

// ring returns the part of a collective's buffer that each of n ranks sends.
func ring(collective string, n int) (float64, bool) {
	share := float64(n-1) / math.Max(1, float64(n))
	switch strings.ReplaceAll(strings.ToLower(collective), "_", "") {
	case "none", "", "barrier":
		return 0, true
	case "allreduce":
		return 2 * share, true
	case "allgather", "reducescatter", "alltoall", "allgatherintotensor", "reducescattertensor":
		return share, true
	case "broadcast", "reduce", "gather", "scatter":
		return math.Min(1, float64(n-1)), true
	}
	return 0, false
}

// gradients adds a data-parallel collective of a buffer of every GPU: among the lanes before or after,
// and between replicas.
func gradients(k *train.Costs, c *train.Config, collective string, bytes float64, overLanes bool) bool {
	replicas, n := c.Replicas(), 1.0
	if overLanes {
		n = float64(c.Lanes())
	}
	part, ok := ring(collective, replicas)
	k.Flow += part * bytes / n
	among, _ := ring(collective, int(n))
	us := among * bytes / (c.ScaleUpGBs * 1e3)
	switch name := strings.ToLower(collective); {
	case strings.Contains(name, "scatter"):
		k.Scatter += us
	case strings.Contains(name, "gather"):
		k.Gather += us
	default:
		k.Scatter, k.Gather = k.Scatter+us/2, k.Gather+us/2
	}
	return ok
}
