package peer

import (
	"errors"
	"unsafe"

	"lightpath/shim/calls"
)

// oneShotBytes is up to where every rank combines all of what all ranks bring, in one exchange instead of two.
const oneShotBytes = 256 << 10

// collective puts a collective on the stream. What a rank brings goes through its slots in chunks; a chunk has number k of the
// collective on all ranks, and slot k mod numSlots.
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

// alone is any collective of one rank.
func (x *Path) alone(op *operation) error {
	_, bytes := op.call.Extents()
	return x.lay(op.call, op.recv, op.send, bytes)
}

// element and block are the bytes of an element, and of the call's block.
func (op *operation) element() int64 { return int64(op.call.Type.Size()) }
func (op *operation) block() int64   { return int64(op.call.Count) * op.element() }

// partAlign is what parts and pieces of chunks begin at multiples of, in elements, so that kernels find them aligned.
const partAlign = 16

// part is where a rank's part of a chunk of count elements begins.
func (x *Path) part(count int64, rank int) int64 {
	if rank == x.n {
		return count
	}
	return count * int64(rank) / int64(x.n) &^ (partAlign - 1)
}

// reduction is AllReduce and Reduce: result has the ranks that get it.
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

// oneShot combines a chunk at every rank that gets it.
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

// twoShot has every rank combine its part of a chunk, and store it where it is to be: in its own receive buffer, in those that others
// lend, and in its slot, from which the rest copy it.
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
		r := (x.me + i) % x.n // nobody first
		if i == 0 && whole || i > 0 && op.lentRecv != nil {
			continue // it is there
		}
		from, to := x.part(n, r)*size, x.part(n, r+1)*size
		if err := x.copy(unsafe.Add(op.recv, off*size+from), unsafe.Add(x.slotAt(r, slot), from), to-from); err != nil {
			return err
		}
	}
	x.giveBack(stagePart, slot, x.everyone())
	return nil
}

// combinePart combines this rank's part of a chunk.
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
		k.NumTargets++ // nil: it does not lend its buffer
	}
	return x.combine()
}

// bring gives the others what this rank brings to a chunk: its own buffer, or a copy in its slot.
func (x *Path) bring(op *operation, slot int, dst, src unsafe.Pointer, bytes int64) error {
	x.speak(op, slot)
	if op.lentSend != nil {
		return nil
	}
	return x.lay(op.call, dst, src, bytes)
}

// reduceTo combines contributions into the receive buffer at byte off, or, where no kernel can write that, by way of the scratch.
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

// pieces calls step for the chunks of a call whose slots hold a piece of each rank's block, of elements off .. off+n-1.
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

// bringPieces gives the ranks of a set what this rank brings to a chunk: its own buffer, or copies of their pieces in its slot.
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

// layRows lays this rank's pieces for some ranks, at once where one copy does it.
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
		if err := x.reduceTo(op, off*size, slot, int64(x.me)*n*size, int64(x.me)*op.block()+off*size, n, true); err != nil {
			return err
		}
		x.giveBack(stageIn, slot, x.everyone())
		return nil
	})
}

// distribute is AlltoAll and Scatter: every rank gets its piece of what the owners have.
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
			if err := x.fetch(op, to, r, slot, int64(x.me)*n*size, int64(x.me)*op.block()+off*size, n*size); err != nil {
				return err
			}
		}
		x.giveBack(stageIn, slot, owners)
		return nil
	})
}

// spread is AllGather, Broadcast and Gather: the readers get the whole block of each owner.
func (x *Path) spread(op *operation, owners, readers rankSet) error {
	size, count := op.element(), int64(op.call.Count)
	blocks := op.call.Kind != calls.Broadcast // in the receive buffer, one of each rank
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
