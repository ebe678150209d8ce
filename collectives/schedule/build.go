package schedule

import (
	"errors"
	"fmt"
	"math/bits"
	"slices"
)

// Errors of [Build], besides those of names.
var (
	ErrRoot     = errors.New("schedule: root is not a rank")
	ErrTooLarge = errors.New("schedule: too many moves")
)

// maxMoves limits the memory of a schedule (64 bytes per move). A ring of 2048 ranks fits. Up to maxUncounted ranks,
// every schedule is far below the limit.
const (
	maxMoves     = 1 << 24
	maxUncounted = 256
)

// Build returns the schedule of an algorithm on n ranks. The algorithm is one of [Algorithms], possibly with parameters
// and an order, as the package documentation says. Only rooted collectives read root.
//
// The result depends only on the arguments, so all ranks build the same schedule. The caller owns it. Its Algorithm is
// [Canonical], a name that determines all transfers and the order in which values are combined. Errors:
// [ErrCollective], [ErrAlgorithm], [ErrParameter], [ErrOrder], [ErrRanks], [ErrRoot], [ErrTooLarge].
func Build(c Collective, algorithm string, n, root int, opts ...Option) (*Schedule, error) {
	b, err := prepare(c, algorithm, n, root, opts)
	if err != nil {
		return nil, err
	}
	if n > maxUncounted {
		b.dry = true
		if b.fill(); b.moves > maxMoves {
			return nil, fmt.Errorf("%w: %v %s on %d ranks has %d", ErrTooLarge, c, algorithm, n, b.moves)
		}
		if b, err = prepare(c, algorithm, n, root, opts); err != nil {
			return nil, err
		}
	}
	b.fill()
	b.seat(b.alg.seats)
	return b.Schedule, nil
}

// prepare returns the builder of a schedule.
func prepare(c Collective, algorithm string, n, root int, opts []Option) (*builder, error) {
	r, err := resolve(c, algorithm, n)
	if err != nil {
		return nil, err
	}
	if !c.Rooted() {
		root = 0
	}
	if root < 0 || root >= n {
		return nil, fmt.Errorf("%w: %d of %d ranks", ErrRoot, root, n)
	}
	if r.seats != nil { // the builder needs the root's position in the algorithm
		root = slices.Index(r.seats, root)
	}
	return newBuilder(c, r, root, opts), nil
}

// Option changes the result of [Build].
type Option uint8

// Disjoint omits the copies of Input that only in-place calls need (AllToAll, SendRecv). Calls whose Input and Output
// overlap must not use the schedule. The steps and their flows do not change.
const Disjoint Option = 1

// builder appends moves to a schedule.
type builder struct {
	*Schedule
	n       int
	alg     *resolved
	moves   int             // number of moves so far
	dry     bool            // only count moves, and keep the last one of each list
	problem *problemBuilder // if not nil, it receives the transfers, and no step is kept
	slots   int             // first block of Scratch that [builder.combine] uses
	size    int             // blocks of a slot
}

func newBuilder(c Collective, r *resolved, root int, opts []Option) *builder {
	in, out := c.IOBlocks(r.n)
	s := &Schedule{
		Collective: c, Algorithm: r.canonical().String(), Ranks: r.n, Root: root, Sub: 1,
		Blocks: [NumBuffers]int{Input: in, Output: out}, Disjoint: slices.Contains(opts, Disjoint),
	}
	return &builder{Schedule: s, n: r.n, alg: r}
}

// fill builds the schedule. A single rank only copies.
func (b *builder) fill() {
	if b.n == 1 {
		b.load(0, 0, Ref{Output, 0}, 1)
		return
	}
	b.alg.build(b)
}

// parameter returns the only parameter of the algorithm.
func (b *builder) parameter() int { return b.alg.args[0] }

// appendMove appends m to list. If m continues the last move, it extends that move instead.
func (b *builder) appendMove(list []Move, m Move) []Move {
	if k := len(list) - 1; k >= 0 && list[k].Extend(&m) {
		return list
	}
	if b.moves++; b.dry {
		list = list[:0]
	}
	return append(list, m)
}

