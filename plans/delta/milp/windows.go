package milp

import (
	"math"
	"slices"

	"lightpath/plans/delta/dag"
)

// windows is where in the sequence of intervals, and when, each task may be active.
type windows struct {
	count       int       // intervals, numbered from 0; interval k lies between boundaries k and k+1
	tolerance   float64   // times closer than this, in us, are one
	first, last []int     // by task; of transfers with bytes, the intervals they may use
	est, lct    []float64 // by task: earliest start, latest end, in us
	lo, hi      []float64 // by boundary: its earliest and latest time
}

// events returns the times at which transfers of s start or end, in order. Times closer than tolerance count as one.
// The function returns the number of the event at a time.
func events(g *dag.Graph, s *dag.Schedule, tolerance float64) ([]float64, func(float64) int) {
	var all []float64
	for i := range g.Tasks {
		if moves(&g.Tasks[i]) {
			all = append(all, s.Spans[i].Start, s.Spans[i].End)
		}
	}
	slices.Sort(all)
	all = slices.CompactFunc(all, func(a, b float64) bool { return math.Abs(a-b) <= tolerance })
	return all, func(at float64) int {
		k, _ := slices.BinarySearch(all, at)
		switch {
		case k == len(all), k > 0 && at-all[k-1] < all[k]-at:
			return k - 1
		}
		return k
	}
}

// moves says whether a task needs intervals: a transfer of no bytes takes no time.
func moves(t *dag.Task) bool { return t.Transfer() && t.Bytes > 0 }

// newWindows prunes like algorithm 1 of the paper. The start schedule is the baseline run. A task with
// successors stays within margin intervals of its place there; a negative margin sets no such limit, and is
// exact. extra intervals are added to those of the start.
func newWindows(g *dag.Graph, order []int, start *dag.Schedule, tolerance float64, extra, margin int) *windows {
	times, at := events(g, start, tolerance)
	n := len(g.Tasks)
	w := &windows{count: max(1, len(times)-1+extra), tolerance: tolerance, first: make([]int, n), last: make([]int, n)}
	succ, pred := g.Successors(), g.Predecessors()
	for i := range w.last {
		w.last[i] = w.count - 1
	}
	if margin >= 0 {
		followed := w.followed(g, order, succ)
		for i := range g.Tasks {
			if t := &g.Tasks[i]; followed[i] && moves(t) {
				w.first[i] = max(0, at(start.Spans[i].Start)-margin)
				w.last[i] = min(w.count-1, max(at(start.Spans[i].Start), at(start.Spans[i].End)-1)+margin+extra)
			}
		}
	}
	w.propagate(g, order, succ, pred)
	w.est = g.Heads(g.LeastTime)
	w.latest(g, order, succ, start.Makespan)
	w.boundaries(g)
	return w
}

// followed says which tasks have a transfer after them.
func (w *windows) followed(g *dag.Graph, order []int, succ dag.Adjacency) []bool {
	f := make([]bool, len(g.Tasks))
	for _, i := range slices.Backward(order) {
		for _, d := range succ.Of(i) {
			to := g.Deps[d].To
			f[i] = f[i] || f[to] || moves(&g.Tasks[to])
		}
	}
	return f
}

// propagate narrows windows along dependencies, through tasks that use no intervals. A place is twice the
// number of a boundary, plus one if time must pass after it. If a transfer ends at boundary b, its successor
// may start at b. With a delay, it may start at b+1.
func (w *windows) propagate(g *dag.Graph, order []int, succ, pred dag.Adjacency) {
	place := make([]int, len(g.Tasks)) // after the task, from the left
	for _, i := range order {
		t, p := &g.Tasks[i], 0
		for _, d := range pred.Of(i) {
			from := place[g.Deps[d].From]
			if g.Deps[d].Delay > w.tolerance && from > 0 {
				from |= 1
			}
			p = max(p, from)
		}
		if moves(t) {
			w.first[i] = max(w.first[i], (p+1)/2)
			p = 2 * (w.first[i] + 1)
		} else if t.Duration > w.tolerance && p > 0 {
			p |= 1
		}
		place[i] = p
	}
	end := 2 * w.count
	for _, i := range slices.Backward(order) {
		t, p := &g.Tasks[i], end // before the task, from the right
		for _, d := range succ.Of(i) {
			to := place[g.Deps[d].To]
			if g.Deps[d].Delay > w.tolerance && to < end {
				to = (to - 1) | 1
			}
			p = min(p, to)
		}
		if moves(t) {
			w.last[i] = min(w.last[i], p/2-1)
			p = 2 * w.last[i]
		} else if t.Duration > w.tolerance && p < end {
			p = (p - 1) | 1
		}
		place[i] = p
	}
}

// latest computes the latest ends, which with the earliest starts are the paper's algorithm 4. Its bound is the makespan
// of the start.
func (w *windows) latest(g *dag.Graph, order []int, succ dag.Adjacency, bound float64) {
	w.lct = make([]float64, len(g.Tasks))
	for i := range w.lct {
		w.lct[i] = bound
	}
	for _, i := range slices.Backward(order) {
		for _, d := range succ.Of(i) {
			dep := g.Deps[d]
			w.lct[i] = min(w.lct[i], w.lct[dep.To]-g.LeastTime(&g.Tasks[dep.To])-dep.Delay)
		}
	}
}

// boundaries computes the earliest and latest times of boundaries. If a task is active only at b or later,
// all intervals up to boundary b+1 come before its end. If a task is active only before b, boundary b comes
// after its start.
func (w *windows) boundaries(g *dag.Graph) {
	w.lo, w.hi = make([]float64, w.count+1), make([]float64, w.count+1)
	bound := 0.0
	for i := range g.Tasks {
		bound = max(bound, w.lct[i])
	}
	for b := range w.hi {
		w.hi[b] = bound
	}
	for i := range g.Tasks {
		if moves(&g.Tasks[i]) {
			w.lo[w.last[i]] = max(w.lo[w.last[i]], w.est[i])
			w.hi[w.first[i]+1] = min(w.hi[w.first[i]+1], w.lct[i])
		}
	}
	for b := 1; b <= w.count; b++ {
		w.lo[b] = max(w.lo[b], w.lo[b-1])
	}
	for b := w.count - 1; b >= 0; b-- {
		w.hi[b] = min(w.hi[b], w.hi[b+1])
	}
}

// longest is the most time that interval k can last.
func (w *windows) longest(k int) float64 { return math.Max(0, w.hi[k+1]-w.lo[k]) }

// active says whether task i may be active in interval k.
func (w *windows) active(i, k int) bool { return w.first[i] <= k && k <= w.last[i] }
