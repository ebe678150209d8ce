package peer

import (
	"errors"
	"unsafe"

	"lightpath/shim/calls"
)

// oneShotBytes is the largest chunk, in bytes, that each receiving rank combines whole, in one exchange. A larger
// chunk takes two exchanges.
const oneShotBytes = 256 << 10

// collective enqueues a collective. Contributions go through the slots of their ranks in chunks. Chunk k has the same
// number on all ranks, and uses slot k mod numSlots.
func (x *Path) collective(op *operation) error {
	if x.n == 1 {
		return x.alone(op)
	}
	if err := x.consider(op); err != nil {
		return err
	}
	err := x.exchangeOf(op)
	x.settle(op)
	return err
}

func (x *Path) exchangeOf(op *operation) error {
	call := op.call
	switch call.Kind {
	case calls.AllReduce:
		return x.reduction(op, x.everyone())
	case calls.Reduce:
		return x.reduction(op, one(int(call.Peer)))
	case calls.ReduceScatter:
		return x.reduceScatter(op)
	case calls.AllGather:
		return x.spread(op, x.everyone(), x.everyone())
	case calls.Broadcast:
		return x.spread(op, one(int(call.Peer)), x.everyone())
	case calls.Gather:
		return x.spread(op, x.everyone(), one(int(call.Peer)))
	case calls.Scatter:
		return x.distribute(op, one(int(call.Peer)))
	default:
		return x.distribute(op, x.everyone())
	}
}

// alone enqueues a collective of a communicator with one rank.
func (x *Path) alone(op *operation) error {
	_, bytes := op.call.Extents()
	return x.lay(op.call, op.recv, op.send, bytes)
}

// element and block return the bytes of an element, and of the call's block.
func (op *operation) element() int64 { return int64(op.call.Type.Size()) }
func (op *operation) block() int64   { return int64(op.call.Count) * op.element() }

// partAlign is the alignment of parts and pieces of chunks, in elements, so that kernels find them aligned.
const partAlign = 16

// part returns the element at which a rank's part of a chunk of count elements begins.
func (x *Path) part(count int64, rank int) int64 {
	if rank == x.n {
		return count
	}
	return count * int64(rank) / int64(x.n) &^ (partAlign - 1)
}

// reduction enqueues AllReduce or Reduce. The ranks in result get the result.
func (x *Path) reduction(op *operation, result rankSet) error {
	size, count := op.element(), int64(op.call.Count)
	most := x.slotBytes / size &^ (partAlign - 1)
	for k, off := 0, int64(0); off < count; k, off = k+1, off+most {
		n := min(most, count-off)
		step := x.twoShot
		if n*size <= oneShotBytes {
			step = x.oneShot
		}
		if err := step(op, result, k%numSlots, off, n); err != nil {
			return err
		}
	}
	return nil
}

// oneShot enqueues a chunk that each rank in result combines whole.
func (x *Path) oneShot(op *operation, result rankSet, slot int, off, n int64) error {
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
	if err := x.reduceTo(op, off*size, slot, 0, 0, n, false); err != nil {
		return err
	}
	x.giveBack(stageIn, slot, x.everyone())
	return nil
}

// twoShot enqueues a chunk of which every rank combines its part. A rank stores its part in its own receive buffer and
// in the receive buffers that peers lend. The peers that lend none copy it from the rank's slot.
func (x *Path) twoShot(op *operation, result rankSet, slot int, off, n int64) error {
	size := op.element()
	x.claim(slot, x.everyone(), result)
	if err := x.bring(op, slot, x.slotAt(x.me, slot), unsafe.Add(op.send, off*size), n*size); err != nil {
		return err
	}
	x.give(stageIn, slot, x.everyone())
	x.take(stageIn, slot, x.everyone())
	mine := result.has(x.me)
	whole := mine && !op.bounce && lendAligned(op.recv) // the kernel stores in the receive buffer
	if err := x.combinePart(op, result, whole, slot, off, n); err != nil {
		return err
	}
	x.giveBack(stageIn, slot, x.everyone())
	x.give(stagePart, slot, result)
	if !mine {
		return nil
	}
	x.take(stagePart, slot, x.everyone())
	for i := range x.n {
		r := (x.me + i) % x.n // each rank starts at itself, so peers do not all read one slot first
		if i == 0 && whole || i > 0 && op.lentRecv != nil {
			continue // a kernel has stored it there
		}
		from, to := x.part(n, r)*size, x.part(n, r+1)*size
		if err := x.copy(unsafe.Add(op.recv, off*size+from), unsafe.Add(x.slotAt(r, slot), from), to-from); err != nil {
			return err
		}
	}
	x.giveBack(stagePart, slot, x.everyone())
	return nil
}

// combinePart enqueues the kernel that combines this rank's part of a chunk.
func (x *Path) combinePart(op *operation, result rankSet, whole bool, slot int, off, n int64) error {
	from, to, size := x.part(n, x.me), x.part(n, x.me+1), op.element()
	inSlot := unsafe.Add(x.slotAt(x.me, slot), from*size)
	k := x.sum(op, inSlot, slot, from*size, (off+from)*size, to-from, true)
	if whole {
		k.Dst, k.Spare = unsafe.Add(op.recv, (off+from)*size), inSlot
	}
	k.TargetOffset = k.Offset
	for r := range x.n {
		if r == x.me || !result.has(r) {
			continue
		}
		if op.look.has(r) {
			k.Targets[k.NumTargets] = x.said(r, slot, x.me, wordRecv)
		}
		k.NumTargets++ // nil if rank r lends no buffer
	}
	return x.combine()
}

