package sharedmem

import (
	"runtime"
	"sync/atomic"
	"unsafe"

	"lightpath/collectives/datatype"
	"lightpath/collectives/schedule"
)

// Calls of one chunk are so short that coming to Go and back would be most of them. Those of a kind that
// has been seen before, whoever stands in front of this library makes by itself, in C, on the same slots: all
// that it must know is in a [Quick], which it has while nobody here uses the arena ([Arena.Lend],
// [Arena.TakeBack]). Who has it when, and what is left to Go, is the caller's of both.

// Bounds of a Quick.
const (
	// quickLeast is how many recipes there is room for at first, and quickMost at last; with one more than that
	// a Quick begins anew.
	quickLeast, quickMost = 16, 1024
	// QuickKinds is more than there are kinds of calls.
	QuickKinds = 16
	// QuickLarge is the ring whose slots may say that a chunk is elsewhere.
	QuickLarge = large
	// quickUser is the first operator of the user, as a call has it.
	quickUser = int32(datatype.NumOps)
)

// Quick is struct lp_quick of cgo/core/lp_quick.h, field by field; cgo/core checks that.
type Quick struct {
	Memory        unsafe.Pointer
	Ranks, Rank   uint32
	PerRank       uint32 // bytes
	Inline, Data  uint32 // where a slot has its data
	SpinLong      uint32 // polls before it gives the CPU away, where the others run
	SpinShort     uint32 // the same where they do not
	Yields        uint32 // after that, before the call goes on in Go
	Vain, Waits   uint32 // as patience learns
	Begun         uint32 // 1: the last call has been laid out, and goes on in Go
	Timed         uint32 // 1: records have times
	Costs         uint32 // where in a rank's memory what slots cost is
	_             uint32
	Rings         [numRings]QuickRing
	Seq, Chain    uint64
	Used, Last    uint32 // of Recipes
	Recipes       *QuickRecipe
	Index         *uint16 // numbers + 1 of recipes, by hash, probed linearly; half of them at least are 0
	IndexMask     uint32
	Ended         uint32 // atomic: so many operators of the user have been destroyed
	Log           *QuickRecord
	LogMask, Head uint64             // Head, atomic, counts the records that have been begun
	CallCounts    [QuickKinds]uint64 // atomic, by kind
	Bells         [MaxRanks]uintptr  // of the ranks, as of [transport.Sharer]

	pins    runtime.Pinner // of what stays where it is
	log     []QuickRecord
	tables  runtime.Pinner // of Recipes and Index
	recipes []QuickRecipe
	index   []uint16
}

// QuickRing is a ring of slots.
type QuickRing struct {
	Next, Free uint64
	Mask       uint64 // slots - 1
	Report     uint64
	At         uint32 // the first slot, in a rank's memory
	Slot       uint32 // bytes
	Counter    uint32 // what a rank has consumed, in its memory
	_          uint32
}

// What a rank lays out.
const (
	LayNothing uint8 = iota
	LayBlock         // the same for all
	LayPieces        // one for each of the others
)

// What it takes.
const (
	TakeNothing uint8 = iota // only from its own input, if Keep
	TakeOne                  // rank From's
	TakeEach                 // a block of everyone
	TakeFold                 // everyone's, combined
)

// QuickRecipe is how calls of one shape are made. The first fields are the call's, in NCCL's values.
type QuickRecipe struct {
	Kind     uint32
	Type, Op int32
	Peer     int32
	Count    uint64
	// The bytes of both buffers, 0 for one that this rank does not have, and how far the first is behind the
	// second where they overlap as in a call in place. Only such calls are meant where InPlace is 1.
	SendBytes, RecvBytes uint64
	Shift                int64
	InPlace              uint32

	Signature          uint32
	Block              uint64
	KeepRecv, KeepSend uint64 // from where to where this rank keeps a block, if Keep
	Stride             uint32 // between the pieces of a slot
	Piece              uint32 // where this rank's is
	From               int32  // whose chunk to wait for, or everyone, or nobody
	Ring               uint8
	Inline             uint8 // data is in the header's line
	Lay, Take          uint8
	Keep               uint8
	OwnInput           uint8 // its own part of what is combined comes from its input, KeepSend, not its slot
	Combine            uint8 // a [datatype.Op] that is no average
	Scales             uint8 // contributions are multiplied by a factor when they are laid out
	Divides            uint8 // results are divided by the ranks
	CostClass          int8  // of what is laid out and read
	_                  [2]uint8
	Ended              uint32  // for an operator of the user, Quick.Ended when there was one
	Factor             [8]byte // an element of the type
	// FactorAt is memory of the caller that has the factor whenever a call is made, nil where Factor is it.
	FactorAt unsafe.Pointer
}

