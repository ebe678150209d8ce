package sharedmem

import (
	"unsafe"

	"lightpath/collectives/datatype"
	"lightpath/collectives/schedule"
)

// tileSize is how much is reduced, or gone through twice, at a time: so little that it stays in the
// first-level cache with its sources.
const tileSize = 8 << 10

// span returns which bytes of a block chunk k is.
func (o *Op) span(k uint64) (from, n int) {
	from = int(k-o.first) * o.chunk
	return from, min(o.chunk, o.Block-from)
}

// data returns where a rank's slot of chunk k has its data.
func (o *Op) data(rank int, k uint64) unsafe.Pointer {
	s := o.a.slot(&o.a.rings[o.ring], rank, k)
	if o.inline {
		return unsafe.Add(s, inlineAt)
	}
	return unsafe.Add(s, dataAt)
}

// lay puts this rank's contribution to chunk k into its slot.
func (o *Op) lay(k uint64) {
	from, n := o.span(k)
	at := o.data(o.a.rank, k)
	t := o.laying(k, n)
	o.loaded = 0
	switch {
	case o.direct:
	case o.path.pieces && (o.Collective != schedule.Scatter || o.a.rank == o.Root):
		for p := range o.a.ranks {
			if p != o.a.rank || o.Scale != nil {
				o.load(unsafe.Add(at, p*o.stride), unsafe.Add(o.Send, p*o.Block+from), n)
			}
		}
	case o.path.reduces:
		lo, hi := o.part(o.a.rank, n)
		if o.Scale != nil {
			lo, hi = n, n
		}
		// No pointer past the end of a buffer, not even to nothing: it may be another's object.
		if lo > 0 {
			o.load(at, unsafe.Add(o.Send, from), lo)
		}
		if hi < n {
			o.load(unsafe.Add(at, hi), unsafe.Add(o.Send, from+hi), n-hi)
		}
	case o.contributes():
		o.load(at, unsafe.Add(o.Send, from), n)
	}
	t.ends(o.a, o.a.rank, o.loaded)
	s := o.a.slot(&o.a.rings[o.ring], o.a.rank, k)
	h := (*header)(s)
	h.seq, h.chain, h.sig = o.Seq, o.chain, o.Signature
	if o.ring == large {
		h.at = 0
		if o.direct {
			h.at = uint64(uintptr(o.Send))
			h.region, h.place, h.offset = o.at.number, o.at.place, o.at.offset
		}
	}
	word(s, 0).Store(k + 1)
	o.a.end.Ring()
}

// contributes reports whether this rank lays out its block, where a slot holds the same for all.
func (o *Op) contributes() bool {
	switch o.Collective {
	case schedule.Broadcast:
		return o.a.rank == o.Root
	case schedule.Gather:
		return o.a.rank != o.Root
	default:
		return !o.path.pieces
	}
}

// reduce makes this rank's part of the result of chunk k, in its slot, and where it needs it in place.
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
	o.way, _ = o.a.way(o.ring, k, o.costClass(n))
	t := o.reading(k, n)
	for p := range o.a.src {
		if o.a.src[p], err = o.source(p, k, lo, from+lo, hi-lo); err != nil {
			return err
		}
	}
	dst := o.a.src[o.a.rank]
	direct := o.Scale == nil
	if direct {
		o.a.src[o.a.rank] = unsafe.Add(o.Send, from+lo)
	}
	var result unsafe.Pointer
	if o.path.from == everyone {
		result = unsafe.Add(o.Recv, from+lo)
	}
	o.fold(dst, result, hi-lo, direct && o.way == kept)
	if !o.anyElsewhere(k) {
		t.endsAll(o.a, hi-lo)
	}
	return o.stood(k)
}

// take puts what this rank gets of chunk k in place.
func (o *Op) take(k uint64) error {
	from, n := o.span(k)
	me := o.a.rank
	switch o.Collective {
	case schedule.AllReduce, schedule.Reduce:
		o.takeReduced(k, from, n)
	case schedule.ReduceScatter:
		return o.takeScattered(k, from, n)
	case schedule.AllGather, schedule.Gather, schedule.AllToAll:
		if o.path.from == nobody {
			return nil
		}
		piece := 0
		if o.path.pieces {
			piece = me
		}
		for i := range o.a.ranks - 1 {
			p := o.other(i)
			if err := o.fetch(p, k, piece, unsafe.Add(o.Recv, p*o.Block)); err != nil {
				return err
			}
		}
		o.keep(me*o.Block+from, piece*o.Block+from, n)
	case schedule.Broadcast:
		if me == o.Root {
			o.keep(from, from, n)
			return nil
		}
		return o.fetch(o.Root, k, 0, o.Recv)
	case schedule.Scatter:
		if me == o.Root {
			o.keep(from, me*o.Block+from, n)
			return nil
		}
		return o.fetch(o.Root, k, me, o.Recv)
	}
	return nil
}

