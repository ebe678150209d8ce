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

// ErrProblem reports a fabric or size for which a schedule has no planning problem.
var ErrProblem = errors.New("schedule: no planning problem")

// Flow is all data that one rank sends to another in one step.
type Flow struct {
	Src, Dst int
	// Moves are the transfers of the flow in the schedule's order. Their bytes in this order are the bytes of the flow,
	// which a plan divides over planes.
	Moves  []Move
	Chunks int // sum over Moves
}

// Flows returns the flows of a step, ordered by source and destination. [plans.Step.FlowList] has the same order in the
// problem of [Problem].
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

// ChunkBytes returns the size of chunks in the planning model, for a call of the given bytes as nccl-tests counts them.
// In the model, chunks are equal fractions of a block, not rounded to elements.
func (s *Schedule) ChunkBytes(chunks int, bytes float64) float64 {
	return float64(chunks) * s.Collective.BlockBytes(bytes, s.Ranks) / float64(s.Sub)
}

// Problem returns the planning problem of s on a fabric, for a call of the given bytes as nccl-tests counts them (see
// [Collective.BlockBytes]). The Ranks of the fabric are 0 or those of s; Problem ignores its steps and demand, and
// shares Initial and Final with it.
//
// The bytes of a step are those of its largest flow. A step has the form To if every rank sends to and receives from at
// most one other rank.
//
// steps[i] is the number of the schedule's step for step i of the problem, which omits steps without flows. Errors:
// [ErrProblem].
func Problem(s *Schedule, bytes float64, fabric *plans.Problem) (p *plans.Problem, steps []int, err error) {
	if err := checkProblem(s.Ranks, bytes, fabric); err != nil {
		return nil, nil, err
	}
	q := newProblemBuilder(s.Ranks, nil)
	for i := range s.Steps {
		q.step()
		for _, m := range s.Steps[i].Transfers {
			q.transfer(m.Src, m.Dst, m.Count)
		}
	}
	p, steps = q.problem(s, bytes, fabric)
	return p, steps, nil
}

// ProblemOf returns the [Problem] of the schedule that [Build] returns. It does not store the schedule, whose moves may
// take gigabytes. Errors: those of Build and Problem.
func ProblemOf(c Collective, algorithm string, n, root int, bytes float64, fabric *plans.Problem,
	opts ...Option) (p *plans.Problem, steps []int, err error) {
	b, err := prepare(c, algorithm, n, root, opts)
	if err != nil {
		return nil, nil, err
	}
	if err := checkProblem(n, bytes, fabric); err != nil {
		return nil, nil, err
	}
	b.problem = newProblemBuilder(n, b.alg.seats)
	b.fill()
	p, steps = b.problem.problem(b.Schedule, bytes, fabric)
	return p, steps, nil
}

// checkProblem returns an error if the fabric has another number of ranks or the size is invalid.
func checkProblem(n int, bytes float64, fabric *plans.Problem) error {
	if fabric.Ranks != 0 && fabric.Ranks != n {
		return fmt.Errorf("%w: schedule of %d ranks on a fabric of %d", ErrProblem, n, fabric.Ranks)
	}
	if !(bytes >= 0) || math.IsInf(bytes, 0) {
		return fmt.Errorf("%w: size of %v bytes", ErrProblem, bytes)
	}
	return nil
}

// problemBuilder computes the steps of a planning problem from transfers.
type problemBuilder struct {
	n      int
	seats  []int // nil: position k is rank k
	begun  int   // number of schedule steps that have begun
	steps  []plans.Step
	of     []int // by step of the problem: number of the schedule's step
	chunks []int // by step of the problem: chunks of the largest flow

	// The current step. to is its permutation while single is set.
	to     circuit.Permutation
	taken  []bool // by rank: it receives
	single bool
	src    int // source of the last transfers, -1 for none
	dst    int
	count  int // chunks of the last transfers, which flows does not include yet
	flows  map[[2]int]int
}

func newProblemBuilder(n int, seats []int) *problemBuilder {
	return &problemBuilder{n: n, seats: seats, taken: make([]bool, n), src: -1, flows: map[[2]int]int{}}
}

// step begins the next step.
func (q *problemBuilder) step() {
	q.end()
	q.begun++
	q.to, q.single = circuit.AllDark(q.n), true
	clear(q.taken)
}

// transfer adds chunks that one rank sends to another.
func (q *problemBuilder) transfer(src, dst, count int) {
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

// flush adds the last transfers to flows.
func (q *problemBuilder) flush() {
	if q.src >= 0 {
		q.flows[[2]int{q.src, q.dst}] += q.count
	}
	q.src, q.count = -1, 0
}

// end completes the current step. A step without flows is not a step of the problem.
func (q *problemBuilder) end() {
	if q.flush(); len(q.flows) == 0 {
		return
	}
	most := 0
	for _, count := range q.flows {
		most = max(most, count)
	}
	st := plans.Step{To: q.to}
	if !q.single {
		st.To, st.Flows = nil, slices.Collect(maps.Keys(q.flows))
		slices.SortFunc(st.Flows, func(a, b [2]int) int { return cmp.Or(a[0]-b[0], a[1]-b[1]) })
	}
	q.steps, q.of, q.chunks = append(q.steps, st), append(q.of, q.begun-1), append(q.chunks, most)
	clear(q.flows)
}

// problem returns the problem, after s has set the size of its chunks.
func (q *problemBuilder) problem(s *Schedule, bytes float64, fabric *plans.Problem) (*plans.Problem, []int) {
	q.end()
	p := *fabric
	p.Version, p.Ranks, p.Demand, p.Steps = plans.Version, q.n, nil, q.steps
	for i := range p.Steps {
		p.Steps[i].Bytes = s.ChunkBytes(q.chunks[i], bytes)
	}
	return &p, q.of
}
