package sharedmem

import (
	"unsafe"

	"lightpath/collectives/datatype"
	"lightpath/collectives/schedule"
)

// tileSize is how many bytes fold combines at a time: few enough that they stay in the first-level cache with their
// sources.
const tileSize = 8 << 10

// span returns where chunk k begins in a block, and its bytes.
func (o *Op) span(k uint64) (from, n int) {
	from = int(k-o.first) * o.chunk
	return from, min(o.chunk, o.Block-from)
}

// data returns where the data of a rank's chunk k is in its slot.
func (o *Op) data(rank int, k uint64) unsafe.Pointer {
	s := o.a.slot(&o.a.rings[o.ring], rank, k)
	if o.inline {
		return unsafe.Add(s, inlineAt)
	}
	return unsafe.Add(s, dataAt)
}

// fill copies this rank's contribution to chunk k into its slot, and completes the header.
func (o *Op) fill(k uint64) {
	from, n := o.span(k)
	t := o.timeFill(k, n)
	o.loaded = 0
	if !o.published {
		o.fillData(o.data(o.a.rank, k), from, n)
	}
	t.end(o.a, o.a.rank, o.loaded)
	s := o.a.slot(&o.a.rings[o.ring], o.a.rank, k)
	h := (*Slot)(s)
	h.Seq, h.Chain, h.Signature = o.Seq, o.chain, o.Signature
	if o.ring == large {
		h.At = 0
		if o.published {
			h.At = uint64(uintptr(o.Send))
			h.Region, h.Place, h.Offset = o.at.number, o.at.place, o.at.offset
		}
	}
	word(s, 0).Store(k + 1)
	o.a.end.Ring()
}

// fillData copies the n bytes at from of this rank's blocks to the data of a slot.
func (o *Op) fillData(at unsafe.Pointer, from, n int) {
	fill := o.fills()
	switch {
	case fill == FillPieces:
		for p := range o.a.ranks {
			if p != o.a.rank || o.Scale != nil {
				o.load(unsafe.Add(at, p*o.stride), unsafe.Add(o.Send, p*o.Block+from), n)
			}
		}
	case o.path.reduces:
		// This rank reads its own part in its buffer, unless contributions are scaled.
		lo, hi := o.part(o.a.rank, n)
		if o.Scale != nil {
			lo, hi = n, n
		}
		// A pointer past the end of a buffer would belong to another object, even if nothing is copied.
		if lo > 0 {
			o.load(at, unsafe.Add(o.Send, from), lo)
		}
		if hi < n {
			o.load(unsafe.Add(at, hi), unsafe.Add(o.Send, from+hi), n-hi)
		}
	case fill == FillBlock:
		o.load(at, unsafe.Add(o.Send, from), n)
	}
}

// fills returns the data that this rank copies into its slots.
func (o *Op) fills() uint8 {
	root := o.a.rank == o.Root
	switch {
	case root && o.Collective == schedule.Gather, !root && o.Collective == schedule.Broadcast,
		!root && o.Collective == schedule.Scatter:
		return FillNothing
	case o.path.pieces:
		return FillPieces
	}
	return FillBlock
}

// reduce writes this rank's part of the result of chunk k into its slot, and into its result if it has one.
func (o *Op) reduce(k uint64) error {
	from, n := o.span(k)
	if lo, hi := o.part(o.a.rank, n); lo < hi {
		if err := o.reducePart(k, from, lo, hi); err != nil {
			return err
		}
	}
	word(o.a.slot(&o.a.rings[o.ring], o.a.rank, k), reducedAt).Store(k + 1)
	o.a.end.Ring()
	return nil
}

// reducePart combines bytes lo to hi of chunk k, which begins at byte from of the block.
func (o *Op) reducePart(k uint64, from, lo, hi int) (err error) {
	_, n := o.span(k)
	o.placement, _ = o.a.choosePlacement(o.ring, k, o.costClass(n))
	t := o.timeRead(k, n)
	for p := range o.a.src {
		if o.a.src[p], err = o.source(p, k, lo, from+lo, hi-lo); err != nil {
			return err
		}
	}
	dst := o.a.src[o.a.rank]
	ownBuffer := o.Scale == nil
	if ownBuffer {
		o.a.src[o.a.rank] = unsafe.Add(o.Send, from+lo)
	}
	var result unsafe.Pointer
	if o.path.from == fromAll {
		result = unsafe.Add(o.Recv, from+lo)
	}
	o.fold(dst, result, hi-lo, ownBuffer && o.placement == inCache)
	if !o.anyElsewhere(k) {
		t.endAll(o.a, hi-lo)
	}
	return o.checkAllValid(k)
}

// consume copies or combines what this rank needs of chunk k into its results.
func (o *Op) consume(k uint64) error {
	from, n := o.span(k)
	me := o.a.rank
	switch o.Collective {
	case schedule.AllReduce, schedule.Reduce:
		o.consumeReduced(k, from, n)
	case schedule.ReduceScatter:
		return o.consumeScattered(k, from, n)
	case schedule.AllGather, schedule.Gather, schedule.AllToAll:
		if o.path.from == fromNone {
			return nil
		}
		piece := 0
		if o.path.pieces {
			piece = me
		}
		for i := range o.a.ranks - 1 {
			p := o.nextPeer(i)
			if err := o.fetch(p, k, piece, unsafe.Add(o.Recv, p*o.Block)); err != nil {
				return err
			}
		}
		o.copyOwn(me*o.Block+from, piece*o.Block+from, n)
	case schedule.Broadcast:
		if me == o.Root {
			o.copyOwn(from, from, n)
			return nil
		}
		return o.fetch(o.Root, k, 0, o.Recv)
	case schedule.Scatter:
		if me == o.Root {
			o.copyOwn(from, me*o.Block+from, n)
			return nil
		}
		return o.fetch(o.Root, k, me, o.Recv)
	}
	return nil
}

