package exec

import (
	"errors"
	"fmt"

	"lightpath/collectives/program"
	"lightpath/collectives/wire"
)

// setHeader sets the fields that all frames of a send share.
func (t *Task) setHeader(h *wire.Header, in *program.Instruction) {
	op, step, sig := t.identity(in, t.sendBase, in.Src)
	*h = wire.Header{
		Comm: t.call.Comm, Op: op, Step: step, Epoch: t.frameEpoch(in), Signature: sig,
		Src: uint16(t.prog.Rank), Dst: uint16(in.Peer), Plane: uint16(in.Plane),
	}
}

// identity returns the operation, step and signature in the frames of an instruction. In a point-to-point program, the
// operation is the number of the message, and the signature is a hash of its size and of the size of the whole message.
// base is the number of the call's first message by rank, and g the memory of the message.
func (t *Task) identity(in *program.Instruction, base []uint64, g []program.Segment) (op uint64, step, sig uint32) {
	if !t.prog.P2P {
		return t.call.Op, uint32(in.Step), t.prog.Signature
	}
	m := g[0].Msg
	return pairBit | (base[in.Peer] + uint64(in.Step)), 0,
		program.Signature(uint64(t.prog.MsgBytes[m]), uint64(t.prog.MsgWhole[m]))
}

// frameEpoch returns the epoch of the frames of a send or receive: that of their circuit or, if the kernel forwards, of
// their whole route.
func (t *Task) frameEpoch(in *program.Instruction) uint32 {
	if t.lanes[in.Plane].steer != nil {
		return t.epoch(int(in.Plane), in.Route)
	}
	return t.epoch(int(in.Plane), in.Epoch)
}

// checkFrame compares a frame with the next receive from its source. It returns false without an error if the frame
// belongs to a later call of this rank; the frame then stays in the plane.
func (t *Task) checkFrame(in *program.Instruction, id program.ID, h *wire.Header, length int) (bool, error) {
	wantOp, step, sig := t.identity(in, t.recvBase, in.Dst)
	if h.Comm != t.call.Comm {
		return false, t.badFrame(in, h, ErrForeignFrame)
	}
	if h.Op != wantOp {
		switch {
		case (h.Op^wantOp)&pairBit != 0:
			// The frame belongs to a message and this call is a collective, or the reverse.
			return false, nil
		case h.Op < wantOp:
			return false, t.badFrame(in, h, ErrSequence)
		case t.prog.P2P:
			// The expected message has no part on this plane, so its size differs.
			return false, t.badFrame(in, h, ErrSignature)
		}
		return false, nil
	}
	left := in.Bytes - t.bytesDone[id]
	switch {
	case h.Signature != sig:
		return false, t.badFrame(in, h, ErrSignature)
	case int32(h.Src) != in.Peer || int(h.Dst) != t.prog.Rank || int16(h.Plane) != in.Plane:
		return false, t.badFrame(in, h, ErrForeignFrame)
	case h.Step != step:
		return false, t.badFrame(in, h, ErrSequence)
	case h.Epoch != t.frameEpoch(in):
		return false, t.badFrame(in, h, ErrEpoch)
	case h.Offset != uint64(in.Base+t.bytesDone[id]) || int(h.Length) != length || int64(length) > left ||
		length == 0 || (t.bytesDone[id]+int64(length))%t.prog.ElemSize != 0:
		return false, t.badFrame(in, h, ErrOffset)
	}
	return true, nil
}

// forwardOf returns the index in l.fwd of the forward of a frame for another rank, or -1 if that is in a later stage or
// call.
func (t *Task) forwardOf(l *lane, h *wire.Header, length int) (int, error) {
	first := &t.code[l.fwd[0]]
	if h.Comm != t.call.Comm {
		return -1, t.badFrame(first, h, ErrForeignFrame)
	}
	if h.Op != t.call.Op {
		if h.Op < t.call.Op {
			return -1, t.badFrame(first, h, ErrSequence)
		}
		return -1, nil
	}
	if h.Signature != t.prog.Signature {
		return -1, t.badFrame(first, h, ErrSignature)
	}
	for i, id := range l.fwd {
		in := &t.code[id]
		if in.Peer != int32(h.Src) || in.FlowDst != int32(h.Dst) {
			continue
		}
		switch {
		case h.Step != uint32(in.Step):
			return -1, t.badFrame(in, h, ErrSequence)
		case h.Epoch != t.epoch(l.id, in.InEpoch):
			return -1, t.badFrame(in, h, ErrEpoch)
		case h.Offset != uint64(in.Base+t.bytesDone[id]), int(h.Length) != length, length == 0,
			int64(length) > in.Bytes-t.bytesDone[id]:
			return -1, t.badFrame(in, h, ErrOffset)
		}
		return i, nil
	}
	if !t.forwardsLater(l, h) {
		return -1, t.badFrame(first, h, ErrForeignFrame)
	}
	return -1, nil
}

// forwardsLater reports whether a later stage of the lane forwards the flow of the frame.
func (t *Task) forwardsLater(l *lane, h *wire.Header) bool {
	stages := t.prog.Lanes[l.id].Stages
	for s := l.stage + 1; s < len(stages); s++ {
		for _, id := range stages[s].Forwards {
			if in := &t.code[id]; in.Peer == int32(h.Src) && in.FlowDst == int32(h.Dst) {
				return true
			}
		}
	}
	return false
}

// badFrame returns an error that describes an unexpected frame.
func (t *Task) badFrame(in *program.Instruction, h *wire.Header, err error) error {
	if errors.Is(err, ErrSignature) && t.prog.P2P {
		return fmt.Errorf("exec: message %d from rank %d to rank %d: rank %d receives %d bytes, rank %d sends another "+
			"number (plane %d: %d bytes at offset %d of message %d): %w",
			t.recvBase[in.Peer]+uint64(in.Step), in.Peer, t.prog.Rank, t.prog.Rank, t.prog.MsgWhole[in.Dst[0].Msg],
			in.Peer, in.Plane, h.Length, h.Offset, h.Op&^pairBit, err)
	}
	if errors.Is(err, ErrSignature) {
		return fmt.Errorf("exec: rank %d made a different call than rank %d (plane %d, operation %d): %w",
			h.Src, t.prog.Rank, in.Plane, h.Op&^pairBit, err)
	}
	return fmt.Errorf("exec: rank %d plane %d operation %d step %d epoch %d: from rank %d to %d a frame of "+
		"communicator %#x plane %d operation %d step %d epoch %d offset %d length %d: %w",
		t.prog.Rank, in.Plane, t.call.Op, in.Step, t.epoch(int(in.Plane), in.Epoch), h.Src, h.Dst,
		h.Comm, h.Plane, h.Op&^pairBit, h.Step, h.Epoch, h.Offset, h.Length, err)
}

// failAt adds rank and instruction to an error of a plane.
func (t *Task) failAt(in *program.Instruction, err error) error {
	return fmt.Errorf("exec: rank %d, %s: %w", t.prog.Rank, t.describe(in), err)
}
