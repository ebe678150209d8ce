package peer

import (
	"unsafe"

	"lightpath/collectives/datatype"
	"lightpath/shim/calls"
	"lightpath/shim/device"
	"lightpath/shim/stream"
)

// oneShotBytes is the largest call, in bytes, that each receiving rank combines whole, in one exchange. A larger call
// takes two exchanges.
const oneShotBytes = 256 << 10

// collective enqueues a collective.
func (x *Path) collective(op *operation) error {
	if x.n == 1 {
		_, bytes := op.call.Extents()
		x.lay(op, op.call.Recv, op.call.Send, bytes)
		return x.queue.err
	}
	if err := x.consider(op); err != nil {
		return err
	}
	all, root := x.everyone(), rankSet(0)
	if calls.Kinds[op.call.Kind].Rooted {
		root = one(int(op.call.Peer))
	}
	x.speak(op)
	switch op.call.Kind {
	case calls.AllReduce:
		x.reduction(op, all)
	case calls.Reduce:
		x.reduction(op, root)
	case calls.ReduceScatter:
		x.reduceScatter(op)
	case calls.AllGather:
		x.spread(op, rounds{owners: all, readers: all})
	case calls.Broadcast:
		x.spread(op, rounds{owners: root, readers: all})
	case calls.Gather:
		x.spread(op, rounds{owners: all, readers: root})
	case calls.Scatter:
		x.distribute(op, rounds{owners: root, readers: all})
	default:
		x.distribute(op, rounds{owners: all, readers: all})
	}
	x.settle(op)
	return x.queue.err
}

// element and block return the bytes of an element, and of the call's block.
func (op *operation) element() int64 { return int64(op.call.Type.Size()) }
func (op *operation) block() int64   { return int64(op.call.Count) * op.element() }

// partAlign is the alignment of chunks and parts of chunks, in elements, so that kernels find them aligned.
const partAlign = 16

// chunks are the elements off to off+n-1 of a block of count elements that go through the slots in a round.
type chunks struct{ count, step int64 }

// cut divides blocks of count elements into equal chunks, of which a slot has room for pieces.
func (x *Path) cut(op *operation, pieces int64) (c chunks, k int) {
	count := int64(op.call.Count)
	most := x.exchange.slotBytes / op.element() / pieces &^ (partAlign - 1)
	k = int((count + most - 1) / most)
	step := (count + int64(k) - 1) / int64(k)
	step = (step + partAlign - 1) &^ (partAlign - 1)
	return chunks{count, step}, int((count + step - 1) / step)
}

func (c chunks) at(i int) (off, n int64) {
	off = int64(i) * c.step
	return off, min(c.step, c.count-off)
}

// part returns the element at which a rank's part of a chunk of count elements begins.
func (x *Path) part(count int64, rank int) int64 {
	if rank == x.n {
		return count
	}
	return count * int64(rank) / int64(x.n) &^ (partAlign - 1)
}

// oneShot reports whether each receiving rank combines the whole call.
func (x *Path) oneShot(op *operation) bool {
	return op.block() <= min(oneShotBytes, x.exchange.slotBytes, x.exchange.scratchBytes())
}

// reduction enqueues AllReduce or Reduce. The ranks in result get the result.
func (x *Path) reduction(op *operation, result rankSet) {
	c, k := x.cut(op, 1)
	p := rounds{chunks: k, owners: x.everyone(), readers: result}
	if x.oneShot(op) {
		x.rounds(op, &p, func(i int) {
			if i == 0 {
				x.bring(op, 0, op.call.Send, op.block())
			} else if result.has(x.me) {
				x.sumInto(op, op.call.Recv, x.exchange.scratch(), i-1, 0, 0, c.count)
			}
		})
		return
	}
	p.readers, p.result = x.everyone(), result
	size := op.element()
	x.rounds(op, &p, func(i int) {
		if i >= 2 && result.has(x.me) {
			off, n := c.at(i - 2)
			x.fetchParts(op, i-2, off, n)
		}
		if i >= 1 && i <= k {
			off, n := c.at(i - 1)
			x.combinePart(op, result, i-1, off, n)
		}
		if i < k && op.lentSend == nil {
			off, n := c.at(i)
			x.bring(op, i, unsafe.Add(op.call.Send, off*size), n*size)
		}
	})
}

// stores reports whether this rank's kernels store results of a second stage in its receive buffer.
func (op *operation) stores() bool { return !op.bounce && lendAligned(op.call.Recv) }

