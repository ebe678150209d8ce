package train

import (
	"errors"
	"fmt"
	"math"
	"strings"
)

// ErrConfig is wrapped by every error about a configuration. The message names the field.
var ErrConfig = errors.New("bad job configuration")

// Config is a training job: a model, its parallelism and the hardware.
type Config struct {
	Model Model `json:"-"`

	TP  int `json:"tp"`  // GPUs that share a layer
	PP  int `json:"pp"`  // stages of a pipeline
	EP  int `json:"ep"`  // groups of GPUs that share the experts of a layer; 1 for dense models
	ETP int `json:"etp"` // GPUs that share an expert

	GPUs         int `json:"gpus"`
	GPUsPerPod   int `json:"gpus_per_pod"` // of one replica; a pod holds one replica only
	MicroBatches int `json:"micro_batches"`
	MicroBatch   int `json:"micro_batch"` // sequences per micro-batch and lane
	Sequence     int `json:"sequence"`    // tokens

	Gbps       float64 `json:"bandwidth_gbps"`   // of a NIC, and of a circuit
	ScaleUpGBs float64 `json:"scale_up_gb_s"`    // rate within a server, GB/s per GPU and direction, as attained
	TFLOPS     float64 `json:"tflops"`           // peak of a GPU
	Efficiency float64 `json:"efficiency"`       // attained part of the peak
	Activation float64 `json:"activation_bytes"` // bytes of one
	Gradient   float64 `json:"gradient_bytes"`   // bytes of one

	// Uneven gives every stage the time of its own layers. Without it, all take the average, the loss included, as
	// tuned pipelines nearly do.
	Uneven bool `json:"uneven"`

	// Stages, unless nil, are the measured costs of every stage. BoundaryBytes is then what all GPUs of a stage send to
	// the next for one micro-batch, and Model, MicroBatch, Sequence, TFLOPS, Efficiency, Activation and Gradient are
	// ignored.
	Stages        []Costs `json:"stages,omitempty"`
	BoundaryBytes float64 `json:"boundary_bytes,omitempty"`

	// Overlap: the sender computes during its transfers.
	Overlap bool `json:"overlap"`
	// Full writes all replicas instead of the projection on one.
	Full bool `json:"full"`
}

// hardware sets the values that all presets share. An H100 has 989.5 dense BF16 TFLOPS; dense models reach 45
// % of them, models with experts 35 %. NVLink has 450 GB/s, of which 80 % are reached. All numbers are BF16.
func (c Config) hardware(efficiency float64) Config {
	c.Gbps, c.Sequence, c.MicroBatch = 400, 4096, 1
	c.ScaleUpGBs, c.TFLOPS, c.Efficiency = 360, 989.5, efficiency
	c.Activation, c.Gradient = 2, 2
	return c
}

// Preset returns the configuration of DELTA's Table I for a model of models, or that of its Fig. 1 for
// gpt-7b, at 400 Gb/s and 4096 tokens.
func Preset(name string) (Config, error) {
	const dense, experts = 0.45, 0.35
	c := map[string]Config{
		"gpt-7b":        Config{TP: 2, PP: 4, EP: 1, ETP: 1, GPUs: 16, GPUsPerPod: 4, MicroBatches: 8}.hardware(dense),
		"megatron-177b": Config{TP: 8, PP: 6, EP: 1, ETP: 1, GPUs: 384, GPUsPerPod: 16, MicroBatches: 48}.hardware(dense),
		"mixtral-8x22b": Config{TP: 2, PP: 8, EP: 8, ETP: 1, GPUs: 128, GPUsPerPod: 16, MicroBatches: 64}.hardware(experts),
		"megatron-462b": Config{TP: 8, PP: 16, EP: 1, ETP: 1, GPUs: 1024, GPUsPerPod: 32, MicroBatches: 128}.hardware(dense),
		"deepseek-671b": Config{TP: 2, PP: 16, EP: 8, ETP: 1, GPUs: 256, GPUsPerPod: 32, MicroBatches: 128}.hardware(experts),
	}
	for _, m := range models() {
		if m.Name == name {
			preset := c[name]
			preset.Model = m
			return preset, nil
		}
	}
	return Config{}, fmt.Errorf("%w: model: there is no %q; there are %s", ErrConfig, name, strings.Join(Names(), ", "))
}

// Names returns the names that [Preset] knows.
func Names() []string {
	var names []string
	for _, m := range models() {
		names = append(names, m.Name)
	}
	return names
}

// Lanes returns how many groups of TP GPUs a stage of a replica has.
func (c *Config) Lanes() int { return max(1, c.EP*c.ETP/c.TP) }

// stageGPUs returns the number of GPUs of a stage of a replica.
func (c *Config) stageGPUs() int { return c.TP * c.Lanes() }

// Replicas returns how many copies of the pipeline there are.
func (c *Config) Replicas() int { return c.GPUs / (c.stageGPUs() * c.PP) }

