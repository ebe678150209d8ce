package schedule

import (
	"errors"
	"fmt"
	"math/bits"
	"slices"
)

// Sentinels of [Build], besides those of names.
var (
	ErrRoot     = errors.New("schedule: root is not a rank")
	ErrTooLarge = errors.New("schedule: too many moves")
)

// maxMoves bounds a schedule's memory (64 bytes a move): a ring on 2048 ranks fits. Up to
// maxUncounted ranks nothing comes near it.
const (
	maxMoves     = 1 << 24
	maxUncounted = 256
)

// Build returns the schedule of an algorithm on n ranks: one of [Algorithms], with parameters
// or an order where it takes some, as the package documentation says. root is read by rooted
// collectives only. The result depends on nothing but the arguments, so that all ranks
// build the same; it is the caller's. Its Algorithm is [Canonical]: whatever decides
// what is sent and how values are combined is in that name. Errors: [ErrCollective],
// [ErrAlgorithm], [ErrParameter], [ErrOrder], [ErrRanks], [ErrRoot], [ErrTooLarge].
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
	o := Apply(opts...)
	r, err := resolve(c, algorithm, n, o.Order)
	if err != nil {
		return nil, err
	}
	if !c.Rooted() {
		root = 0
	}
	if root < 0 || root >= n {
		return nil, fmt.Errorf("%w: %d of %d ranks", ErrRoot, root, n)
	}
	if r.seats != nil { // the algorithm's root is a part, too
		root = slices.Index(r.seats, root)
	}
	return newBuilder(c, r, root, o), nil
}

// builder appends moves to a schedule.
type builder struct {
	*Schedule
	n     int
	alg   *resolved
	moves int    // so far
	dry   bool   // count moves, keep none but the last of each list
	pose  *poser // where not nil, takes the transfers; no step is kept
	slots int    // the first block of Scratch where [builder.combine] puts what has to wait
	size  int    // the blocks of a slot
}

func newBuilder(c Collective, r *resolved, root int, o Settings) *builder {
	in, out := c.IOBlocks(r.n)
	s := &Schedule{
		Collective: c, Algorithm: r.canonical().String(), Ranks: r.n, Root: root, Sub: 1,
		Blocks: [NumBuffers]int{Input: in, Output: out}, Disjoint: o.Disjoint,
	}
	return &builder{Schedule: s, n: r.n, alg: r}
}

// fill builds the schedule; a rank on its own only copies.
func (b *builder) fill() {
	if b.n == 1 {
		b.load(0, 0, Ref{Output, 0}, 1)
		return
	}
	b.alg.build(b)
}

// parameter returns the only parameter of the algorithm.
func (b *builder) parameter() int { return b.alg.args[0] }

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
func (b *builder) step() {
	if b.pose != nil {
		b.pose.step()
		return
	}
	b.Steps = append(b.Steps, Step{})
}

// send adds a transfer to the last step.
func (b *builder) send(src, dst int, from, to Ref, count int) {
	b.transfer(src, dst, from, to, count, false)
}

// sendReduce adds a transfer that combines into its destination.
func (b *builder) sendReduce(src, dst int, from, to Ref, count int) {
	b.transfer(src, dst, from, to, count, true)
}

func (b *builder) transfer(src, dst int, from, to Ref, count int, reduce bool) {
	if b.pose != nil {
		b.pose.transfer(src, dst, count)
		return
	}
	s := &b.Steps[len(b.Steps)-1]
	s.Transfers = b.appendMove(s.Transfers, Move{src, dst, from, to, count, reduce})
}

// sendSame transfers the given chunks of buf to the same places at dst, in ascending
// order. It sorts chunks in place.
func (b *builder) sendSame(src, dst int, buf Buffer, chunks []int) {
	slices.Sort(chunks)
	for _, c := range chunks {
		b.send(src, dst, Ref{buf, c}, Ref{buf, c}, 1)
	}
}

// combineSame is sendSame for chunks that are combined at dst, the k-th time in the step
// ([builder.combine]).
func (b *builder) combineSame(k, src, dst int, buf Buffer, chunks []int) {
	slices.Sort(chunks)
	for _, c := range chunks {
		b.combine(k, src, dst, Ref{buf, c}, Ref{buf, c}, 1)
	}
}

// reserve makes room in Scratch, behind what is there, for k flows of a step that are all
// combined into the same chunks of a buffer of size blocks ([builder.combine]).
func (b *builder) reserve(k, size int) {
	b.slots, b.size = b.Blocks[Scratch], size
	b.Blocks[Scratch] += max(0, k-1) * size
}

// combine adds a transfer that combines into its destination as the k-th of the step, from
// 0, to do so: only one may on arrival, so the others wait in a slot each until the
// transfers are done and follow in the order in which combine was called.
func (b *builder) combine(k, src, dst int, from, to Ref, count int) {
	if k == 0 {
		b.sendReduce(src, dst, from, to, count)
		return
	}
	slot := Ref{Scratch, (b.slots+(k-1)*b.size)*b.Sub + to.Chunk}
	b.send(src, dst, from, slot, count)
	b.local(dst, slot, to, count, true)
}

// local adds a local move that follows the transfers of the last step.
func (b *builder) local(r int, from, to Ref, count int, reduce bool) {
	if b.pose != nil {
		return
	}
	s := &b.Steps[len(b.Steps)-1]
	s.Post = b.appendMove(s.Post, Move{r, r, from, to, count, reduce})
}

// mod returns x modulo the ranks, in [0, n).
func (b *builder) mod(x int) int { return (x%b.n + b.n) % b.n }

// floorPow2 returns the largest power of two that is at most n, for n >= 1.
func floorPow2(n int) int { return 1 << (bits.Len(uint(n)) - 1) }