// hash is lp_quick_hash of cgo/core/lp_quick.h.
func (r *QuickRecipe) hash() uint64 {
	return mix(mix(r.Count) ^ uint64(uint32(r.Op))<<32 ^ uint64(uint32(r.Peer))<<16 ^ uint64(r.Kind)<<8 ^ uint64(uint32(r.Type)))
}

// same reports whether r and s are of the same calls.
func (r *QuickRecipe) same(s *QuickRecipe) bool {
	return r.Kind == s.Kind && r.Type == s.Type && r.Op == s.Op && r.Peer == s.Peer && r.Count == s.Count &&
		r.InPlace == s.InPlace && (r.Op < quickUser || r.Ended == s.Ended)
}

// QuickRecord is what is remembered of one call; all fields are atomic.
type QuickRecord struct {
	Seq    uint64
	Recipe uint32
	Done   uint32 // 1: it has ended
	// Nanoseconds of CLOCK_MONOTONIC, 0 where records have no times. A call that did not wait is not
	// timed twice: it ends when it begins.
	Begin, End int64
}

// NewQuick returns what there is to lend of a, with room for so many records, a power of two. Release
// must be called.
func NewQuick(a *Arena, records int) *Quick {
	q := &Quick{
		Memory: a.at, Ranks: uint32(a.ranks), Rank: uint32(a.rank), PerRank: uint32(a.perRank), Inline: inlineAt, Data: dataAt, Costs: costsAt,
		LogMask: uint64(records - 1), log: make([]QuickRecord, records),
	}
	for id, r := range a.rings {
		q.Rings[id] = QuickRing{
			Mask: r.slots - 1, Report: r.report, At: uint32(r.at), Slot: uint32(dataAt + r.room), Counter: uint32(id * line),
		}
	}
	a.end.Bells(q.Bells[:a.ranks])
	q.pins.Pin(q)
	q.pins.Pin(&q.log[0])
	q.Log = &q.log[0]
	q.make(quickLeast)
	return q
}

// Release ends q: nobody else has it any more.
func (q *Quick) Release() {
	q.tables.Unpin()
	q.pins.Unpin()
}

// make gives q room for n recipes, a power of two, and keeps those that it has.
func (q *Quick) make(n int) {
	recipes := make([]QuickRecipe, n)
	copy(recipes, q.recipes[:q.Used])
	q.recipes, q.index = recipes, make([]uint16, 2*n)
	q.tables.Unpin()
	q.tables.Pin(&q.recipes[0])
	q.tables.Pin(&q.index[0])
	q.Recipes, q.Index, q.IndexMask = &q.recipes[0], &q.index[0], uint32(len(q.index)-1)
	for i := range q.Used {
		*q.place(&q.recipes[i]) = uint16(i + 1)
	}
}

// place returns where the index has r, or would have it.
func (q *Quick) place(r *QuickRecipe) *uint16 {
	for at := uint32(r.hash()) & q.IndexMask; ; at = (at + 1) & q.IndexMask {
		if i := q.index[at]; i == 0 || q.recipes[i-1].same(r) {
			return &q.index[at]
		}
	}
}

// Knows reports whether there is a recipe of the calls that r is of. As Learn it is for whoever has not lent q.
// Hot path: no allocation.
func (q *Quick) Knows(r *QuickRecipe) bool { return *q.place(r) != 0 }

// Full reports whether there is room for no other recipe: Learn forgets them all.
func (q *Quick) Full() bool { return q.Used == quickMost }

// Learn adds a recipe of calls that q does not know, and returns its number, as records have it.
func (q *Quick) Learn(r *QuickRecipe) uint32 {
	switch {
	case q.Full():
		q.Used = 0
		clear(q.index)
	case int(q.Used) == len(q.recipes):
		q.make(2 * len(q.recipes))
	}
	i := q.Used
	*q.place(r) = uint16(i + 1)
	q.recipes[i] = *r
	q.Used, q.Last = i+1, i
	return i
}