// takeScattered combines this rank's pieces.
func (o *Op) takeScattered(k uint64, from, n int) (err error) {
	me := o.a.rank
	t := o.reading(k, n)
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
		t.endsAll(o.a, n)
	}
	return o.stood(k)
}

// takeReduced takes the parts that others have reduced, or reduces everything.
func (o *Op) takeReduced(k uint64, from, n int) {
	switch {
	case o.path.from == nobody:
	case o.path.reduces:
		for i := range o.a.ranks - 1 {
			p := o.other(i)
			if lo, hi := o.part(p, n); lo < hi {
				o.store(unsafe.Add(o.Recv, from+lo), unsafe.Add(o.data(p, k), lo), hi-lo)
			}
		}
	default:
		t := o.reading(k, n)
		for p := range o.a.src {
			o.a.src[p] = o.data(p, k)
		}
		o.fold(unsafe.Add(o.Recv, from), nil, n, !o.stream)
		t.endsAll(o.a, n)
	}
}

// keep copies what stays at this rank from its input to its results.
func (o *Op) keep(recv, send, n int) {
	if !o.InPlace {
		o.store(unsafe.Add(o.Recv, recv), unsafe.Add(o.Send, send), n)
	}
}

// load copies a contribution into a slot.
func (o *Op) load(dst, src unsafe.Pointer, n int) {
	if o.Scale != nil {
		o.Scale(unsafe.Slice((*byte)(dst), n), unsafe.Slice((*byte)(src), n), o.Factor)
		return
	}
	o.put(dst, src, n)
	o.loaded += n
}

// store copies n bytes to where results go.
func (o *Op) store(dst, src unsafe.Pointer, n int) {
	d, s := unsafe.Slice((*byte)(dst), n), unsafe.Slice((*byte)(src), n)
	if o.stream {
		datatype.Stream(d, s)
		return
	}
	copy(d, s)
}

// fold combines n bytes at each of the arena's sources, in the order of ranks, so that results are the
// same to the bit wherever they are made. They go to dst and, where it is not nil, to result; direct
// says that dst is none of the sources and may hold what is not final.
func (o *Op) fold(dst, result unsafe.Pointer, n int, direct bool) {
	src := o.a.src
	// In place, the last source may be where results go: a kernel takes that for the first alone.
	streams := o.stream && !direct && result == nil && o.CombinePast != nil && dst != src[len(src)-1]
	for at := 0; at < n; at += tileSize {
		m := min(tileSize, n-at)
		if streams {
			combinePast(o.CombinePast, o.Combine, unsafe.Slice((*byte)(unsafe.Add(dst, at)), m), o.a.tile[:m], src, at)
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
			} else { // into a slot
				o.put(unsafe.Add(dst, at), unsafe.Pointer(unsafe.SliceData(t)), m)
			}
		}
		if result != nil {
			o.store(unsafe.Add(result, at), unsafe.Pointer(unsafe.SliceData(t)), m)
		}
	}
}

// combineAll sets t to what the sources have from byte at on, combined in their order.
func combineAll(combine datatype.CombineFunc, t []byte, src []unsafe.Pointer, at int) {
	part := func(i int) []byte { return unsafe.Slice((*byte)(unsafe.Add(src[i], at)), len(t)) }
	combine(t, part(0), part(1))
	for i := 2; i < len(src); i++ {
		combine(t, t, part(i))
	}
}

// combinePast is combineAll into dst past the caches. What the sources before the last make is in t.
func combinePast(past, combine datatype.CombineFunc, dst, t []byte, src []unsafe.Pointer, at int) {
	last := unsafe.Slice((*byte)(unsafe.Add(src[len(src)-1], at)), len(t))
	if len(src) == 2 {
		t = unsafe.Slice((*byte)(unsafe.Add(src[0], at)), len(t))
	} else {
		combineAll(combine, t, src[:len(src)-1], at)
	}
	past(dst, t, last)
}

// FoldPastCaches combines buffers of equal length, two or more, into dst, as operations do whose results are larger
// than the caches. It is here for who measures it: operations fold what lies in slots.
func FoldPastCaches(op datatype.Op, t datatype.Type, dst []byte, src [][]byte) {
	tile := make([]byte, tileSize)
	at := make([]unsafe.Pointer, len(src))
	for i, s := range src {
		at[i] = unsafe.Pointer(unsafe.SliceData(s))
	}
	o := &Op{Call: Call{Combine: datatype.Combine(op, t), CombinePast: datatype.CombinePast(op, t)}, a: &Arena{src: at, tile: tile}, stream: true}
	o.fold(unsafe.Pointer(unsafe.SliceData(dst)), nil, len(dst), false)
}