// consumeScattered combines the pieces of chunk k that are this rank's.
func (o *Op) consumeScattered(k uint64, from, n int) (err error) {
	me := o.a.rank
	t := o.timeRead(k, n)
	for p := range o.a.src {
		if o.a.src[p], err = o.source(p, k, me*o.stride, me*o.Block+from, n); err != nil {
			return err
		}
	}
	if o.Scale == nil {
		o.a.src[me] = unsafe.Add(o.Send, me*o.Block+from)
	}
	o.fold(unsafe.Add(o.Recv, from), nil, n, !o.stream && !o.InPlace)
	if !o.anyElsewhere(k) {
		t.endAll(o.a, n)
	}
	return o.checkAllValid(k)
}

// consumeReduced copies the parts that the peers have reduced, or reduces the whole chunk.
func (o *Op) consumeReduced(k uint64, from, n int) {
	switch {
	case o.path.from == fromNone:
	case o.path.reduces:
		for i := range o.a.ranks - 1 {
			p := o.nextPeer(i)
			if lo, hi := o.part(p, n); lo < hi {
				o.store(unsafe.Add(o.Recv, from+lo), unsafe.Add(o.data(p, k), lo), hi-lo)
			}
		}
	default:
		t := o.timeRead(k, n)
		for p := range o.a.src {
			o.a.src[p] = o.data(p, k)
		}
		o.fold(unsafe.Add(o.Recv, from), nil, n, !o.stream)
		t.endAll(o.a, n)
	}
}

// copyOwn copies this rank's own block from its input to its results.
func (o *Op) copyOwn(recv, send, n int) {
	if !o.InPlace {
		o.store(unsafe.Add(o.Recv, recv), unsafe.Add(o.Send, send), n)
	}
}

// load copies a contribution into a slot, and scales it if the call does.
func (o *Op) load(dst, src unsafe.Pointer, n int) {
	if o.Scale != nil {
		o.Scale(unsafe.Slice((*byte)(dst), n), unsafe.Slice((*byte)(src), n), o.Factor)
		return
	}
	o.copyToSlot(dst, src, n)
	o.loaded += n
}

// store copies n bytes into results.
func (o *Op) store(dst, src unsafe.Pointer, n int) {
	d, s := unsafe.Slice((*byte)(dst), n), unsafe.Slice((*byte)(src), n)
	if o.stream {
		datatype.Stream(d, s)
		return
	}
	copy(d, s)
}

// fold combines n bytes of each of the arena's sources, in the order of ranks, so that every rank computes the same
// bits. The result goes to dst and, unless nil, to result. direct says that dst is not a source and may hold
// intermediate values.
func (o *Op) fold(dst, result unsafe.Pointer, n int, direct bool) {
	src := o.a.src
	// In place, dst may be the last source. A kernel accepts only its first operand as its destination.
	streams := o.stream && !direct && result == nil && o.CombineStream != nil && dst != src[len(src)-1]
	for at := 0; at < n; at += tileSize {
		m := min(tileSize, n-at)
		if streams {
			to := unsafe.Slice((*byte)(unsafe.Add(dst, at)), m)
			combineStream(o.CombineStream, o.Combine, to, o.a.tile[:m], src, at)
			continue
		}
		t := o.a.tile[:m]
		if direct {
			t = unsafe.Slice((*byte)(unsafe.Add(dst, at)), m)
		}
		combineAll(o.Combine, t, src, at)
		if !direct {
			if result == nil && !o.path.reduces {
				o.store(unsafe.Add(dst, at), unsafe.Pointer(unsafe.SliceData(t)), m)
			} else { // dst is in a slot
				o.copyToSlot(unsafe.Add(dst, at), unsafe.Pointer(unsafe.SliceData(t)), m)
			}
		}
		if result != nil {
			o.store(unsafe.Add(result, at), unsafe.Pointer(unsafe.SliceData(t)), m)
		}
	}
}

// combineAll sets t to the combination of the sources' bytes from at on, in their order.
func combineAll(combine datatype.CombineFunc, t []byte, src []unsafe.Pointer, at int) {
	part := func(i int) []byte { return unsafe.Slice((*byte)(unsafe.Add(src[i], at)), len(t)) }
	combine(t, part(0), part(1))
	for i := 2; i < len(src); i++ {
		combine(t, t, part(i))
	}
}

// combineStream is combineAll with a dst that is written past the caches. t is scratch for the sources before the last.
func combineStream(past, combine datatype.CombineFunc, dst, t []byte, src []unsafe.Pointer, at int) {
	last := unsafe.Slice((*byte)(unsafe.Add(src[len(src)-1], at)), len(t))
	if len(src) == 2 {
		t = unsafe.Slice((*byte)(unsafe.Add(src[0], at)), len(t))
	} else {
		combineAll(combine, t, src[:len(src)-1], at)
	}
	past(dst, t, last)
}

// FoldPastCaches combines two or more buffers of equal length into dst, as operations do whose results exceed the
// caches. It serves benchmarks: operations fold the data of slots.
func FoldPastCaches(op datatype.Op, t datatype.Type, dst []byte, src [][]byte) {
	tile := make([]byte, tileSize)
	at := make([]unsafe.Pointer, len(src))
	for i, s := range src {
		at[i] = unsafe.Pointer(unsafe.SliceData(s))
	}
	call := Call{Combine: datatype.Combine(op, t), CombineStream: datatype.CombineStream(op, t)}
	o := &Op{Call: call, a: &Arena{src: at, tile: tile}, stream: true}
	o.fold(unsafe.Pointer(unsafe.SliceData(dst)), nil, len(dst), false)
}