// bring makes this rank's contribution to a chunk readable: in its lent send buffer, or copied to its slot.
func (x *Path) bring(op *operation, slot int, dst, src unsafe.Pointer, bytes int64) error {
	x.speak(op, slot)
	if op.lentSend != nil {
		return nil
	}
	return x.lay(op.call, dst, src, bytes)
}

// reduceTo combines the contributions into the receive buffer at byte off. If kernels cannot write that buffer, the
// result goes through the scratch.
func (x *Path) reduceTo(op *operation, off int64, slot int, inSlot, inSend, n int64, lent bool) error {
	dst := unsafe.Add(op.recv, off)
	if !op.bounce {
		x.sum(op, dst, slot, inSlot, inSend, n, lent)
		return x.combine()
	}
	x.sum(op, x.scratch(), slot, inSlot, inSend, n, lent)
	if err := x.combine(); err != nil {
		return err
	}
	return x.copy(dst, x.scratch(), n*op.element())
}

// pieces calls step for each chunk of a call. The slots of a chunk hold elements off to off+n-1 of each rank's block.
func (x *Path) pieces(op *operation, step func(slot int, off, n int64) error) error {
	count := int64(op.call.Count)
	most := x.slotBytes / op.element() / int64(x.n) &^ (partAlign - 1)
	for k, off := 0, int64(0); off < count; k, off = k+1, off+most {
		if err := step(k%numSlots, off, min(most, count-off)); err != nil {
			return err
		}
	}
	return nil
}

// bringPieces makes this rank's contribution to a chunk readable for a set of ranks. They read it in the lent send
// buffer, or read copies of their pieces in the slot.
func (x *Path) bringPieces(op *operation, to rankSet, slot int, off, n int64) error {
	x.speak(op, slot)
	if op.lentSend != nil {
		return nil
	}
	size, at := op.element(), x.slotAt(x.me, slot)
	if n == int64(op.call.Count) { // the blocks fit as they are
		return x.lay(op.call, at, op.send, int64(x.n)*n*size)
	}
	if to.has(x.me) {
		return x.layRows(op, at, 0, x.n, off, n)
	}
	return errors.Join(x.layRows(op, at, 0, x.me, off, n), x.layRows(op, at, x.me+1, x.n, off, n))
}

// layRows copies this rank's pieces for ranks from to to-1, in one copy if possible.
func (x *Path) layRows(op *operation, at unsafe.Pointer, from, to int, off, n int64) error {
	size := op.element()
	scaled := calls.Kinds[op.call.Kind].Reduces && op.call.Op == calls.OpPreMulSum
	for ; from < to; from++ {
		dst, src := unsafe.Add(at, int64(from)*n*size), unsafe.Add(op.send, int64(from)*op.block()+off*size)
		if !scaled && !op.plain {
			return x.copyRows(dst, n*size, src, op.block(), n*size, to-from)
		}
		if err := x.lay(op.call, dst, src, n*size); err != nil {
			return err
		}
	}
	return nil
}

func (x *Path) reduceScatter(op *operation) error {
	size := op.element()
	return x.pieces(op, func(slot int, off, n int64) error {
		x.claim(slot, x.everyone(), 0)
		if err := x.bringPieces(op, x.everyone(), slot, off, n); err != nil {
			return err
		}
		x.give(stageIn, slot, x.everyone())
		x.take(stageIn, slot, x.everyone())
		if err := x.reduceTo(op, off*size, slot,
			int64(x.me)*n*size, int64(x.me)*op.block()+off*size, n, true); err != nil {
			return err
		}
		x.giveBack(stageIn, slot, x.everyone())
		return nil
	})
}

// distribute enqueues AlltoAll or Scatter: every rank gets its piece from each owner.
func (x *Path) distribute(op *operation, owners rankSet) error {
	size := op.element()
	if owners.has(x.me) && !op.inPlace {
		own := op.recv
		if op.call.Kind == calls.AllToAll {
			own = unsafe.Add(own, int64(x.me)*op.block())
		}
		if err := x.copy(own, unsafe.Add(op.send, int64(x.me)*op.block()), op.block()); err != nil {
			return err
		}
	}
	return x.pieces(op, func(slot int, off, n int64) error {
		if owners.has(x.me) {
			x.claim(slot, x.everyone(), 0)
			if err := x.bringPieces(op, x.everyone().without(x.me), slot, off, n); err != nil {
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
			if op.call.Kind == calls.AllToAll {
				to = unsafe.Add(to, int64(r)*op.block())
			}
			if err := x.fetch(op, to, r, slot,
				int64(x.me)*n*size, int64(x.me)*op.block()+off*size, n*size); err != nil {
				return err
			}
		}
		x.giveBack(stageIn, slot, owners)
		return nil
	})
}

// spread enqueues AllGather, Broadcast or Gather: the readers get the whole block of each owner.
func (x *Path) spread(op *operation, owners, readers rankSet) error {
	size, count := op.element(), int64(op.call.Count)
	blocks := op.call.Kind != calls.Broadcast // the receive buffer has a block for each rank
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
			if err := x.bring(op, slot, x.slotAt(x.me, slot), unsafe.Add(op.send, off*size), n*size); err != nil {
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
			if err := x.fetch(op, to, r, slot, 0, off*size, n*size); err != nil {
				return err
			}
		}
		x.giveBack(stageIn, slot, owners)
	}
	return nil
}
