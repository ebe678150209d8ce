package planning

import (
	"fmt"

	"lightpath/plans/delta/calls"
	"lightpath/plans/delta/train"
	"lightpath/plans/iteration/trace"
)

// iterationJobs are the traces of the report: DELTA's Table I, and three jobs that send more between shorter gaps.
func iterationJobs(quick bool) ([]*trace.Trace, error) {
	names := train.Names()[1:]
	if quick {
		names = names[:1]
	}
	var jobs []*trace.Trace
	for _, name := range names {
		c, err := train.Preset(name)
		if err != nil {
			return nil, err
		}
		t, err := calls.Model(&c, "ring:2")
		if err != nil {
			return nil, err
		}
		jobs = append(jobs, t)
	}
	return append(jobs, bucketsJob(), expertsJob(), tensorJob()), nil
}

// job is a trace that is being written.
type job struct{ *trace.Trace }

func newJob(name string, ranks int) job { return job{&trace.Trace{Name: name, Ranks: ranks}} }

// communicator adds one group, or several, of consecutive ranks (stride 1) or of ranks that are a stride apart.
func (j job) communicator(name string, size, stride int) int {
	c := trace.Communicator{Name: name}
	for base := 0; base < j.Ranks; base += size * stride {
		for first := range stride {
			group := make([]int, size)
			for k := range group {
				group[k] = base + first + k*stride
			}
			c.Groups = append(c.Groups, group)
		}
	}
	j.Communicators = append(j.Communicators, c)
	return len(j.Communicators) - 1
}

// call adds a call that comes gap us after the one before.
func (j job) call(name string, comm int, collective, algorithm string, bytes, gap float64) {
	j.Calls = append(j.Calls, trace.Call{Name: name, Communicator: comm, Collective: collective, Algorithm: algorithm,
		Bytes: bytes, After: []trace.After{{Call: len(j.Calls) - 1, GapUS: gap}}})
}

// bucketsJob is data parallelism alone: 7 billion parameters on 64 ranks, gradients in buckets of 256 MB that come
// while the backward pass runs.
func bucketsJob() *trace.Trace {
	const forward, backward, buckets = 200e3, 400e3, 55
	j := newJob("data parallel, 64 ranks", 64)
	all := j.communicator("all", 64, 1)
	for k := range buckets {
		ready := trace.After{Call: trace.Begin, GapUS: forward + backward*float64(k+1)/buckets}
		j.Calls = append(j.Calls, trace.Call{Name: "bucket", Communicator: all, Collective: "allreduce", Algorithm: "ring:2",
			Bytes: 256e6, After: []trace.After{ready}, TailUS: 5e3})
	}
	return j.Trace
}

// expertsJob is a model with experts: 64 ranks in groups of 8 that exchange tokens twice in a layer, forward and
// backward, and gradients of all ranks at the end.
func expertsJob() *trace.Trace {
	const layers, gap = 24, 3e3
	j := newJob("experts, 8 of 64 ranks", 64)
	experts, all := j.communicator("experts", 8, 1), j.communicator("replicas", 8, 8)
	for _, pass := range []float64{1, 2} {
		for range layers {
			j.call("dispatch", experts, "alltoall", "pairwise", 64e6, pass*gap)
			j.call("combine", experts, "alltoall", "pairwise", 64e6, pass*gap)
		}
	}
	j.call("gradients", all, "allreduce", "ring:2", 1e9, gap)
	j.Calls[len(j.Calls)-1].TailUS = 20e3
	return j.Trace
}

// tensorJob is tensor parallelism over circuits: 128 ranks in groups of 8 that reduce activations twice in a layer, a
// pipeline of 4 stages of 8 layers, and gradients of 4 replicas.
func tensorJob() *trace.Trace {
	const layers, micro, gap = 8, 6, 1.5e3
	j := newJob("tensor, 8 of 128 ranks", 128)
	tensor, pipeline, replicas := j.communicator("tensor", 8, 1), j.communicator("stages", 4, 8),
		j.communicator("replicas", 4, 32)
	for _, pass := range []struct {
		name string
		flow [][2]int
		slow float64
	}{{"forward", [][2]int{{0, 1}, {1, 2}, {2, 3}}, 1}, {"backward", [][2]int{{1, 0}, {2, 1}, {3, 2}}, 2}} {
		for range micro {
			for range layers {
				j.call("tensor", tensor, "allreduce", "ring:2", 32e6, pass.slow*gap)
				j.call("tensor", tensor, "allreduce", "ring:2", 32e6, pass.slow*gap)
			}
			j.Calls = append(j.Calls, trace.Call{Name: pass.name, Communicator: pipeline, Flows: pass.flow, Bytes: 16e6,
				After: []trace.After{{Call: len(j.Calls) - 1, GapUS: pass.slow * gap}}})
		}
	}
	j.call("gradients", replicas, "allreduce", "ring:2", 500e6, gap)
	j.Calls[len(j.Calls)-1].TailUS = 20e3
	return j.Trace
}

// jobTitle names a job with its size.
func jobTitle(t *trace.Trace) string { return fmt.Sprintf("%s: %d calls", t.Name, len(t.Calls)) }
