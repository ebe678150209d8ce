package sim

import "math"

// CriticalPath appends to buf the tasks of a critical path of the last run, from its end to its
// begin, and returns it.
func (r *Runner) CriticalPath(buf []int32) []int32 {
	last, makespan := int32(-1), math.Inf(-1)
	for i, e := range r.end {
		if e > makespan {
			last, makespan = int32(i), e
		}
	}
	for at := last; at >= 0; at = r.binding(at) {
		buf = append(buf, at)
	}
	return buf
}

// binding is the task whose end let task i start; -1 where none did.
func (r *Runner) binding(i int32) int32 {
	w := r.w
	from, latest := int32(-1), math.Inf(-1)
	for _, e := range w.pred[w.predBegin[i]:w.predBegin[i+1]] {
		if at := r.end[e.to] + e.delay; at > latest {
			from, latest = e.to, at
		}
	}
	return from
}
