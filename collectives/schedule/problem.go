package schedule

import (
	"cmp"
	"errors"
	"fmt"
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

// MoveElements returns the number of elements of m in a call of count elements per block.
func (s *Schedule) MoveElements(m *Move, count int64) int64 {
	lo, _ := s.ChunkRange(m.From.Chunk, count)
	_, hi := s.ChunkRange(m.From.Chunk+m.Count-1, count)
	return hi - lo
}

// FlowElements returns the number of elements of f in a call of count elements per block.
func (s *Schedule) FlowElements(f *Flow, count int64) int64 {
	n := int64(0)
	for i := range f.Moves {
		n += s.MoveElements(&f.Moves[i], count)
	}
	return n
}

// FlowBytes returns the size of f in the planning model, for a call of the given bytes as nccl-tests counts them. In
// the model, chunks are equal fractions of a block, not rounded to elements.
func (s *Schedule) FlowBytes(f *Flow, bytes float64) float64 {
	return float64(f.Chunks) * s.Collective.BlockBytes(bytes, s.Ranks) / float64(s.Sub)
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
	if fabric.Ranks != 0 && fabric.Ranks != s.Ranks {
		return nil, nil, fmt.Errorf("%w: schedule of %d ranks on a fabric of %d", ErrProblem, s.Ranks, fabric.Ranks)
	}
	if !(bytes >= 0) || math.IsInf(bytes, 0) {
		return nil, nil, fmt.Errorf("%w: size of %v bytes", ErrProblem, bytes)
	}
	q := *fabric
	q.Version, q.Ranks, q.Demand, q.Steps = plans.Version, s.Ranks, nil, nil
	for i := range s.Steps {
		flows := s.Flows(i)
		if len(flows) == 0 {
			continue
		}
		st := plans.Step{To: permutation(flows, s.Ranks)}
		for k := range flows {
			f := &flows[k]
			st.Bytes = max(st.Bytes, s.FlowBytes(f, bytes))
			if st.To == nil {
				st.Flows = append(st.Flows, [2]int{f.Src, f.Dst})
			}
		}
		q.Steps = append(q.Steps, st)
		steps = append(steps, i)
	}
	return &q, steps, nil
}

// permutation returns the circuits for flows, or nil if a rank has two destinations or two sources.
func permutation(flows []Flow, n int) circuit.Permutation {
	to, taken := circuit.AllDark(n), make([]bool, n)
	for i := range flows {
		f := &flows[i]
		if to[f.Src] != circuit.Dark || taken[f.Dst] {
			return nil
		}
		to[f.Src], taken[f.Dst] = f.Dst, true
	}
	return to
}
