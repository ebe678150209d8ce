package shim

import "unsafe"

// oneShotBytes is up to where every rank combines all of what all ranks bring, in one exchange instead of two.
const oneShotBytes = 256 << 10

// collective puts a collective on the stream. What a rank brings goes through its slots in chunks; a chunk has number k of the
// collective on all ranks, and slot k mod numSlots.
func (x *direct) collective(op *directOp) error {
	call := op.call
	if x.n == 1 {
		return x.alone(op)
	}
	switch call.Kind {
	case CallAllReduce:
		return x.reduction(op, x.everyone())
	case CallReduce:
		return x.reduction(op, one(int(call.Peer)))
	case CallReduceScatter:
		return x.reduceScatter(op)
	case CallAllGather:
		return x.spread(op, x.everyone(), x.everyone())
	case CallBroadcast:
		return x.spread(op, one(int(call.Peer)), x.everyone())
	case CallGather:
		return x.spread(op, x.everyone(), one(int(call.Peer)))
	case CallScatter:
		return x.distribute(op, one(int(call.Peer)))
	default:
		return x.distribute(op, x.everyone())
	}
}

// alone is any collective of one rank.
func (x *direct) alone(op *directOp) error {
	_, bytes := op.call.extents()
	return x.lay(op.call, op.recv, op.send, bytes)
}

// element and block are the bytes of an element, and of the call's block.
func (op *directOp) element() int64 { return int64(op.call.Type.Size()) }
func (op *directOp) block() int64   { return int64(op.call.Count) * op.element() }

// partAlign is what parts and pieces of chunks begin at multiples of, in elements, so that kernels find them aligned.
const partAlign = 16

// part is where a rank's part of a chunk of count elements begins.
func (x *direct) part(count int64, rank int) int64 {
	if rank == x.n {
		return count
	}
	return count * int64(rank) / int64(x.n) &^ (partAlign - 1)
}

// reduction is AllReduce and Reduce: result has the ranks that get it.
func (x *direct) reduction(op *directOp, result rankSet) error {
	size, count := op.element(), int64(op.call.Count)
	most := x.slotBytes / size &^ (partAlign - 1)
	for k, off := 0, int64(0); off < count; k, off = k+1, off+most {
		n := min(most, count-off)
		step := x.twoShot
		if x.n == 2 || n*size <= oneShotBytes {
			step = x.oneShot
		}
		if err := step(op, result, k%numSlots, off, n); err != nil {
			return err
		}
	}
	return nil
}

// oneShot combines a chunk at every rank that gets it.
func (x *direct) oneShot(op *directOp, result rankSet, slot int, off, n int64) error {
	size := op.element()
	x.claim(slot, result, 0)
	if err := x.lay(op.call, x.slotAt(x.me, slot), unsafe.Add(op.send, off*size), n*size); err != nil {
		return err
	}
	x.give(stageIn, slot, result)
	if !result.has(x.me) {
		return nil
	}
	x.take(stageIn, slot, x.everyone())
	if err := x.reduceTo(op, off*size, slot, 0, n); err != nil {
		return err
	}
	x.giveBack(stageIn, slot, x.everyone())
	return nil
}

// twoShot has every rank combine its part of a chunk, which whoever gets the result copies.
func (x *direct) twoShot(op *directOp, result rankSet, slot int, off, n int64) error {
	size := op.element()
	x.claim(slot, x.everyone(), result)
	if err := x.lay(op.call, x.slotAt(x.me, slot), unsafe.Add(op.send, off*size), n*size); err != nil {
		return err
	}
	x.give(stageIn, slot, x.everyone())
	x.take(stageIn, slot, x.everyone())
	from, to := x.part(n, x.me), x.part(n, x.me+1)
	if err := x.reduce(op.call, unsafe.Add(x.slotAt(x.me, slot), from*size), slot, from*size, to-from); err != nil {
		return err
	}
	x.giveBack(stageIn, slot, x.everyone())
	x.give(stagePart, slot, result)
	if !result.has(x.me) {
		return nil
	}
	x.take(stagePart, slot, x.everyone())
	for i := range x.n {
		r := (x.me + i) % x.n // nobody first
		from, to := x.part(n, r)*size, x.part(n, r+1)*size
		if err := x.copy(unsafe.Add(op.recv, off*size+from), unsafe.Add(x.slotAt(r, slot), from), to-from); err != nil {
			return err
		}
	}
	x.giveBack(stagePart, slot, x.everyone())
	return nil
}

// reduceTo combines contributions into the receive buffer at byte off, or, where no kernel can write that, by way of the scratch.
func (x *direct) reduceTo(op *directOp, off int64, slot int, in, n int64) error {
	dst := unsafe.Add(op.recv, off)
	if !op.bounce {
		return x.reduce(op.call, dst, slot, in, n)
	}
	if err := x.reduce(op.call, x.scratch(), slot, in, n); err != nil {
		return err
	}
	return x.copy(dst, x.scratch(), n*op.element())
}

