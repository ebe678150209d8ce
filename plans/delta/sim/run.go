package sim

import (
	"math"

	"lightpath/internal/heap"
	"lightpath/plans/delta/dag"
)

// release is a transfer that will start.
type release struct {
	at   float64
	task int32
}

// Before orders by time, then by number.
func (a release) Before(b release) bool { return a.at < b.at || a.at == b.at && a.task < b.task }

// Runner runs a network. It holds the memory of a run: not for concurrent use.
type Runner struct {
	w     *Network
	start []float64 // by task: when it may start, while it waits
	end   []float64
	wait  []int32 // dependencies that have not ended
	stack []int32 // work that has ended and whose successors have not been told

	release heap.Heap[release] // transfers that will start
	active  []int32            // transfers under way, in order of class, then of start
	left    []float64          // by task: bytes per flow still to go
	rate    []float64          // by task: bytes per microsecond and flow

	share sharer
	// class is the priority of each task, the greatest first; nil if all share fairly.
	class []float64

	segments [][]dag.Segment // by task, while recording
	events   int             // of the last run
}

// NewRunner makes a runner of w.
func (w *Network) NewRunner() *Runner {
	n := len(w.g.Tasks)
	return &Runner{
		w: w, start: make([]float64, n), end: make([]float64, n), wait: make([]int32, n),
		left: make([]float64, n), rate: make([]float64, n), share: newSharer(w),
	}
}

// Fair returns the makespan on the given circuits, in microseconds, if transfers share links and NICs fairly. Nil
// circuits mean the ideal network, where only NICs limit rates.
func (r *Runner) Fair(c dag.Circuits) float64 {
	r.class = nil
	return r.run(c)
}

// Ranked returns the makespan, in microseconds, if transfers of greater rank get bandwidth first. Transfers of equal
// rank share fairly. rank is by task.
func (r *Runner) Ranked(c dag.Circuits, rank []float64) float64 {
	r.class = rank
	return r.run(c)
}

// Record does what [Runner.Fair] does or, if rank is not nil, [Runner.Ranked]. It returns the whole run.
func (r *Runner) Record(c dag.Circuits, rank []float64) *dag.Schedule {
	r.segments = make([][]dag.Segment, len(r.start))
	r.class = rank
	s := &dag.Schedule{Makespan: r.run(c), Spans: make([]dag.Span, len(r.start))}
	if c != nil {
		s.Circuits = append(dag.Circuits{}, c...)
	}
	for i := range s.Spans {
		s.Spans[i] = dag.Span{Start: r.start[i], End: r.end[i], Segments: r.segments[i]}
	}
	r.segments = nil
	return s
}

// Ends returns when each task ended in the last run. The slice is the runner's.
func (r *Runner) Ends() []float64 { return r.end }

// Starts returns when each task started in the last run. The slice is the runner's.
func (r *Runner) Starts() []float64 { return r.start }

// run simulates one iteration. Every event starts or ends a transfer, so there are at most two for each.
// Hot path of the search: no allocation in steady state.
func (r *Runner) run(c dag.Circuits) float64 {
	w := r.w
	copy(r.wait, w.degree)
	clear(r.start)
	r.release = r.release[:0]
	r.active = r.active[:0]
	r.share.setCircuits(c)
	for i, n := range w.degree {
		if n == 0 {
			r.ready(int32(i))
		}
	}
	r.propagate()
	makespan, now := 0.0, 0.0
	r.events = 0
	for len(r.active) > 0 || len(r.release) > 0 {
		r.events++
		next := r.nextEvent(now)
		r.advance(now, next)
		now = next
		r.retire(now)
		for len(r.release) > 0 && r.release[0].at <= now {
			r.begin(r.release.Pop().task, now)
		}
		r.share.assign(r.active, r.class, r.rate)
	}
	for _, e := range r.end {
		makespan = max(makespan, e)
	}
	return makespan
}

// ready is called when all predecessors of task i have ended. start[i] is set.
func (r *Runner) ready(i int32) {
	w := r.w
	if w.link[i] >= 0 && w.perFlow[i] > 0 {
		r.release.Push(release{r.start[i], i})
		return
	}
	r.end[i] = r.start[i] + w.duration[i]
	r.stack = append(r.stack, i)
}

// propagate updates the successors of ended tasks.
func (r *Runner) propagate() {
	w := r.w
	for len(r.stack) > 0 {
		i := r.stack[len(r.stack)-1]
		r.stack = r.stack[:len(r.stack)-1]
		end := r.end[i]
		for _, e := range w.succ[w.begin[i]:w.begin[i+1]] {
			r.start[e.to] = max(r.start[e.to], end+e.delay)
			if r.wait[e.to]--; r.wait[e.to] == 0 {
				r.ready(e.to)
			}
		}
	}
}

// begin adds a transfer to the active ones, after those of its class and of higher classes.
func (r *Runner) begin(i int32, now float64) {
	r.left[i] = r.w.perFlow[i]
	r.start[i] = now
	r.active = append(r.active, i)
	if r.class == nil {
		return
	}
	for k := len(r.active) - 1; k > 0 && r.class[r.active[k-1]] < r.class[i]; k-- {
		r.active[k], r.active[k-1] = r.active[k-1], i
	}
}

// nextEvent returns the time of the earliest start or end of a transfer. The time is finite: the first class shares all
// of its resources, so one of its transfers has a rate above 0.
func (r *Runner) nextEvent(now float64) float64 {
	next := math.Inf(1)
	if len(r.release) > 0 {
		next = r.release[0].at
	}
	for _, i := range r.active {
		if r.rate[i] > 0 {
			next = min(next, now+r.left[i]/r.rate[i])
		}
	}
	return max(next, now)
}

// advance moves the active transfers from now to next. It ends every transfer that ends at next within rounding, even
// if now and next are the same double.
func (r *Runner) advance(now, next float64) {
	for _, i := range r.active {
		if r.rate[i] == 0 {
			continue
		}
		sent, needs := r.rate[i]*(next-now), r.left[i]/r.rate[i]
		if now+needs <= next+endTolerance*needs+timeTolerance*next {
			sent = r.left[i]
		}
		r.left[i] -= sent
		if r.segments != nil && sent > 0 {
			r.record(i, now, next, sent*r.w.flows[i])
		}
	}
}

// Transfers that end at one time in exact arithmetic end in one event. endTolerance allows for the rounding of the
// bytes left, as a part of the time that they need. timeTolerance allows for the rounding of times: 4 ulps.
const (
	endTolerance  = 1e-9
	timeTolerance = 0x1p-50
)

// retire ends the transfers that have sent everything.
func (r *Runner) retire(now float64) {
	kept := r.active[:0]
	for _, i := range r.active {
		if r.left[i] > 0 {
			kept = append(kept, i)
			continue
		}
		r.end[i] = now
		r.stack = append(r.stack, i)
	}
	r.active = kept
	r.propagate()
}

// record appends to the segments of a transfer, joining equal rates. Bytes that rounding carries in no time go to the
// segment before them. A transfer that takes no time has one segment of no length.
func (r *Runner) record(i int32, from, to, bytes float64) {
	s := r.segments[i]
	if k := len(s) - 1; k >= 0 && s[k].End == from {
		was := s[k].Bytes / (s[k].End - s[k].Start)
		if is := bytes / (to - from); from == to || math.Abs(was-is) <= 1e-12*was {
			s[k].End = to
			s[k].Bytes += bytes
			return
		}
	}
	r.segments[i] = append(s, dag.Segment{Start: from, End: to, Bytes: bytes})
}
