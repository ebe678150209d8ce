package schedule

import (
	"errors"
	"fmt"
	"math/bits"
	"slices"
)

// Sentinels of [Build].
var (
	ErrAlgorithm = errors.New("schedule: no such algorithm for this collective")
	ErrRanks     = errors.New("schedule: not defined for this number of ranks")
	ErrRoot      = errors.New("schedule: root is not a rank")
	ErrTooLarge  = errors.New("schedule: too many moves")
)

// maxMoves bounds a schedule's memory (64 bytes a move): a ring on 2048 ranks fits. Up to
// maxUncounted ranks nothing comes near it.
const (
	maxMoves     = 1 << 24
	maxUncounted = 256
)

// entry is one algorithm of one collective.
type entry struct {
	name  string
	build func(*builder)
	pow2  bool // defined for powers of two only
}

// algorithms lists what Build knows; the first of a collective is its plainest.
var algorithms = [NumCollectives][]entry{
	AllReduce: {
		{name: "ring", build: ringAllReduce},
		{name: "recursive-doubling", build: cyclicAllReduce},
		{name: "recursive-doubling-xor", build: xorAllReduce},
		{name: "rabenseifner", build: rabenseifnerAllReduce},
	},
	Broadcast: {
		{name: "ring", build: ringBroadcast},
		{name: "binomial", build: binomialBroadcast},
		{name: "direct", build: directBroadcast},
	},
	Reduce: {
		{name: "ring", build: ringReduce},
		{name: "binomial", build: binomialReduce},
		{name: "direct", build: directReduce},
	},
	AllGather: {
		{name: "ring", build: ringAllGather},
		{name: "recursive-doubling", build: cyclicAllGather},
		{name: "recursive-doubling-xor", build: xorAllGather, pow2: true},
		{name: "bruck", build: bruckAllGather},
		{name: "pairwise", build: pairwiseAllGather},
		{name: "direct", build: directAllGather},
	},
	ReduceScatter: {
		{name: "ring", build: ringReduceScatter},
		{name: "recursive-doubling", build: cyclicReduceScatter},
		{name: "rabenseifner", build: rabenseifnerReduceScatter},
		{name: "pairwise", build: pairwiseReduceScatter},
	},
	AllToAll: {
		{name: "pairwise", build: pairwiseAllToAll},
		{name: "pairwise-xor", build: xorAllToAll, pow2: true},
		{name: "bruck", build: bruckAllToAll},
		{name: "direct", build: directAllToAll},
	},
	Gather: {
		{name: "binomial", build: binomialGather},
		{name: "direct", build: directGather},
	},
	Scatter: {
		{name: "binomial", build: binomialScatter},
		{name: "direct", build: directScatter},
	},
	SendRecv: {
		{name: "direct", build: shiftSendRecv},
		{name: "pairwise", build: shiftSendRecv},
	},
}

// Algorithms returns the names that [Build] takes for c, in a fixed order.
func Algorithms(c Collective) []string {
	if c >= NumCollectives {
		return nil
	}
	var names []string
	for _, e := range algorithms[c] {
		names = append(names, e.name)
	}
	return names
}

// Defined reports whether [Build] can build the algorithm on n ranks; it costs nothing.
func Defined(c Collective, algorithm string, n int) bool {
	e, err := find(c, algorithm, n)
	return err == nil && e.build != nil
}

func find(c Collective, algorithm string, n int) (entry, error) {
	if c >= NumCollectives {
		return entry{}, fmt.Errorf("%w: %v", ErrCollective, c)
	}
	for _, e := range algorithms[c] {
		if e.name != algorithm {
			continue
		}
		if n < 1 || e.pow2 && n&(n-1) != 0 {
			return entry{}, fmt.Errorf("%w: %v %s on %d ranks", ErrRanks, c, algorithm, n)
		}
		return e, nil
	}
	return entry{}, fmt.Errorf("%w: %v %q (has %v)", ErrAlgorithm, c, algorithm, Algorithms(c))
}

// Option varies what [Build] makes; the steps and their flows stay the same.
type Option func(*Schedule)

// Disjoint leaves out the copies of Input that only in-place calls need (AllToAll,
// SendRecv). The schedule must then not be used where Input and Output overlap.
func Disjoint() Option { return func(s *Schedule) { s.Disjoint = true } }

