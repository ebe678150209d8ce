package schedule

import (
	"errors"
	"fmt"
)

// ErrCollective says that a name is no collective's.
var ErrCollective = errors.New("schedule: unknown collective")

var collectiveNames = [NumCollectives]string{
	AllReduce:     "allreduce",
	Broadcast:     "broadcast",
	Reduce:        "reduce",
	AllGather:     "allgather",
	ReduceScatter: "reducescatter",
	AllToAll:      "alltoall",
	Gather:        "gather",
	Scatter:       "scatter",
	SendRecv:      "sendrecv",
}

// String returns the name that commands and files use, such as "allreduce".
func (c Collective) String() string {
	if c >= NumCollectives {
		return fmt.Sprintf("collective(%d)", uint8(c))
	}
	return collectiveNames[c]
}

// ParseCollective is the inverse of [Collective.String]; it fails with [ErrCollective].
func ParseCollective(name string) (Collective, error) {
	for c, n := range collectiveNames {
		if n == name {
			return Collective(c), nil
		}
	}
	return 0, fmt.Errorf("%w: %q", ErrCollective, name)
}

// Reduces reports whether c combines the inputs of several ranks with an operator.
func (c Collective) Reduces() bool {
	return c == AllReduce || c == Reduce || c == ReduceScatter
}

// Rooted reports whether c has a root.
func (c Collective) Rooted() bool {
	return c == Broadcast || c == Reduce || c == Gather || c == Scatter
}

// perRank reports whether nccl-tests' size S of c counts a block for every rank.
func (c Collective) perRank() bool {
	return c == AllGather || c == ReduceScatter || c == AllToAll || c == Gather || c == Scatter
}

// BlockBytes returns the bytes of one block of a call whose size is S as nccl-tests
// counts it: S = count x element size, times the ranks for AllGather, ReduceScatter,
// AllToAll, Gather and Scatter.
func (c Collective) BlockBytes(s float64, ranks int) float64 {
	if c.perRank() {
		return s / float64(ranks)
	}
	return s
}

// IOBlocks returns the blocks of Input and Output of c on n ranks, at the rank that has
// most of them (the root, where there is one): [Schedule].Blocks of every schedule of c.
func (c Collective) IOBlocks(n int) (in, out int) {
	switch c {
	case AllGather, Gather:
		return 1, n
	case ReduceScatter, Scatter:
		return n, 1
	case AllToAll:
		return n, n
	default:
		return 1, 1
	}
}

// BlocksAt returns the blocks of buffer b at a rank: those of s.Blocks, or 0 where the
// collective gives that rank no such buffer (Input of a broadcast or scatter and Output of
// a reduce or gather exist at the root only). The caller may pass no memory for it.
func (s *Schedule) BlocksAt(rank int, b Buffer) int {
	if rank != s.Root {
		switch {
		case b == Input && (s.Collective == Broadcast || s.Collective == Scatter):
			return 0
		case b == Output && (s.Collective == Reduce || s.Collective == Gather):
			return 0
		}
	}
	return s.Blocks[b]
}

// InPlace says how an in-place call lays Input over Output at a rank: block in of Input is
// block out of Output, and so on for all blocks that both have. It reports false where the
// rank lacks one of the buffers.
func (s *Schedule) InPlace(rank int) (in, out int, ok bool) {
	if s.BlocksAt(rank, Input) == 0 || s.BlocksAt(rank, Output) == 0 {
		return 0, 0, false
	}
	switch s.Collective {
	case AllGather, Gather:
		return 0, rank, true
	case ReduceScatter, Scatter:
		return rank, 0, true
	default:
		return 0, 0, true
	}
}
