package kernel

import (
	"encoding/binary"
	"unsafe"

	"github.com/cilium/ebpf/asm"
)

// Forwarded frames are also counted by operation, for transports whose frames name their operation. So a rank knows
// when it has forwarded all frames of an operation, even after other users of the port. The payload of such a datagram
// begins so:
//
//	0 anything u32     4 tag u32, 24 bits, little endian     8 "LPTF"     ... 72 bytes in all
//
// One word holds the tag in its high 24 bits, and the number of bytes after those 72 in its low 40. It changes by
// compare-and-swap, since several processors handle frames at the same time.
const (
	tallyHead   = 72
	tallyTag    = 4
	tallyMagic  = "LPTF"
	tallyShift  = 40
	tallyTagAnd = 1<<24 - 1
	// tallyTries bounds the attempts to change the word. It exceeds the number of processors that try at the same time.
	tallyTries = 16
)

const (
	atOffered   = unsafe.Offsetof(Counters{}.rank) + unsafe.Offsetof(rankCounters{}.offered)
	atTransitOp = unsafe.Offsetof(Counters{}.rank) + unsafe.Offsetof(rankCounters{}.transitOp)
)

// tally counts a UDP frame that enters the queues of a rank's port. If another rank has sent the frame, tally adds it
// to the operation. R6 is the frame, R8 the port's counters; the frame's headers are on the stack. It ends with a jump
// to done.
func tally(plane, rank int, done string) asm.Instructions {
	low, high, tail := macHalves(plane, rank)
	in := program(
		count(atOffered, asm.R0),
		asm.Instructions{
			asm.LoadMem(asm.R1, asm.RFP, offSrcTail, asm.Half), asm.JNE.Imm(asm.R1, tail, "passed on"),
			asm.LoadMem(asm.R1, asm.RFP, offSrcHead, asm.Half), asm.JNE.Imm(asm.R1, low, "passed on"),
			asm.LoadMem(asm.R1, asm.RFP, offSrcHead+2, asm.Half), asm.JEq.Imm(asm.R1, high, done),
		},
		label("passed on", headerLength(asm.R9)),
		asm.Instructions{
			asm.Mov.Reg(asm.R1, asm.R6), asm.Mov.Reg(asm.R2, asm.R9), asm.Add.Imm(asm.R2, ethHeader+8+tallyTag),
			asm.Mov.Reg(asm.R3, asm.RFP), asm.Add.Imm(asm.R3, offKey), asm.Mov.Imm(asm.R4, 8),
			asm.FnSkbLoadBytes.Call(),
			asm.JNE.Imm(asm.R0, 0, done),
			asm.LoadMem(asm.R1, asm.RFP, offKey+4, asm.Word),
			asm.JNE.Imm(asm.R1, int32(binary.NativeEndian.Uint32([]byte(tallyMagic))), done),
			asm.LoadMem(asm.R7, asm.RFP, offKey, asm.Word), asm.HostTo(asm.LE, asm.R7, asm.Word),
			asm.And.Imm(asm.R7, tallyTagAnd),
			asm.LoadMem(asm.R2, asm.RFP, offLength, asm.Half), asm.HostTo(asm.BE, asm.R2, asm.Half),
			asm.Add.Imm(asm.R9, 8+tallyHead), asm.JLT.Reg(asm.R2, asm.R9, done),
			asm.Sub.Reg(asm.R2, asm.R9),                                                               // bytes
			asm.Mov.Reg(asm.R3, asm.R7), asm.LSh.Imm(asm.R3, tallyShift), asm.Add.Reg(asm.R3, asm.R2), // the first of its tag
			asm.LoadMem(asm.R0, asm.R8, int16(atTransitOp), asm.DWord),
		},
	)
	for range tallyTries {
		in = append(in,
			asm.Mov.Reg(asm.R4, asm.R3),
			asm.Mov.Reg(asm.R1, asm.R0), asm.RSh.Imm(asm.R1, tallyShift), asm.Instruction{OpCode: asm.JNE.Op(asm.RegSource),
				Dst: asm.R1, Src: asm.R7, Offset: 2},
			asm.Mov.Reg(asm.R4, asm.R0), asm.Add.Reg(asm.R4, asm.R2),
			asm.Mov.Reg(asm.R5, asm.R0),
			compareAndSwap(asm.R8, asm.R4, int16(atTransitOp)),
			asm.JEq.Reg(asm.R0, asm.R5, done),
		)
	}
	return in
}

// compareAndSwap stores new if a double word equals R0, and sets R0 to its previous value. It sets Constant itself: the
// library encodes the kind of an atomic operation from Constant and not from the opcode, so it would encode an
// addition.
func compareAndSwap(base, new asm.Register, offset int16) asm.Instruction {
	in := asm.CmpXchg.Mem(base, new, asm.DWord, offset)
	in.Constant = int64(asm.CmpXchg >> 8)
	return in
}
