package milp

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"lightpath/plans/delta/dag"
)

// StartValues returns the start schedule as values of the variables. Its error names the part of the model
// that the schedule violates. Topo refuses a schedule with unequal shares, even if a NIC limits some of them.
func (m *Model) StartValues() ([]float64, error) {
	s, w := m.o.Start, m.windows
	if s.Circuits == nil {
		return nil, fmt.Errorf("%w: the start has no circuits", ErrModel)
	}
	x := make([]float64, m.program.Size().Vars)
	x[m.makespan] = s.Makespan / m.unit
	times, at := events(m.g, s, w.tolerance)
	for b := range w.count + 1 {
		x[m.t[b]] = times[min(b, len(times)-1)] / m.unit
	}
	for k := range w.count {
		x[m.d[k]] = x[m.t[k+1]] - x[m.t[k]]
	}
	for l, n := range s.Circuits {
		x[m.x[l]] = float64(n)
		for i, b := range m.bits[l] {
			x[b] = float64(n >> i & 1)
		}
	}
	for key, r := range m.rho {
		x[r] = x[m.bits[key[0]][key[1]]] * x[m.d[key[2]]]
	}
	for i := range m.g.Tasks {
		span, v := &s.Spans[i], &m.ends[i]
		x[v.start], x[v.end] = span.Start/m.unit, span.End/m.unit
		if !moves(&m.g.Tasks[i]) {
			continue
		}
		from, to := at(span.Start), at(span.End)
		if from < w.first[i] || to-1 > w.last[i] {
			return nil, fmt.Errorf("%w: the start has tasks[%d] in intervals %d..%d, outside %d..%d", ErrModel, i, from, to-1,
				w.first[i], w.last[i])
		}
		x[v.s[from-w.first[i]]] = 1
		for k := from; k < to; k++ {
			x[v.y[k-w.first[i]]] = 1
			x[v.w[k-w.first[i]]] = carried(span.Segments, times[k], times[k+1]) / m.g.Tasks[i].Bytes * m.volume[i]
		}
	}
	for key, u := range m.share {
		x[u] = m.equalShare(x, key[0], key[1])
	}
	if err := m.program.Check(x, 1e-5); err != nil {
		return nil, fmt.Errorf("%w: the start is no solution: %w", ErrModel, err)
	}
	return x, nil
}

// carried is how many bytes segments carry between two times.
func carried(segments []dag.Segment, from, to float64) float64 {
	sum := 0.0
	for _, s := range segments {
		if overlap := math.Min(to, s.End) - math.Max(from, s.Start); overlap > 0 {
			sum += s.Bytes * overlap / (s.End - s.Start)
		}
	}
	return sum
}

// equalShare is the volume per flow of a task that is active on directed link j in interval k.
func (m *Model) equalShare(x []float64, j, k int) float64 {
	for i := range m.g.Tasks {
		if m.linkOf[i] == j && moves(&m.g.Tasks[i]) && m.windows.active(i, k) {
			at := k - m.windows.first[i]
			if v := &m.ends[i]; x[v.y[at]] > 0.5 {
				return x[v.w[at]] / float64(m.g.Tasks[i].Flows)
			}
		}
	}
	return 0
}

// circuits returns the topology that values state.
func (m *Model) circuits(values []float64) dag.Circuits {
	c := make(dag.Circuits, len(m.x))
	for l, x := range m.x {
		c[l] = int(math.Round(values[x]))
	}
	return c
}

// negligible is the part of a transfer's volume that is the solver's tolerance and not sent.
const negligible = 1e-9

// Schedule makes a schedule of values. Times and volumes are the solver's, to its tolerances;
// volumes are scaled so that every transfer carries its bytes exactly, and work starts as soon
// as it may.
func (m *Model) Schedule(values []float64) (*dag.Schedule, error) {
	if len(values) != m.program.Size().Vars {
		return nil, fmt.Errorf("%w: %d values for %d variables", ErrModel, len(values), m.program.Size().Vars)
	}
	return settle(m.g, m.circuits(values), func(i int, ready float64) (*dag.Span, error) {
		return m.transfer(values, i, ready)
	})
}

// transfer reads the segments of task i, which may not start before ready. By the solver's
// tolerance they may begin a little earlier: that much is cut off and carried by the rest.
func (m *Model) transfer(values []float64, i int, ready float64) (*dag.Span, error) {
	v, t, span := &m.ends[i], &m.g.Tasks[i], &dag.Span{}
	sum := 0.0
	for at := range v.w {
		k := at + m.windows.first[i]
		bytes := values[v.w[at]] / m.volume[i] * t.Bytes
		from, to := math.Max(ready, values[m.t[k]]*m.unit), values[m.t[k+1]]*m.unit
		if bytes <= negligible*t.Bytes || to <= from {
			continue
		}
		span.Segments = append(span.Segments, dag.Segment{Start: from, End: to, Bytes: bytes})
		sum += bytes
	}
	if sum < t.Bytes*(1-1e-4) {
		return nil, fmt.Errorf("%w: tasks[%d] %q carries %g of %g bytes", ErrModel, i, t.Name, sum, t.Bytes)
	}
	for n := range span.Segments {
		span.Segments[n].Bytes *= t.Bytes / sum
	}
	span.Start, span.End = span.Segments[0].Start, slices.MaxFunc(span.Segments, func(a, b dag.Segment) int {
		return cmp.Compare(a.End, b.End)
	}).End
	return span, nil
}
