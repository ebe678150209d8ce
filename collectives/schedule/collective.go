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

// IOBlocksAt returns the numbers of blocks of Input and Output of c on n ranks, at the root or at another rank. Input of
// a broadcast or scatter and Output of a reduce or gather have no blocks at other ranks than the root; callers may pass
// no memory for these.
func (c Collective) IOBlocksAt(n int, root bool) (in, out int) {
	in, out = c.IOBlocks(n)
	switch {
	case root:
	case c == Broadcast, c == Scatter:
		in = 0
	case c == Reduce, c == Gather:
		out = 0
	}
	return in, out
}

// BlocksAt returns the number of blocks of a buffer at a rank.
func (s *Schedule) BlocksAt(rank int, b Buffer) int {
	in, out := s.Collective.IOBlocksAt(s.Ranks, rank == s.Root)
	return [NumBuffers]int{in, out, s.Blocks[Scratch]}[b]
}

// InPlace describes an in-place call at a rank: the first blocks of Input and Output that are the same memory, and the
// number of these blocks. It is 0 if the rank does not have both buffers.
func (s *Schedule) InPlace(rank int) (in, out, blocks int) {
	switch s.Collective {
	case AllGather, Gather:
		out = rank
	case ReduceScatter, Scatter:
		in = rank
	}
	return in, out, max(0, min(s.BlocksAt(rank, Input)-in, s.BlocksAt(rank, Output)-out))
}
