package schedule

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"lightpath/plans"
	"lightpath/plans/circuit"
)

// ErrProblem says that a schedule poses no problem on the fabric or size asked for.
var ErrProblem = errors.New("schedule: no planning problem")

// Flow is everything that one rank sends another in one step.
type Flow struct {
	Src, Dst int
	// Moves are the transfers of the flow in the schedule's order: concatenated, they are
	// the byte string that plans divide.
	Moves  []Move
	Chunks int // the sum over Moves
}

// Flows returns the flows of a step by source, then destination: the order of
// [plans.Step.FlowList] in the problem that [Problem] makes.
func (s *Schedule) Flows(step int) []Flow {
	moves := slices.Clone(s.Steps[step].Transfers)
	slices.SortStableFunc(moves, func(a, b Move) int {
		return cmp.Or(cmp.Compare(a.Src, b.Src), cmp.Compare(a.Dst, b.Dst))
	})
	var flows []Flow
	for first, i := 0, 0; i < len(moves); i++ {
		m := &moves[i]
		if k := len(flows) - 1; k < 0 || flows[k].Src != m.Src || flows[k].Dst != m.Dst {
			flows = append(flows, Flow{Src: m.Src, Dst: m.Dst})
			first = i
		}
		f := &flows[len(flows)-1]
		f.Moves = moves[first : i+1 : i+1]
		f.Chunks += m.Count
	}
	return flows
}

// MoveElements returns the elements that m carries in a call of count elements per block.
func (s *Schedule) MoveElements(m *Move, count int64) int64 {
	lo, _ := s.ChunkRange(m.From.Chunk, count)
	_, hi := s.ChunkRange(m.From.Chunk+m.Count-1, count)
	return hi - lo
}

// FlowElements returns the elements of f in a call of count elements per block.
func (s *Schedule) FlowElements(f *Flow, count int64) int64 {
	n := int64(0)
	for i := range f.Moves {
		n += s.MoveElements(&f.Moves[i], count)
	}
	return n
}

// FlowBytes returns the bytes of f in the planning model for a call of size bytes as
// nccl-tests counts it: chunks are fractions of a block there, not rounded to elements.
func (s *Schedule) FlowBytes(f *Flow, bytes float64) float64 {
	return float64(f.Chunks) * s.Collective.BlockBytes(bytes, s.Ranks) / float64(s.Sub)
}

// Problem returns the planning problem of s for a call of size bytes as nccl-tests counts
// it (see [Collective.BlockBytes]) on the fabric of a template, whose steps and demand are
// ignored and whose Ranks is 0 or that of s. A step's bytes are those of its largest flow;
// it has the form To where every rank sends to and receives from at most one other.
//
// steps[i] is the schedule's step that the problem's step i is; steps without flows are
// left out, and a schedule of one rank has none at all. The problem shares Initial and
// Final with the template. Errors: [ErrProblem].
func Problem(s *Schedule, bytes float64, fabric *plans.Problem) (p *plans.Problem, steps []int, err error) {
	if err := posable(s.Ranks, bytes, fabric); err != nil {
		return nil, nil, err
	}
	q := newPoser(s.Ranks, nil)
	for i := range s.Steps {
		q.step()
		for _, m := range s.Steps[i].Transfers {
			q.transfer(m.Src, m.Dst, m.Count)
		}
	}
	p, steps = q.problem(s, bytes, fabric)
	return p, steps, nil
}

// Pose returns the [Problem] of the schedule that [Build] returns, without keeping the schedule: the moves
// of a large one take gigabytes. Errors: those of Build and Problem.
func Pose(c Collective, algorithm string, n, root int, bytes float64, fabric *plans.Problem, opts ...Option) (p *plans.Problem, steps []int, err error) {
	b, err := prepare(c, algorithm, n, root, opts)
	if err != nil {
		return nil, nil, err
	}
	if err := posable(n, bytes, fabric); err != nil {
		return nil, nil, err
	}
	b.pose = newPoser(n, b.alg.seats)
	b.fill()
	p, steps = b.pose.problem(b.Schedule, bytes, fabric)
	return p, steps, nil
}

// posable reports why a schedule of n ranks poses no problem of a size on a fabric.
func posable(n int, bytes float64, fabric *plans.Problem) error {
	if fabric.Ranks != 0 && fabric.Ranks != n {
		return fmt.Errorf("%w: schedule of %d ranks on a fabric of %d", ErrProblem, n, fabric.Ranks)
	}
	if !(bytes >= 0) || math.IsInf(bytes, 0) {
		return fmt.Errorf("%w: size of %v bytes", ErrProblem, bytes)
	}
	return nil
}

// poser collects the steps of a problem from their transfers.
type poser struct {
	n     int
	seats []int // nil: every rank takes its own part
	at    int   // steps of the schedule that have begun
	steps []plans.Step
	of    []int // per step of the problem: that of the schedule
	most  []int // chunks of its largest flow

	// Of the step that has begun: the map that serves its flows, while there is one, and all flows.
	to     circuit.Permutation
	taken  []bool // per rank: it receives
	single bool
	src    int // of the flow that the last transfers belong to, -1 none
	dst    int
	count  int // chunks of that flow, not in chunks yet
	chunks map[[2]int]int
}

func newPoser(n int, seats []int) *poser {
	return &poser{n: n, seats: seats, taken: make([]bool, n), src: -1, chunks: map[[2]int]int{}}
}

// step begins the next step.
func (q *poser) step() {
	q.end()
	q.at++
	q.to, q.single = circuit.AllDark(q.n), true
	clear(q.taken)
}

// transfer adds chunks from one rank to another.
func (q *poser) transfer(src, dst, count int) {
	if q.seats != nil {
		src, dst = q.seats[src], q.seats[dst]
	}
	if src != q.src || dst != q.dst {
		q.flush()
		q.src, q.dst = src, dst
		if q.single && q.to[src] != dst {
			q.single = q.to[src] == circuit.Dark && !q.taken[dst]
			q.to[src], q.taken[dst] = dst, true
		}
	}
	q.count += count
}

// flush counts the chunks of the last transfers.
func (q *poser) flush() {
	if q.src >= 0 {
		q.chunks[[2]int{q.src, q.dst}] += q.count
	}
	q.src, q.count = -1, 0
}

// end completes the step, which is none of the problem's if it has no flows.
func (q *poser) end() {
	if q.flush(); len(q.chunks) == 0 {
		return
	}
	most := 0
	for _, count := range q.chunks {
		most = max(most, count)
	}
	st := plans.Step{To: q.to}
	if !q.single {
		st.To, st.Flows = nil, slices.Collect(maps.Keys(q.chunks))
		slices.SortFunc(st.Flows, func(a, b [2]int) int { return cmp.Or(a[0]-b[0], a[1]-b[1]) })
	}
	q.steps, q.of, q.most = append(q.steps, st), append(q.of, q.at-1), append(q.most, most)
	clear(q.chunks)
}

// problem returns what has been collected of s, whose chunks have their size by now.
func (q *poser) problem(s *Schedule, bytes float64, fabric *plans.Problem) (*plans.Problem, []int) {
	q.end()
	p := *fabric
	p.Version, p.Ranks, p.Demand, p.Steps = plans.Version, q.n, nil, q.steps
	for i := range p.Steps {
		p.Steps[i].Bytes = s.FlowBytes(&Flow{Chunks: q.most[i]}, bytes)
	}
	return &p, q.of
}