// combinePart adds the reduction of this rank's part of a chunk. It goes to this rank's own receive buffer and to the
// buffers that peers lend. Peers that lend none copy it from the slot.
func (x *Path) combinePart(op *operation, result rankSet, round int, off, n int64) {
	size := op.element()
	from, to := x.part(n, x.me), x.part(n, x.me+1)
	if from == to {
		return
	}
	inSlot := unsafe.Add(x.slotAt(x.me, round), from*size)
	k := x.sum(op, inSlot, round, from*size, (off+from)*size, to-from)
	if result.has(x.me) && op.stores() {
		k.Dst, k.Spare = unsafe.Add(op.call.Recv, (off+from)*size), inSlot
	}
	k.TargetOffset = k.Offset
	result.without(x.me).each(func(r int) {
		if op.look.has(r) {
			k.Targets[k.NumTargets] = x.exchange.said(r, x.me, wordRecv)
		}
		k.NumTargets++ // nil if rank r lends no buffer
	})
}

// fetchParts adds copies of the parts of a chunk that no kernel has stored in the receive buffer.
func (x *Path) fetchParts(op *operation, round int, off, n int64) {
	size := op.element()
	for i := range x.n {
		r := (x.me + i) % x.n
		if i == 0 && op.stores() || i > 0 && op.lentRecv != nil {
			continue
		}
		from, to := x.part(n, r)*size, x.part(n, r+1)*size
		x.move(op, unsafe.Add(op.call.Recv, off*size+from), unsafe.Add(x.slotAt(r, round), from), to-from)
	}
}

func (x *Path) reduceScatter(op *operation) {
	c, k := x.cut(op, int64(x.n))
	size := op.element()
	x.rounds(op, &rounds{chunks: k, owners: x.everyone(), readers: x.everyone()}, func(i int) {
		if i >= 1 {
			off, n := c.at(i - 1)
			inSlot := int64(x.me) * n * size
			x.sumInto(op, unsafe.Add(op.call.Recv, off*size), unsafe.Add(x.slotAt(x.me, i-1), inSlot), i-1, inSlot,
				int64(x.me)*op.block()+off*size, n)
		}
		if i < k {
			x.bringPieces(op, x.everyone(), i, c)
		}
	})
}

// distribute enqueues AlltoAll or Scatter: every rank gets its piece from each owner.
func (x *Path) distribute(op *operation, p rounds) {
	c, k := x.cut(op, int64(x.n))
	p.chunks = k
	size := op.element()
	x.rounds(op, &p, func(i int) {
		if i >= 1 {
			off, n := c.at(i - 1)
			x.fetch(op, p.owners, i-1, int64(x.me)*n*size, int64(x.me)*op.block()+off*size, off*size, n*size)
		}
		if i < k && p.owners.has(x.me) {
			off, n := c.at(i)
			if !op.call.InPlace() {
				x.move(op, unsafe.Add(op.call.Recv, op.own(x.me)+off*size),
					unsafe.Add(op.call.Send, int64(x.me)*op.block()+off*size), n*size)
			}
			x.bringPieces(op, x.everyone().without(x.me), i, c)
		}
	})
}

// spread enqueues AllGather, Broadcast or Gather: the readers get the whole block of each owner.
func (x *Path) spread(op *operation, p rounds) {
	c, k := x.cut(op, 1)
	p.chunks = k
	size := op.element()
	x.rounds(op, &p, func(i int) {
		if i >= 1 && p.readers.has(x.me) {
			off, n := c.at(i - 1)
			x.fetch(op, p.owners, i-1, 0, off*size, off*size, n*size)
		}
		if i < k && p.owners.has(x.me) {
			off, n := c.at(i)
			from := unsafe.Add(op.call.Send, off*size)
			if p.readers.has(x.me) && !op.call.InPlace() {
				x.move(op, unsafe.Add(op.call.Recv, op.own(x.me)+off*size), from, n*size)
			}
			if op.lentSend == nil && p.gives(i, x.me) != 0 {
				x.bring(op, i, from, n*size)
			}
		}
	})
}

// own returns the byte at which a rank's block begins in the receive buffer.
func (op *operation) own(rank int) int64 {
	switch op.call.Kind {
	case calls.AllToAll, calls.AllGather, calls.Gather:
		return int64(rank) * op.block()
	default:
		return 0
	}
}

// bring adds the copy of a contribution to the slot of a round.
func (x *Path) bring(op *operation, round int, src unsafe.Pointer, bytes int64) {
	x.lay(op, x.slotAt(x.me, round), src, bytes)
}

// bringPieces adds copies of this rank's pieces of a chunk for some ranks, unless they read them in its send buffer.
func (x *Path) bringPieces(op *operation, to rankSet, round int, c chunks) {
	if op.lentSend != nil {
		return
	}
	off, n := c.at(round)
	size := op.element()
	for r := 0; r < x.n; {
		pieces := int64(1)
		if n == c.count { // neighbours are one piece
			for to.has(r) && to.has(r+int(pieces)) {
				pieces++
			}
		}
		if to.has(r) {
			x.lay(op, unsafe.Add(x.slotAt(x.me, round), int64(r)*n*size),
				unsafe.Add(op.call.Send, int64(r)*op.block()+off*size), pieces*n*size)
		}
		r += int(pieces)
	}
}

