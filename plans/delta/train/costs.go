package train

import "lightpath/plans/delta/dag"

// Costs are the costs of one stage. Times in microseconds, sizes in bytes.
type Costs struct {
	Forward  float64 `json:"forward_us"` // of one micro-batch, collectives within the pod included
	Backward float64 `json:"backward_us"`
	Flow     float64 `json:"flow_bytes"` // gradients that each GPU sends to other pods
	Scatter  float64 `json:"scatter_us"` // among the lanes, before that
	Gather   float64 `json:"gather_us"`  // and after
}

// layersOf returns the first layer of stage s and the first of the next. Stages have equal numbers, or the
// first stages have one more, since the last one also computes the loss.
func (c *Config) layersOf(s int) (from, to int) {
	each, more := c.Model.Layers/c.PP, c.Model.Layers%c.PP
	first := func(s int) int { return s*each + min(s, more) }
	return first(s), first(s + 1)
}

// costs returns the costs of each stage.
func (c *Config) costs() []Costs {
	if c.Stages != nil {
		return c.Stages
	}
	list := make([]Costs, c.PP)
	var forward, backward float64
	for s := range list {
		list[s] = c.stageCosts(s)
		forward, backward = forward+list[s].Forward, backward+list[s].Backward
	}
	for s := range list {
		if !c.Uneven {
			list[s].Forward, list[s].Backward = forward/float64(c.PP), backward/float64(c.PP)
		}
	}
	return list
}

// stageCosts returns the costs of a stage with its own layers.
func (c *Config) stageCosts(s int) Costs {
	m := &c.Model
	tokens := float64(c.MicroBatch) * float64(c.Sequence) // of a lane
	flops, dense, expert, traffic := 0.0, 0.0, 0.0, 0.0
	from, to := c.layersOf(s)
	for i := from; i < to; i++ {
		all, active := m.layerParams(i)
		flops += tokens * (2*active + float64(c.Sequence)*float64(m.Heads)*float64(m.HeadDims))
		shared := all
		if m.moe(i) {
			experts := float64(m.Experts) * m.mlpParams(m.Expert)
			shared -= experts
			expert += experts
		}
		dense += shared
		traffic += c.layerTraffic(i, tokens)
	}
	if s == 0 {
		dense += m.embeddingParams()
	}
	if s == c.PP-1 {
		dense += m.embeddingParams()
		flops += 2 * tokens * m.embeddingParams()
	}
	compute := flops / (float64(c.TP) * c.TFLOPS * c.Efficiency * 1e6)
	scaleUp := c.ScaleUpGBs * 1e3 // bytes per microsecond
	replicas, lanes := float64(c.Replicas()), float64(c.Lanes())
	k := Costs{
		Forward:  compute + traffic/scaleUp,
		Backward: 2*compute + traffic/scaleUp,
		Flow:     2 * (replicas - 1) / replicas * (dense + expert) / float64(c.stageGPUs()) * c.Gradient,
	}
	k.Scatter = dense / float64(c.TP) * c.Gradient * (lanes - 1) / lanes / scaleUp
	k.Gather = k.Scatter
	return k
}

// layerTraffic returns the bytes that a GPU sends within its pod for one layer, in one direction of the computation.
func (c *Config) layerTraffic(i int, tokens float64) float64 {
	tp, ep := float64(c.TP), float64(c.EP)
	collective := (tp - 1) / tp * tokens * float64(c.Model.Hidden) * c.Activation
	if !c.Model.moe(i) {
		return 4 * collective
	}
	exchange := (ep - 1) / ep * tokens / tp * float64(c.Model.TopK) * float64(c.Model.Hidden) * c.Activation
	return 2*collective + 2*exchange
}

// boundary returns the bytes that all GPUs of a stage send to the next for one micro-batch.
func (c *Config) boundary() float64 {
	if c.Stages != nil {
		return c.BoundaryBytes
	}
	return float64(c.Lanes()) * float64(c.MicroBatch) * float64(c.Sequence) * float64(c.Model.Hidden) * c.Activation
}

// insideTime returns how long the transfer of a boundary takes within a pod, in us.
func (c *Config) insideTime() float64 {
	return c.BoundaryPerGPU() / (c.Gbps * dag.BytesPerUSPerGbps)
}

// StageCosts returns the costs of each stage, or the error of [Config.Validate].
func (c *Config) StageCosts() ([]Costs, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	return c.costs(), nil
}

// BoundaryPerGPU returns the bytes that a GPU sends to its neighbour in the next stage for one micro-batch.
func (c *Config) BoundaryPerGPU() float64 { return c.boundary() / float64(c.stageGPUs()) }
