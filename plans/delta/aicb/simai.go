package aicb

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"lightpath/plans/delta/train"
)

// simaiColumns are the fields of a layer's line.
var simaiColumns = []string{"name", "placeholder", "forward_compute_time", "forward_comm", "forward_comm_size",
	"backward_compute_time",
	"backward_comm", "backward_comm_size", "dp_compute_time", "dp_comm", "dp_comm_size", "process_time"}

// SimAI reads the text form. It describes one stage, and all stages are alike. The form has a header
// (model_parallel_NPU_group, ep, pp, ga, all_gpus, pp_comm), the number of layers, and the layers of all
// micro-batches. Times are in ns, sizes in bytes. Names of collectives end in _EP for experts and in _DP_EP
// for gradients of experts.
func SimAI(text string, o Options) (*train.Config, error) {
	lines := strings.Split(strings.ReplaceAll(text, "\r", ""), "\n")
	for len(lines) > 0 && strings.TrimSpace(lines[len(lines)-1]) == "" {
		lines = lines[:len(lines)-1]
	}
	if len(lines) < 2 {
		return nil, fmt.Errorf("%w: line %d: cut short", ErrWorkload, len(lines)+1)
	}
	h, err := simaiHeader(lines[0])
	if err != nil {
		return nil, err
	}
	gpus, err := o.gpus(int(h["all_gpus"]))
	if err != nil {
		return nil, fmt.Errorf("line 1: all_gpus: %w", err)
	}
	h["all_gpus"] = float64(gpus)
	for _, name := range []string{"model_parallel_NPU_group", "all_gpus"} {
		if h[name] < 1 {
			return nil, fmt.Errorf("%w: line 1: %s is missing", ErrWorkload, name)
		}
	}
	c, err := o.config(int(h["model_parallel_NPU_group"]), max(1, int(h["pp"])), max(1, int(h["ep"])), gpus,
		max(1, int(h["ga"])))
	if err != nil {
		return nil, fmt.Errorf("line 1: %w", err)
	}
	count, err := strconv.Atoi(strings.TrimSpace(lines[1]))
	switch layers := len(lines) - 2; {
	case err != nil || count < 1:
		return nil, fmt.Errorf("%w: line 2: %q is no number of layers", ErrWorkload, lines[1])
	case layers < count:
		return nil, fmt.Errorf("%w: line %d: cut short: %d of %d layers", ErrWorkload, len(lines)+1, layers, count)
	case layers > count:
		return nil, fmt.Errorf("%w: line %d: more than %d layers", ErrWorkload, count+3, count)
	}
	var k train.Costs
	for i, line := range lines[2:] {
		if err := simaiLayer(line, c, &k); err != nil {
			return nil, fmt.Errorf("%w: line %d: %w", ErrWorkload, i+3, err)
		}
	}
	for s := range c.Stages {
		c.Stages[s] = k
	}
	c.BoundaryBytes = h["pp_comm"] * float64(c.TP) * float64(c.Lanes())
	return o.finish(c)
}

// simaiHeader reads pairs of a name and a number; colons are optional there.
func simaiHeader(line string) (map[string]float64, error) {
	if f := strings.Fields(line); len(f) == 0 || !strings.HasPrefix(f[0], "HYBRID_TRANSFORMER") {
		return nil, fmt.Errorf("%w: line 1: %.40q is not the header of a training job", ErrWorkload, line)
	}
	h := make(map[string]float64)
	f := strings.Fields(strings.ReplaceAll(line, ":", " "))[1:]
	for i := 0; i < len(f); i += 2 {
		if i+1 == len(f) {
			return nil, fmt.Errorf("%w: line 1: %s has no value", ErrWorkload, f[i])
		}
		v, err := strconv.ParseFloat(f[i+1], 64)
		if err != nil || !(v >= 0 && v < maxNumber) {
			return nil, fmt.Errorf("%w: line 1: %s: %q is no number, negative or too large", ErrWorkload, f[i], f[i+1])
		}
		h[f[i]] = v
	}
	return h, nil
}

// once reports whether a layer with this name belongs to the end of the iteration, and not to a micro-batch.
func once(name string) bool {
	prefixes := []string{"grad_", "moe_grad", "embedding_grads", "embedding_norm", "layernorm"}
	return slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}

// simaiLayer adds a layer to the costs of a micro-batch, or of the end of the iteration.
func simaiLayer(line string, c *train.Config, k *train.Costs) error {
	f := strings.Fields(line)
	if len(f) != len(simaiColumns) {
		return fmt.Errorf("%d fields, want %d", len(f), len(simaiColumns))
	}
	var v [12]float64
	for _, i := range []int{2, 4, 5, 7, 8, 10} {
		var err error
		if v[i], err = strconv.ParseFloat(f[i], 64); err != nil || !(v[i] >= 0 && v[i] < maxNumber) {
			return fmt.Errorf("%s: %q is no number, negative or too large", simaiColumns[i], f[i])
		}
	}
	inside := func(i int) (float64, error) {
		name, n := f[i], c.TP
		if base, ok := strings.CutSuffix(name, "_EP"); ok {
			name, n = base, c.EP
		}
		part, ok := ring(name, n)
		if !ok {
			return 0, fmt.Errorf("%s: %q is no collective", simaiColumns[i], f[i])
		}
		return part * v[i+1] / (c.ScaleUpGBs * 1e3), nil
	}
	forward, err := inside(3)
	if err != nil {
		return err
	}
	backward, err := inside(6)
	if err != nil {
		return err
	}
	forward += v[2] / 1e3
	backward += (v[5] + v[8]) / 1e3 // of the inputs, and of the weights
	if once(f[0]) {
		k.Gather += forward + backward
	} else {
		k.Forward += forward / float64(c.MicroBatches)
		k.Backward += backward / float64(c.MicroBatches)
	}
	name, experts := strings.CutSuffix(f[9], "_DP_EP")
	if !gradients(k, c, name, v[10], !experts) {
		return fmt.Errorf("dp_comm: %q is no collective", f[9])
	}
	return nil
}
