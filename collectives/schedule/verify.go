package schedule

import (
	"fmt"
	"math/bits"
)

// Verify proves that s computes its collective. It executes s on sets of contributions instead of numbers, with
// separate Input and Output and, unless s is Disjoint, in place.
//
// It finds missing, misplaced and double contributions, reads of undefined data, and writes to Input. In a step, it
// finds two writes to one place and a write to a place that is also sent. It also finds contributions that bypass Pre
// and indexes out of range. Errors wrap [ErrIncorrect].
//
// Time and memory grow with the number of chunks moved, times Ranks/64 for reductions.
func Verify(s *Schedule) error {
	if err := verify(s, false); err != nil {
		return err
	}
	if s.Disjoint {
		return nil
	}
	if err := verify(s, true); err != nil {
		return fmt.Errorf("in place: %w", err)
	}
	return nil
}

func verify(s *Schedule, inPlace bool) error {
	m, err := newMachine(s, inPlace)
	if err != nil {
		return err
	}
	if err := m.run(); err != nil {
		return err
	}
	for r := range s.Ranks {
		for c := range s.BlocksAt(r, Output) * s.Sub {
			v := m.places[m.alias[m.index(r, Output)+c]]
			if err := s.expect(r, c, v); err != nil {
				return fmt.Errorf("%w: rank %d output chunk %d: %w", ErrIncorrect, r, c, err)
			}
		}
	}
	return nil
}

// expect checks the final value of a chunk of Output.
func (s *Schedule) expect(r, c int, v *value) error {
	if v == nil {
		return fmt.Errorf("undefined")
	}
	from, chunk := s.source(r, c)
	if v.chunk != chunk {
		return fmt.Errorf("is from input chunk %d, want %d", v.chunk, chunk)
	}
	n := 0
	for _, w := range v.ranks {
		n += bits.OnesCount64(w)
	}
	switch {
	case from < 0 && n != s.Ranks:
		return fmt.Errorf("has the contributions of %d ranks: %v", n, v.expr)
	case from >= 0 && (n != 1 || v.ranks[from/64]>>(from%64)&1 == 0):
		return fmt.Errorf("is from %v, want rank %d", v.expr, from)
	}
	return nil
}

// source returns the correct content of chunk c of rank r's Output: the chunk of Input and its rank, or -1 for the
// combination of all ranks.
func (s *Schedule) source(r, c int) (rank, chunk int) {
	block, part := c/s.Sub, c%s.Sub
	switch s.Collective {
	case Broadcast:
		return s.Root, c
	case AllGather, Gather:
		return block, part
	case ReduceScatter:
		return -1, r*s.Sub + c
	case AllToAll:
		return block, r*s.Sub + part
	case Scatter:
		return s.Root, r*s.Sub + c
	case SendRecv:
		return (r + s.Ranks - 1) % s.Ranks, c
	default: // AllReduce, Reduce
		return -1, c
	}
}

// Orders returns, for every rank and chunk of its Output, the expression that combines the contributions. Every plan of
// s computes the same expressions. So two schedules give bitwise equal results if their expressions are equal, up to
// the order of the two operands of each operator. Ranks without Output have none. Errors wrap [ErrIncorrect].
func Orders(s *Schedule) ([][]*Expr, error) {
	m, err := newMachine(s, false)
	if err != nil {
		return nil, err
	}
	if err := m.run(); err != nil {
		return nil, err
	}
	orders := make([][]*Expr, s.Ranks)
	for r := range orders {
		for c := range s.BlocksAt(r, Output) * s.Sub {
			v := m.places[m.index(r, Output)+c]
			if v == nil {
				return nil, fmt.Errorf("%w: rank %d output chunk %d: undefined", ErrIncorrect, r, c)
			}
			orders[r] = append(orders[r], v.expr)
		}
	}
	return orders, nil
}
