package calls

import (
	"lightpath/plans/delta/train"
	"lightpath/plans/iteration/trace"
)

// Model returns the trace of one iteration of a job. algorithm is that of the all-reduce over replicas, such as ring:2.
// Errors wrap [train.ErrConfig] or [trace.ErrTrace].
func Model(c *train.Config, algorithm string) (*trace.Trace, error) {
	costs, err := c.StageCosts()
	if err != nil {
		return nil, err
	}
	b := &builder{c: c, t: &trace.Trace{Name: c.Model.Name, Ranks: c.GPUs}, last: trace.Begin}
	forward, backward, scatter, gather, flow := 0.0, 0.0, 0.0, 0.0, 0.0
	for _, k := range costs {
		forward, backward = max(forward, k.Forward), max(backward, k.Backward)
		scatter, gather, flow = max(scatter, k.Scatter), max(gather, k.Gather), max(flow, k.Flow)
	}
	b.communicators()
	boundary := c.BoundaryPerGPU()
	slots, warm := c.MicroBatches+2*(c.PP-1), c.PP-1
	for slot := range slots {
		if slot < slots-warm {
			b.gap += forward
			b.send("forward", 1, boundary)
		}
		if slot >= warm {
			b.gap += backward
			b.send("backward", -1, boundary)
		}
	}
	replicas := float64(c.Replicas())
	b.gap += scatter
	if replicas > 1 {
		// A ring sends 2(R-1)/R of the buffer.
		b.add(trace.Call{Name: "gradients", Communicator: 1, Collective: "allreduce", Algorithm: algorithm,
			Bytes: flow * replicas / (2 * (replicas - 1))})
	}
	b.gap += gather
	if n := len(b.t.Calls); n > 0 {
		b.t.Calls[n-1].TailUS = b.gap
	}
	return b.t, b.t.Validate()
}

type builder struct {
	c    *train.Config
	t    *trace.Trace
	last int     // the call before
	gap  float64 // computation since
}

func (b *builder) add(call trace.Call) {
	call.After = []trace.After{{Call: b.last, GapUS: b.gap}}
	b.t.Calls = append(b.t.Calls, call)
	b.last, b.gap = len(b.t.Calls)-1, 0
}

// communicators writes that of all GPUs, and those of the GPUs with one place in all replicas.
func (b *builder) communicators() {
	all, replica := make([]int, b.c.GPUs), b.c.GPUs/b.c.Replicas()
	for g := range all {
		all[g] = g
	}
	places := make([][]int, replica)
	for place := range places {
		for r := range b.c.Replicas() {
			places[place] = append(places[place], r*replica+place)
		}
	}
	b.t.Communicators = []trace.Communicator{{Name: "pipeline", Groups: [][]int{all}}, {Name: "replicas", Groups: places}}
}

// send adds the transfers between neighbouring stages of all replicas, in one direction.
func (b *builder) send(name string, direction int, bytes float64) {
	c := b.c
	if c.PP == 1 {
		return
	}
	stage := c.GPUs / c.Replicas() / c.PP
	flows := make([][2]int, 0, c.GPUs)
	for r := range c.Replicas() {
		for s := range c.PP - 1 {
			for g := range stage {
				low := (r*c.PP+s)*stage + g
				f := [2]int{low, low + stage}
				if direction < 0 {
					f[0], f[1] = f[1], f[0]
				}
				flows = append(flows, f)
			}
		}
	}
	b.add(trace.Call{Name: name, Flows: flows, Bytes: bytes})
}
