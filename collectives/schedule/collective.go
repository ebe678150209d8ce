package schedule

import (
	"errors"
	"fmt"
	"slices"
)

// ErrCollective reports a name that is not the name of a collective.
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

// CollectiveNames returns the names of all collectives.
func CollectiveNames() []string { return slices.Clone(collectiveNames[:]) }

// String returns the name in commands and files, such as "allreduce".
func (c Collective) String() string {
	if c >= NumCollectives {
		return fmt.Sprintf("collective(%d)", uint8(c))
	}
	return collectiveNames[c]
}

// ParseCollective returns the collective with a name. It returns [ErrCollective] for an unknown name.
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

// perRank reports whether the size S of c in nccl-tests counts a block for every rank.
func (c Collective) perRank() bool {
	return c == AllGather || c == ReduceScatter || c == AllToAll || c == Gather || c == Scatter
}

// BlockBytes returns the size of one block in bytes, for a call of s bytes as nccl-tests counts them: s = count *
// element size. For AllGather, ReduceScatter, AllToAll, Gather and Scatter, s also counts the number of ranks as a
// factor.
func (c Collective) BlockBytes(s float64, ranks int) float64 {
	return s / float64(c.SizeBlocks(ranks))
}

// SizeBlocks returns the number of blocks that the size s of a call counts in nccl-tests: 1, or the number of ranks.
func (c Collective) SizeBlocks(ranks int) int {
	if c.perRank() {
		return ranks
	}
	return 1
}

// BusFactor returns the ratio of busbw to algbw in nccl-tests.
func (c Collective) BusFactor(ranks int) float64 {
	n := float64(ranks)
	switch {
	case c == AllReduce:
		return 2 * (n - 1) / n
	case c.perRank():
		return (n - 1) / n
	}
	return 1
}

// IOBlocks returns the numbers of blocks of Input and Output of c on n ranks, at the root for rooted collectives. They
// are the Blocks of every schedule of c.
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

// BlocksAt returns the number of blocks of buffer b at a rank. It is 0 at other ranks than the root for Input of a
// broadcast or scatter and for Output of a reduce or gather; callers may pass no memory for these. Otherwise it is
// s.Blocks[b].
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

// InPlace describes an in-place call at a rank: block in of Input is block out of Output, and so on for all blocks that
// both have. It returns false if the rank does not have both buffers.
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