// stagesPerPod returns how many stages a pod holds.
func (c *Config) stagesPerPod() int { return c.GPUsPerPod / c.stageGPUs() }

// podsPerReplica returns how many pods a replica fills.
func (c *Config) podsPerReplica() int {
	return (c.PP + c.stagesPerPod() - 1) / c.stagesPerPod()
}

// rate is a field of a configuration and its value.
type rate struct {
	name  string
	value float64
}

// maxSize bounds every count of a configuration, so that products of them fit.
const maxSize = 1 << 20

// Validate reports the first field that is wrong.
func (c *Config) Validate() error {
	type count struct {
		name  string
		value int
	}
	counts := []count{{"tp", c.TP}, {"pp", c.PP}, {"ep", c.EP}, {"etp", c.ETP}, {"gpus", c.GPUs},
		{"gpus_per_pod", c.GPUsPerPod},
		{"micro_batches", c.MicroBatches}}
	rates := []rate{{"bandwidth_gbps", c.Gbps}, {"scale_up_gb_s", c.ScaleUpGBs}}
	if c.Stages == nil {
		counts = append(counts, count{"micro_batch", c.MicroBatch}, count{"sequence", c.Sequence})
		rates = append(rates, rate{"tflops", c.TFLOPS}, rate{"efficiency", c.Efficiency},
			rate{"activation_bytes", c.Activation},
			rate{"gradient_bytes", c.Gradient})
	}
	for _, f := range counts {
		if f.value < 1 || f.value > maxSize {
			return fmt.Errorf("%w: %s: %d is outside 1..%d", ErrConfig, f.name, f.value, maxSize)
		}
	}
	for _, f := range rates {
		if !(f.value > 0) || math.IsInf(f.value, 0) {
			return fmt.Errorf("%w: %s: %v is not positive", ErrConfig, f.name, f.value)
		}
	}
	check := c.checkModel
	if c.Stages != nil {
		check = c.checkStages
	}
	if err := check(); err != nil {
		return fmt.Errorf("%w: %w", ErrConfig, err)
	}
	return c.checkSpread()
}

// checkModel reports the first field of the model that does not fit the parallelism.
func (c *Config) checkModel() error {
	switch {
	case c.Efficiency > 1:
		return fmt.Errorf("efficiency: %v is more than the peak", c.Efficiency)
	case c.Model.Experts == 0 && (c.EP != 1 || c.ETP != 1):
		return fmt.Errorf("ep: %s has no experts to spread over %d", c.Model.Name, c.EP*c.ETP)
	case c.Model.Experts > 0 && c.Model.Experts%c.EP != 0:
		return fmt.Errorf("ep: %d experts do not spread evenly over %d", c.Model.Experts, c.EP)
	case c.PP > c.Model.Layers:
		return fmt.Errorf("pp: %d stages for %d layers", c.PP, c.Model.Layers)
	}
	return nil
}

// checkStages reports the first invalid measured cost.
func (c *Config) checkStages() error {
	if len(c.Stages) != c.PP {
		return fmt.Errorf("stages: costs of %d, and there are %d", len(c.Stages), c.PP)
	}
	wrong := func(v float64) bool { return !(v >= 0) || math.IsInf(v, 0) }
	for s, k := range c.Stages {
		for _, f := range []rate{{"forward_us", k.Forward}, {"backward_us", k.Backward}, {"flow_bytes", k.Flow},
			{"scatter_us", k.Scatter}, {"gather_us", k.Gather}} {
			if wrong(f.value) {
				return fmt.Errorf("stages[%d].%s: %v is negative or not finite", s, f.name, f.value)
			}
		}
	}
	if wrong(c.BoundaryBytes) {
		return fmt.Errorf("boundary_bytes: %v is negative or not finite", c.BoundaryBytes)
	}
	return nil
}

// checkSpread reports the first numbers of GPUs, stages and pods that contradict each other.
func (c *Config) checkSpread() error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: %s", ErrConfig, fmt.Sprintf(format, args...))
	}
	switch {
	case c.EP*c.ETP > 1 && (c.EP*c.ETP)%c.TP != 0:
		return bad("ep: experts on %d x %d GPUs are no whole number of lanes of %d", c.EP, c.ETP, c.TP)
	case c.GPUs%(c.stageGPUs()*c.PP) != 0:
		return bad("gpus: %d are no whole number of replicas of %d stages of %d", c.GPUs, c.PP, c.stageGPUs())
	case c.GPUsPerPod%c.stageGPUs() != 0:
		return bad("gpus_per_pod: %d are no whole number of stages of %d", c.GPUsPerPod, c.stageGPUs())
	case c.PP*c.MicroBatches > 1<<18:
		return bad("micro_batches: %d of them on %d stages are too many", c.MicroBatches, c.PP)
	case c.Full && c.Replicas()*c.PP*c.MicroBatches > 1<<18:
		return bad("full: %d replicas of %d micro-batches on %d stages are too many", c.Replicas(), c.MicroBatches, c.PP)
	}
	return nil
}