// lay adds a copy of a contribution. It multiplies the contribution by this rank's factor if the operator is
// OpPreMulSum.
func (x *Path) lay(op *operation, dst, src unsafe.Pointer, bytes int64) {
	if op.plain || x.n == 1 && !op.scaled() {
		x.queue.copy(dst, src, bytes)
		src = dst
	}
	if !op.scaled() {
		if dst != src {
			x.queue.job(op.call, device.Copy{Dst: dst, Src: src}, bytes)
		}
		return
	}
	scale, err := stream.ScaleOf(op.call)
	if err != nil {
		x.queue.err = err
		return
	}
	x.queue.job(op.call, device.Copy{Dst: dst, Src: src, Scaled: true}, bytes)
	x.queue.kernel.Scale = scale
}

// move adds a copy from a buffer of this rank or a slot.
func (x *Path) move(op *operation, dst, src unsafe.Pointer, bytes int64) {
	if op.bounce || op.plain {
		x.queue.copy(dst, src, bytes)
		return
	}
	x.queue.job(op.call, device.Copy{Dst: dst, Src: src}, bytes)
}

// fetch adds copies of the owners' contributions to a chunk: from the lent send buffer at byte inSend, or from the slot
// at byte inSlot, to byte off of the block in the receive buffer.
func (x *Path) fetch(op *operation, owners rankSet, round int, inSlot, inSend, off, bytes int64) {
	for i := 1; i < x.n; i++ {
		r := (x.me + i) % x.n
		if !owners.has(r) {
			continue
		}
		c := device.Copy{Dst: unsafe.Add(op.call.Recv, op.own(r)+off), Src: unsafe.Add(x.slotAt(r, round), inSlot)}
		if op.look.has(r) {
			c.Found, c.Offset = x.exchange.said(r, x.me, wordSend), inSend
		}
		x.find(op.call, c, op.tag(), bytes, op.bounce, x.exchange.scratch(), x.exchange.scratchBytes())
	}
}

// find adds a copy whose source may be in a lent buffer. If kernels cannot store at its destination, they store in
// room, of size bytes, and the driver copies from there.
func (x *Path) find(
	call *calls.Call, c device.Copy, tag uint64, bytes int64, bounce bool, room unsafe.Pointer, size int64,
) {
	switch {
	case !bounce:
		x.queue.job(call, c, bytes)
		x.queue.kernel.Tag = tag
	case c.Found == nil:
		x.queue.copy(c.Dst, c.Src, bytes)
	default:
		for done := int64(0); done < bytes; done += size {
			n := min(size, bytes-done)
			x.queue.job(call, device.Copy{Dst: room, Src: unsafe.Add(c.Src, done), Found: c.Found, Offset: c.Offset + done}, n)
			x.queue.kernel.Tag = tag
			x.queue.copy(unsafe.Add(c.Dst, done), room, n)
		}
	}
}

// sumInto adds the reduction of the contributions. If kernels cannot store the result at dst, they store it in room,
// and the driver copies from there.
func (x *Path) sumInto(op *operation, dst, room unsafe.Pointer, round int, inSlot, inSend, count int64) {
	if !op.bounce {
		room = dst
	}
	x.sum(op, room, round, inSlot, inSend, count)
	x.queue.copy(dst, room, count*op.element())
}

// sum adds the reduction of the contributions of all ranks in rank order. The kernel reads a contribution from the
// rank's slot at byte inSlot, or from a lent send buffer at byte inSend.
func (x *Path) sum(op *operation, dst unsafe.Pointer, round int, inSlot, inSend, count int64) *device.Reduction {
	call := op.call
	x.queue.begin(call)
	k := &x.queue.kernel
	k.Dst, k.N, k.Count, k.Op, k.Tag, k.Offset = dst, x.n, count, call.Op, op.tag(), inSend
	switch call.Op {
	case calls.OpPreMulSum:
		k.Op = datatype.Sum
	case datatype.Avg:
		k.Scale, k.Divisor = device.Average(call.Type, x.n)
	}
	for r := range x.n {
		k.Sources[r] = unsafe.Add(x.slotAt(r, round), inSlot)
		if op.look.has(r) {
			k.Found[r] = x.exchange.said(r, x.me, wordSend)
		}
	}
	if op.lentSend != nil {
		k.Sources[x.me] = unsafe.Add(op.call.Send, inSend)
	}
	return k
}

// scaled reports whether contributions are multiplied by a factor, of which each rank may have another one.
func (op *operation) scaled() bool {
	return calls.Kinds[op.call.Kind].Reduces && op.call.Op == calls.OpPreMulSum
}