// Build returns the schedule of an algorithm on n ranks. root is read by rooted
// collectives only. The result depends on nothing but the arguments, so that all ranks
// build the same; it is the caller's. Errors: [ErrCollective], [ErrAlgorithm],
// [ErrRanks], [ErrRoot], [ErrTooLarge].
func Build(c Collective, algorithm string, n, root int, opts ...Option) (*Schedule, error) {
	e, err := find(c, algorithm, n)
	if err != nil {
		return nil, err
	}
	if !c.Rooted() {
		root = 0
	}
	if root < 0 || root >= n {
		return nil, fmt.Errorf("%w: %d of %d ranks", ErrRoot, root, n)
	}
	if n > maxUncounted {
		b := newBuilder(c, algorithm, n, root, opts)
		b.dry = true
		if e.build(b); b.moves > maxMoves {
			return nil, fmt.Errorf("%w: %v %s on %d ranks has %d", ErrTooLarge, c, algorithm, n, b.moves)
		}
	}
	b := newBuilder(c, algorithm, n, root, opts)
	if n == 1 {
		b.load(0, 0, Ref{Output, 0}, 1)
	} else {
		e.build(b)
	}
	return b.Schedule, nil
}

// builder appends moves to a schedule.
type builder struct {
	*Schedule
	n     int
	moves int  // so far
	dry   bool // count moves, keep none but the last of each list
}

func newBuilder(c Collective, algorithm string, n, root int, opts []Option) *builder {
	in, out := c.ioBlocks(n)
	s := &Schedule{
		Collective: c, Algorithm: algorithm, Ranks: n, Root: root, Sub: 1,
		Blocks: [NumBuffers]int{Input: in, Output: out},
	}
	for _, o := range opts {
		o(s)
	}
	return &builder{Schedule: s, n: n}
}

// appendMove adds m to list, as part of its last move where that one ends where m begins.
func (b *builder) appendMove(list []Move, m Move) []Move {
	if k := len(list) - 1; k >= 0 {
		l := &list[k]
		if l.Src == m.Src && l.Dst == m.Dst && l.Reduce == m.Reduce &&
			l.From.Buf == m.From.Buf && l.From.Chunk+l.Count == m.From.Chunk &&
			l.To.Buf == m.To.Buf && l.To.Chunk+l.Count == m.To.Chunk {
			l.Count += m.Count
			return list
		}
	}
	if b.moves++; b.dry {
		list = list[:0]
	}
	return append(list, m)
}

// load copies chunks of Input elsewhere before the first step.
func (b *builder) load(r, chunk int, to Ref, count int) {
	b.Pre = b.appendMove(b.Pre, Move{Src: r, Dst: r, From: Ref{Input, chunk}, To: to, Count: count})
}

// finish copies between buffers after the last step.
func (b *builder) finish(r int, from, to Ref, count int) {
	b.Post = b.appendMove(b.Post, Move{Src: r, Dst: r, From: from, To: to, Count: count})
}

// step begins the next step; send and then add to it.
func (b *builder) step() { b.Steps = append(b.Steps, Step{}) }

// send adds a transfer to the last step.
func (b *builder) send(src, dst int, from, to Ref, count int) {
	b.transfer(src, dst, from, to, count, false)
}

// sendReduce adds a transfer that combines into its destination.
func (b *builder) sendReduce(src, dst int, from, to Ref, count int) {
	b.transfer(src, dst, from, to, count, true)
}

func (b *builder) transfer(src, dst int, from, to Ref, count int, reduce bool) {
	s := &b.Steps[len(b.Steps)-1]
	s.Transfers = b.appendMove(s.Transfers, Move{src, dst, from, to, count, reduce})
}

// sendSame transfers the given chunks of buf to the same places at dst, in ascending
// order. It sorts chunks in place.
func (b *builder) sendSame(src, dst int, buf Buffer, chunks []int, reduce bool) {
	slices.Sort(chunks)
	for _, c := range chunks {
		b.transfer(src, dst, Ref{buf, c}, Ref{buf, c}, 1, reduce)
	}
}

// local adds a local move that follows the transfers of the last step.
func (b *builder) local(r int, from, to Ref, count int, reduce bool) {
	s := &b.Steps[len(b.Steps)-1]
	s.Post = b.appendMove(s.Post, Move{r, r, from, to, count, reduce})
}

// mod returns x modulo the ranks, in [0, n).
func (b *builder) mod(x int) int { return (x%b.n + b.n) % b.n }

// floorPow2 returns the largest power of two that is at most n, for n >= 1.
func floorPow2(n int) int { return 1 << (bits.Len(uint(n)) - 1) }

// reversal returns the function that reverses the bits of values below p, a power of two.
// Algorithms that split by the lowest bit of the owner first place owner o's chunk at
// reversal(o): what they send in a step is then one contiguous range.
func reversal(p int) func(int) int {
	shift := bits.UintSize - bits.TrailingZeros(uint(p))
	return func(x int) int {
		if p == 1 {
			return 0
		}
		return int(bits.Reverse(uint(x)) >> shift)
	}
}