// Lend brings q up to date; until TakeBack the arena is q's. seq is the number of the last operation.
func (a *Arena) Lend(q *Quick, seq uint64) {
	for id := range q.Rings {
		q.Rings[id].Next, q.Rings[id].Free = a.next[id], a.free[id]
	}
	q.Seq, q.Chain = seq, a.chain
}

// TakeBack ends Lend, and returns the number of the last operation.
func (a *Arena) TakeBack(q *Quick) (seq uint64) {
	for id := range q.Rings {
		a.next[id], a.free[id] = q.Rings[id].Next, q.Rings[id].Free
	}
	a.chain = q.Chain
	return q.Seq
}

// Records is how many there have been.
func (q *Quick) Records() uint64 { return atomic.LoadUint64(&q.Head) }

// Record returns the n-th record, counted from 1, and false where it has been overwritten. Callable
// while q is lent.
func (q *Quick) Record(n uint64) (QuickRecord, bool) {
	at := &q.log[n&q.LogMask]
	r := QuickRecord{Seq: atomic.LoadUint64(&at.Seq), Recipe: atomic.LoadUint32(&at.Recipe), Done: atomic.LoadUint32(&at.Done)}
	r.Begin, r.End = atomic.LoadInt64(&at.Begin), atomic.LoadInt64(&at.End)
	return r, n > 0 && q.Records() <= n+q.LogMask-1 // one more may be half written
}

// Calls is how many calls of a kind there have been, also while q is lent.
func (q *Quick) Calls(kind int) uint64 { return atomic.LoadUint64(&q.CallCounts[kind]) }

// OperatorEnded has all recipes of operators of the user forgotten. Callable at any time.
func (q *Quick) OperatorEnded() { atomic.AddUint32(&q.Ended, 1) }

// OperatorsEnded is how often OperatorEnded has been called.
func (q *Quick) OperatorsEnded() uint32 { return atomic.LoadUint32(&q.Ended) }

// Adopt binds o to the last call of q, which is c and has been laid out.
func (o *Op) Adopt(a *Arena, c *Call) {
	o.Bind(a, c)
	o.started = true
	o.cut()
	o.direct = false
	o.first, o.chain, o.laid = a.next[o.ring]-1, a.chain, 1
}

// Recipe says how calls like the one that o is bound to, and has made, are made, and false where
// that is nothing for C. What only the caller knows of them is left empty: what identifies them, and operators.
func (o *Op) Recipe() (QuickRecipe, bool) {
	if !o.started || o.chunks != 1 || o.path.reduces || o.stream || o.publishable(true) || o.mapping {
		return QuickRecipe{}, false
	}
	me := o.a.rank
	r := QuickRecipe{
		Signature: o.Signature, Block: uint64(o.Block), Stride: uint32(o.stride), From: int32(o.path.from), Ring: uint8(o.ring),
		Inline: bit(o.inline), InPlace: uint32(bit(o.InPlace)), Scales: bit(o.Scale != nil),
		CostClass: int8(o.costClass(o.Block)),
	}
	if o.path.pieces {
		r.Piece, r.KeepSend = uint32(me*o.stride), uint64(me*o.Block)
	}
	switch {
	case o.path.pieces && (o.Collective != schedule.Scatter || me == o.Root):
		r.Lay = LayPieces
	case o.contributes():
		r.Lay = LayBlock
	}
	switch o.Collective {
	case schedule.AllReduce, schedule.Reduce, schedule.ReduceScatter:
		if o.path.from == everyone {
			r.Take, r.OwnInput = TakeFold, bit(o.path.pieces && o.Scale == nil)
		}
	case schedule.AllGather, schedule.Gather, schedule.AllToAll:
		if o.path.from == everyone {
			r.Take, r.Keep, r.KeepRecv = TakeEach, bit(!o.InPlace), uint64(me*o.Block)
		}
	default: // Broadcast, Scatter
		if me == o.Root {
			r.Keep = bit(!o.InPlace)
		} else {
			r.Take = TakeOne
		}
	}
	return r, true
}

func bit(b bool) uint8 {
	if b {
		return 1
	}
	return 0
}
