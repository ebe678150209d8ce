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

// permutation returns the map that serves flows, or nil where some rank has two
// destinations or two sources.
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
