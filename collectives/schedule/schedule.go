package schedule

// Collective is what a schedule computes.
type Collective uint8

// The collectives. SendRecv is nccl-tests' sendrecv: every rank sends to its successor.
const (
	AllReduce Collective = iota
	Broadcast
	Reduce
	AllGather
	ReduceScatter
	AllToAll
	Gather
	Scatter
	SendRecv
	NumCollectives
)

// Buffer is one of a rank's three buffers.
type Buffer uint8

// The buffers. Input is the caller's send buffer and is never written; Output is the
// caller's receive buffer; Scratch belongs to the runtime.
const (
	Input Buffer = iota
	Output
	Scratch
	NumBuffers
)

// Schedule is a collective algorithm for a number of ranks.
//
// Sizes: a buffer is Blocks[b] blocks of the call's count elements, each cut into Sub
// chunks as equal as possible (see [Schedule.ChunkRange]); chunk c of a buffer is part
// c mod Sub of block c / Sub. Blocks[Input] and Blocks[Output] are fixed by the
// collective (AllReduce 1 and 1, AllGather 1 and Ranks, ReduceScatter Ranks and 1,
// AllToAll Ranks and Ranks, Gather and Scatter Ranks at the root), Blocks[Scratch] by the
// algorithm.
//
// Execution: Steps in order. Within a step every transfer reads the state from before
// the step's transfers, then Post runs. Pre runs before the first step; it loads Input
// into Output or Scratch, and is where a pre-multiplied operator scales: in a reducing
// collective nothing but Pre reads Input. Local moves run in the order listed.
//
// No transfer writes what another of its step reads or writes, so a receiver never has to
// hold data back for its own sends: [Verify] checks that.
type Schedule struct {
	// Disjoint schedules require that Input and Output do not overlap; all others also hold
	// in place, Input being the part of Output that [Schedule.InPlace] says.
	Disjoint   bool
	Collective Collective
	Algorithm  string // its name, with parameters and order: "ring", "bruck:4", ...
	Ranks      int
	Root       int // rooted collectives
	Sub        int
	Blocks     [NumBuffers]int
	Pre        []Move // local copies, Src == Dst
	Steps      []Step
	Post       []Move // local copies after the last step
}

// Step is one round of a schedule.
type Step struct {
	Transfers []Move
	// Post are local moves (Src == Dst) that follow the transfers of this step.
	Post []Move
}

// Move carries Count consecutive chunks from one buffer to another, of another rank
// (a transfer) or the same (a local copy). Reduce combines into the destination, which
// comes first: dst = dst op src.
type Move struct {
	Src, Dst int // ranks
	From, To Ref
	Count    int // chunks
	Reduce   bool
}

// Ref names the first chunk of a move.
type Ref struct {
	Buf   Buffer
	Chunk int
}

// ChunkRange returns the element range [lo, hi) of chunk c of a buffer for a call of
// count elements per block. Chunks of equal Sub index have equal sizes in every block and
// buffer; sizes differ by at most one element.
func (s *Schedule) ChunkRange(c int, count int64) (lo, hi int64) {
	block, part := int64(c/s.Sub), int64(c%s.Sub)
	sub := int64(s.Sub)
	base, rem := count/sub, count%sub
	lo = block*count + base*part + min(part, rem)
	hi = lo + base
	if part < rem {
		hi++
	}
	return lo, hi
}