// load copies chunks of Input before the first step.
func (b *builder) load(r, chunk int, to Ref, count int) {
	if b.problem != nil {
		return
	}
	b.Pre = b.appendMove(b.Pre, Move{Src: r, Dst: r, From: Ref{Input, chunk}, To: to, Count: count})
}

// finish copies between buffers after the last step.
func (b *builder) finish(r int, from, to Ref, count int) {
	if b.problem != nil {
		return
	}
	b.Post = b.appendMove(b.Post, Move{Src: r, Dst: r, From: from, To: to, Count: count})
}

// step begins a step, to which send, sendReduce, combine and local add moves.
func (b *builder) step() {
	if b.problem != nil {
		b.problem.step()
		return
	}
	b.Steps = append(b.Steps, Step{})
}

// send adds a transfer to the current step.
func (b *builder) send(src, dst int, from, to Ref, count int) {
	b.transfer(src, dst, from, to, count, false)
}

// sendReduce adds a transfer that combines into its destination.
func (b *builder) sendReduce(src, dst int, from, to Ref, count int) {
	b.transfer(src, dst, from, to, count, true)
}

func (b *builder) transfer(src, dst int, from, to Ref, count int, reduce bool) {
	if b.problem != nil {
		b.problem.transfer(src, dst, count)
		return
	}
	s := &b.Steps[len(b.Steps)-1]
	s.Transfers = b.appendMove(s.Transfers, Move{src, dst, from, to, count, reduce})
}

// sendSize adds a transfer of count chunks if the builder only computes a planning problem, in which a flow has a size
// and no places. Otherwise it returns false, and the caller sends the chunks.
func (b *builder) sendSize(src, dst, count int) bool {
	if b.problem == nil {
		return false
	}
	b.problem.transfer(src, dst, count)
	return true
}

// sendSame sends the given chunks of buf to the same chunks at dst, in ascending order. It sorts chunks in place.
func (b *builder) sendSame(src, dst int, buf Buffer, chunks []int) {
	slices.Sort(chunks)
	for _, c := range chunks {
		b.send(src, dst, Ref{buf, c}, Ref{buf, c}, 1)
	}
}

// combineSame is like sendSame, with [builder.combine] for the k-th flow to dst in the step.
func (b *builder) combineSame(k, src, dst int, buf Buffer, chunks []int) {
	slices.Sort(chunks)
	for _, c := range chunks {
		b.combine(k, src, dst, Ref{buf, c}, Ref{buf, c})
	}
}

// reserve adds slots to Scratch for k flows of a step that [builder.combine] combines into the same chunks. A slot has
// the given number of blocks.
func (b *builder) reserve(k, size int) {
	b.slots, b.size = b.Blocks[Scratch], size
	b.Blocks[Scratch] += max(0, k-1) * size
}

// combine adds the k-th transfer (from 0) of the step that combines into the same chunk. Only the first may combine on
// arrival. The others are received into slots, from which local moves combine them after the transfers, in the order of
// the calls.
func (b *builder) combine(k, src, dst int, from, to Ref) {
	if k == 0 {
		b.sendReduce(src, dst, from, to, 1)
		return
	}
	slot := Ref{Scratch, (b.slots+(k-1)*b.size)*b.Sub + to.Chunk}
	b.send(src, dst, from, slot, 1)
	b.local(dst, slot, to, true)
}

// local adds a local move of a chunk after the transfers of the current step.
func (b *builder) local(r int, from, to Ref, reduce bool) {
	if b.problem != nil {
		return
	}
	s := &b.Steps[len(b.Steps)-1]
	s.Post = b.appendMove(s.Post, Move{r, r, from, to, 1, reduce})
}

// mod returns x modulo the number of ranks, in [0, n).
func (b *builder) mod(x int) int { return (x%b.n + b.n) % b.n }

// floorPow2 returns the largest power of two that is at most n, for n >= 1.
func floorPow2(n int) int { return 1 << (bits.Len(uint(n)) - 1) }
