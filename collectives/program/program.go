package program

import (
	"lightpath/collectives/schedule"
	"lightpath/plans/circuit"
)

// Kind is the kind of an instruction.
type Kind uint8

// The kinds of instructions.
const (
	// Copy is local: Dst = Src, multiplied by the call's factor if Scale is set.
	Copy Kind = iota
	// LocalReduce is local: Dst = Dst op Src.
	LocalReduce
	// Send sends the bytes of Src to rank Peer, the destination of the flow, on its plane.
	Send
	// Recv receives bytes of the flow from rank Peer into Dst.
	Recv
	// RecvReduce receives bytes of the flow from rank Peer and combines them: Dst = Dst op bytes.
	RecvReduce
	// Forward forwards Bytes bytes of the flow Peer -> FlowDst on its plane.
	Forward
	// Reconfigure switches the plane to Configs[Plane][Config], which begins the next epoch.
	Reconfigure
)

// Transfers reports whether instructions of the kind move data of this rank over a plane.
func (k Kind) Transfers() bool { return k == Send || k == Recv || k == RecvReduce }

// Messages is the Segment.Buf of point-to-point programs. The segment then is part of a message (see [BuildP2P]) and
// not of one of the buffers of a collective.
const Messages = schedule.NumBuffers

// Segment is a byte range of one of the rank's buffers.
type Segment struct {
	Buf schedule.Buffer
	Msg int32 // index of the message if Buf is Messages, otherwise 0
	Off int64 // bytes
	Len int64 // bytes
}

// ID is an index of Program.Code. An instruction depends only on instructions with lower numbers.
type ID int32

// None means no instruction.
const None ID = -1

// Instruction is one instruction of a rank. Copies share Deps and segments, which are read-only.
type Instruction struct {
	Kind    Kind
	Scale   bool  // Copy: multiply by the call's factor
	Plane   int16 // -1 for local instructions
	Step    int32 // step of the schedule; frames carry it
	Peer    int32 // Send: flow destination; Recv*: flow source; Forward: flow source
	FlowDst int32 // Forward: flow destination
	// Base is the offset of the instruction's first byte in the flow's bytes of this step. The pieces of a flow on all
	// planes and entries are consecutive intervals of these bytes.
	Base  int64
	Bytes int64
	Src   []Segment
	Dst   []Segment
	// Init is parallel to Dst, or nil. A RecvReduce computes Dst[i] = Init[i] op bytes if Init[i] is not empty. Init
	// is always in Input, and then no instruction writes to Input.
	Init []Segment
	// Deps are the instructions that must complete before this one accesses memory or sends its first byte.
	Deps []ID
	// Epoch is relative to the plane's epoch at the start of the program. For Send and Forward, it is the epoch in
	// which the circuit from this rank was made; for Recv and RecvReduce, the circuit to this rank. Frames carry the
	// sum of the plane's epoch at the start and Epoch. For Reconfigure it is the epoch that ends.
	Epoch uint32
	// Route is the latest epoch in which a circuit of the flow's route was made, relative as Epoch. It is set for
	// Send, Recv and RecvReduce. If the kernel forwards ([transport.Steerer]), frames carry Route instead of Epoch, and
	// a sender waits until the plane has reached it: no forwarder holds the frames back.
	Route uint32
	// InEpoch is the epoch in which the circuit to this rank was made (Forward).
	InEpoch uint32
	// Config is an index of Configs[Plane]: the target of a Reconfigure, or the map in force for a Send, Recv or
	// RecvReduce.
	Config int32
	// Moves is set if a Reconfigure changes the circuit from this rank. The rank then drains and takes part in the
	// barrier. Otherwise the Reconfigure only keeps the order. Without it, a send of the new map could overtake a forward
	// of the old map on a circuit of both maps. The next forwarder could then neither forward the send nor receive the
	// frames behind it.
	Moves bool
}

// Lane is the order of the instructions of one plane on one rank. TX instructions begin in order: sends per
// destination, forwards in the background. A Reconfigure waits until all earlier TX instructions have completed, and
// have drained if Moves is set. RX instructions complete in order per source.
type Lane struct {
	TX []ID
	RX []ID

	// Derived from TX and RX: index for the executor.

	Stages  []Stage // TX, cut after each Reconfigure
	Sources []ID    // first RX instruction of each source; Program.Next links the others
}

// Stage is the part of a lane's TX up to a reconfiguration.
type Stage struct {
	Sends    []ID   // first Send to each destination; Program.Next links the others
	Forwards []ID   // first Forward of each flow; Program.Next links the others
	TX       []ID   // Sends and Forwards, in the order of the lane
	Reconf   ID     // Reconfigure at the end of the stage, None for the last stage
	Route    uint32 // latest Instruction.Route of its sends
	Transit  int64  // total bytes of its forwards
}

// Program is the program of one rank for one shape of call. It is immutable after lowering and safe for concurrent use.
// The executor keeps the state of a run.
type Program struct {
	Rank, Ranks int
	Code        []Instruction
	Local       []ID   // Copy and LocalReduce instructions; only Deps order them
	Lanes       []Lane // one per plane
	// Configs lists the maps of each plane. The plane must hold Configs[plane][0] when the program starts. Configs is
	// nil for packet planes.
	Configs [][]circuit.Permutation
	// ScratchBytes is the size of the rank's Scratch buffer.
	ScratchBytes int64
	ElemSize     int64
	// Signature identifies the shape of the call: collective, count, type, root, algorithm, plan. Every frame carries
	// it. Ranks with different signatures have made different calls.
	Signature uint32
	// P2P is set for point-to-point programs. There Step numbers the messages of a pair of ranks, and only the two
	// ranks of a pair must agree.
	P2P bool
	// Extent is the end of the accessed bytes of each buffer.
	Extent [schedule.NumBuffers]int64
	// MsgBytes are the sizes of the messages of a point-to-point program: all sends, then all receives. If a message is
	// a piece of a longer one, MsgWhole has the size of that one. Sends and Receives count messages by rank.
	MsgBytes        []int64
	MsgWhole        []int64
	Sends, Receives []int32
	// Sections run one after another. If there are sections, Code, Local and Lanes are empty, and Configs are those of
	// the first section. See [Args.SectionSteps].
	Sections []Section

	// Derived from Code and Lanes.

	Reduces, Scales bool    // an instruction reduces; an instruction multiplies by the call's factor
	Next            []ID    // by instruction: the next one of the same chain, or None
	NumDeps         []int32 // len(Code[i].Deps)
	succStart       []int32
	succ            []ID
	scratch         indexScratch
	block           int64     // bytes per block of the call
	segments        []Segment // memory of the segments of a point-to-point program
}

// Switches returns the number of reconfigurations, and thus of epochs, of a plane.
func (p *Program) Switches(plane int) uint32 {
	if plane >= len(p.Configs) {
		return 0
	}
	if p.Sections != nil {
		sum := uint32(0)
		for i := range p.Sections {
			sum += p.Sections[i].Program.Switches(plane) * uint32(p.Sections[i].Count)
		}
		return sum
	}
	return uint32(len(p.Configs[plane]) - 1)
}

// Successors returns the instructions that depend on id. The caller must not change the slice.
func (p *Program) Successors(id ID) []ID {
	return p.succ[p.succStart[id]:p.succStart[id+1]]
}