// pieces calls step for the chunks of a call whose slots hold a piece of each rank's block, of elements off .. off+n-1.
func (x *direct) pieces(op *directOp, step func(slot int, off, n int64) error) error {
	count := int64(op.call.Count)
	most := x.slotBytes / op.element() / int64(x.n) &^ (partAlign - 1)
	for k, off := 0, int64(0); off < count; k, off = k+1, off+most {
		if err := step(k%numSlots, off, min(most, count-off)); err != nil {
			return err
		}
	}
	return nil
}

// layPieces lays this rank's pieces for the ranks of a set, at once where the blocks fit as they are.
func (x *direct) layPieces(op *directOp, to rankSet, slot int, off, n int64) error {
	size := op.element()
	if n == int64(op.call.Count) {
		return x.lay(op.call, x.slotAt(x.me, slot), op.send, int64(x.n)*n*size)
	}
	for r := range x.n {
		if !to.has(r) {
			continue
		}
		if err := x.lay(op.call, unsafe.Add(x.slotAt(x.me, slot), int64(r)*n*size), unsafe.Add(op.send, int64(r)*op.block()+off*size), n*size); err != nil {
			return err
		}
	}
	return nil
}

func (x *direct) reduceScatter(op *directOp) error {
	size := op.element()
	return x.pieces(op, func(slot int, off, n int64) error {
		x.claim(slot, x.everyone(), 0)
		if err := x.layPieces(op, x.everyone(), slot, off, n); err != nil {
			return err
		}
		x.give(stageIn, slot, x.everyone())
		x.take(stageIn, slot, x.everyone())
		if err := x.reduceTo(op, off*size, slot, int64(x.me)*n*size, n); err != nil {
			return err
		}
		x.giveBack(stageIn, slot, x.everyone())
		return nil
	})
}

// distribute is AlltoAll and Scatter: every rank gets its piece of what the owners have.
func (x *direct) distribute(op *directOp, owners rankSet) error {
	size := op.element()
	if owners.has(x.me) && !op.inPlace {
		own := op.recv
		if op.call.Kind == CallAllToAll {
			own = unsafe.Add(own, int64(x.me)*op.block())
		}
		if err := x.copy(own, unsafe.Add(op.send, int64(x.me)*op.block()), op.block()); err != nil {
			return err
		}
	}
	return x.pieces(op, func(slot int, off, n int64) error {
		if owners.has(x.me) {
			x.claim(slot, x.everyone(), 0)
			if err := x.layPieces(op, x.everyone().without(x.me), slot, off, n); err != nil {
				return err
			}
			x.give(stageIn, slot, x.everyone())
		}
		x.take(stageIn, slot, owners)
		for i := 1; i < x.n; i++ {
			r := (x.me + i) % x.n
			if !owners.has(r) {
				continue
			}
			to := unsafe.Add(op.recv, off*size)
			if op.call.Kind == CallAllToAll {
				to = unsafe.Add(to, int64(r)*op.block())
			}
			if err := x.copy(to, unsafe.Add(x.slotAt(r, slot), int64(x.me)*n*size), n*size); err != nil {
				return err
			}
		}
		x.giveBack(stageIn, slot, owners)
		return nil
	})
}

// spread is AllGather, Broadcast and Gather: the readers get the whole block of each owner.
func (x *direct) spread(op *directOp, owners, readers rankSet) error {
	size, count := op.element(), int64(op.call.Count)
	blocks := op.call.Kind != CallBroadcast // in the receive buffer, one of each rank
	if owners.has(x.me) && readers.has(x.me) && !op.inPlace {
		own := op.recv
		if blocks {
			own = unsafe.Add(own, int64(x.me)*op.block())
		}
		if err := x.copy(own, op.send, op.block()); err != nil {
			return err
		}
	}
	most := x.slotBytes / size
	for k, off := 0, int64(0); off < count; k, off = k+1, off+most {
		slot, n := k%numSlots, min(most, count-off)
		if owners.has(x.me) && readers.without(x.me) != 0 {
			x.claim(slot, readers, 0)
			if err := x.copy(x.slotAt(x.me, slot), unsafe.Add(op.send, off*size), n*size); err != nil {
				return err
			}
			x.give(stageIn, slot, readers)
		}
		if !readers.has(x.me) {
			continue
		}
		x.take(stageIn, slot, owners)
		for i := 1; i < x.n; i++ {
			r := (x.me + i) % x.n
			if !owners.has(r) {
				continue
			}
			to := unsafe.Add(op.recv, off*size)
			if blocks {
				to = unsafe.Add(to, int64(r)*op.block())
			}
			if err := x.copy(to, x.slotAt(r, slot), n*size); err != nil {
				return err
			}
		}
		x.giveBack(stageIn, slot, owners)
	}
	return nil
}
