// Package program lowers a schedule and a plan into one flat program per rank: the form
// the executor runs without thinking.
//
// Layer: inside collectives; it imports schedule, plans and datatype. It moves no bytes.
package program

import (
	"lightpath/collectives/schedule"
	"lightpath/plans/circuit"
)

// Kind is the kind of an operation.
type Kind uint8

// The kinds of operations.
const (
	// Copy is local: Dst segments = Src segments, scaled where Scale is set.
	Copy Kind = iota
	// LocalReduce is local: Dst = Dst op Src.
	LocalReduce
	// Send emits the bytes of Src to rank Peer (the flow's destination) on its plane.
	Send
	// Recv places the bytes of the flow from rank Peer into Dst.
	Recv
	// RecvReduce combines the bytes of the flow from rank Peer into Dst: Dst = Dst op bytes.
	RecvReduce
	// Forward passes Bytes bytes of the flow Peer -> FlowDst onward on its plane.
	Forward
	// Reconfigure moves the plane to Configs[Config] at the next epoch.
	Reconfigure
)

// Messages marks, in Segment.Buf, a buffer of a point-to-point program: one of the call's
// messages (see [BuildP2P]) instead of one of the three buffers of a collective.
const Messages = schedule.NumBuffers

// Segment is a run of bytes of one of the rank's buffers.
type Segment struct {
	Buf schedule.Buffer
	Msg int32 // index of the message where Buf is Messages, else 0
	Off int64
	Len int64
}

// OpID indexes Program.Ops. Dependencies point from higher to lower numbers.
type OpID int32

// None is the absent operation.
const None OpID = -1

// Op is one operation of a rank. Value type; Deps and segments are shared, read-only.
type Op struct {
	Kind    Kind
	Scale   bool  // Copy: apply the call's pre-multiplication
	Plane   int16 // -1 for local operations
	Step    int32 // of the schedule; frames carry it
	Peer    int32 // Send: flow destination; Recv*: flow source; Forward: flow source
	FlowDst int32 // Forward: flow destination
	// Base is the offset, in the flow's bytes of this step, of the first byte of this
	// operation; a flow split over planes and entries is one byte string cut into
	// consecutive intervals.
	Base  int64
	Bytes int64
	Src   []Segment
	Dst   []Segment
	// Init, where a RecvReduce has it, goes with Dst: Dst[i] = Init[i] op bytes where Init[i] is
	// not empty. It is always Input, which nobody writes then.
	Init []Segment
	// Deps are the operations that must be complete before this one touches memory
	// (and, for a Send, before its first byte leaves).
	Deps []OpID
	// Epoch is relative to the plane's epoch at the start of the program: for Send and
	// Forward the epoch at which the circuit leaving this rank was made, for Recv* that of
	// the circuit entering it. Frames carry base + Epoch. For Reconfigure it is the epoch
	// that ends; the plane's next is Epoch + 1.
	Epoch uint32
	// Route is, for Send and Recv*, the latest epoch at which a circuit of the flow's route was
	// made, relative as Epoch is: where the kernel steers ([transport.Steerer]), frames carry
	// base + Route, and may not be sent before the plane has reached that. Nobody stops them on
	// the way then.
	Route uint32
	// InEpoch is that of the circuit entering this rank (Forward).
	InEpoch uint32
	// Config is an index in Configs[Plane]: of the target of a Reconfigure, and of the map in force
	// where a Send or Recv* goes.
	Config int32
	// Moves is set on a Reconfigure whose circuit leaving this rank changes: the rank must
	// drain and take part in the barrier. Otherwise it only separates the entries before
	// it from those after: were a send of the new map to overtake a forward of the old one
	// on a circuit that both maps have, the next forwarder could neither pass it on nor
	// reach what it still owes the old map.
	Moves bool
}

// Lane is the order of one plane on one rank. TX entries start in order: sends one after
// another per destination, forwards in the background; a Reconfigure waits for every
// earlier TX entry to be complete and, where it Moves, drained. RX entries complete in
// order per source.
type Lane struct {
	TX []OpID
	RX []OpID

	// Derived from TX and RX, for an executor that looks only at what can run now.

	Stages  []Stage // TX cut after each Reconfigure
	Sources []OpID  // first RX operation of each source; the rest follow by Program.Next
}

// Stage is a stretch of a lane's TX without a reconfiguration inside.
type Stage struct {
	Sends    []OpID // first Send to each destination; the rest follow by Program.Next
	Forwards []OpID // first Forward of each flow; the rest follow by Program.Next
	TX       []OpID // Sends and Forwards, in the order of the lane
	Ops      int32  // len(TX)
	Reconf   OpID   // the Reconfigure that ends the stage, or None for the last
	Route    uint32 // the latest Op.Route of its sends
	Transit  int64  // bytes of its forwards
}

// Program is what one rank runs for one call shape. Immutable after lowering and safe for
// concurrent use; run-time state lives in the executor.
type Program struct {
	Rank, Ranks int
	Ops         []Op
	Local       []OpID // Copy and LocalReduce operations, any order the Deps allow
	Lanes       []Lane // one per plane
	// Configs lists per plane the maps it goes through, [0] being the one it must hold when
	// the program starts; nil for a packet program, whose planes reach everyone always.
	Configs [][]circuit.Permutation
	// SwitchUS is when the plan has each move of Configs[plane][1:] start, in microseconds from
	// its beginning; negative for a setup, which comes before.
	SwitchUS [][]float64
	// ScratchBytes is the size of the Scratch buffer this rank needs.
	ScratchBytes int64
	ElemSize     int64
	// Signature identifies the call shape (collective, count, type, root, algorithm, plan):
	// ranks whose signatures differ have made different calls. Carried by every frame.
	Signature uint32
	// P2P is set on point-to-point programs: Step numbers the messages of a pair, and
	// ranks agree on nothing but what each pair of them exchanges.
	P2P bool
	// Extent is how far the operations reach into each buffer, in bytes.
	Extent [schedule.NumBuffers]int64
	// MsgBytes are the sizes of the messages of a point-to-point program: all sends, then
	// all receives. MsgWhole are those of the messages that they are pieces of. Sends and Receives
	// count those exchanged with each rank.
	MsgBytes        []int64
	MsgWhole        []int64
	Sends, Receives []int32
	// Sections, where there are any, are run one after another in place of Ops, Local and Lanes, which are
	// empty then; Configs are those of the first. See [Args.Roll].
	Sections []Section

	// Derived from Ops and Lanes.

	Reduces, Scales bool    // whether any operation combines, or pre-multiplies
	Next            []OpID  // next operation of the same chain of a Stage or of Sources, or None
	NumDeps         []int32 // len(Ops[i].Deps)
	succStart       []int32
	succ            []OpID
	scratch         indexScratch
	block           int64     // bytes of a block of the call
	segments        []Segment // backing of the segments of a point-to-point program
}

// Switches returns how often the program moves a plane: the epochs it uses up.
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

// Successors returns the operations that depend on id. Read-only.
func (p *Program) Successors(id OpID) []OpID {
	return p.succ[p.succStart[id]:p.succStart[id+1]]
}
