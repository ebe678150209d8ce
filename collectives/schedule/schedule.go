package schedule

// Collective is a collective operation.
type Collective uint8

// The collectives. SendRecv is the sendrecv of nccl-tests: every rank sends to its successor.
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

// The buffers. Input is the caller's send buffer, which a schedule never writes. Output is the caller's receive buffer.
// The runtime allocates Scratch.
const (
	Input Buffer = iota
	Output
	Scratch
	NumBuffers
)

// Schedule is a collective algorithm for a number of ranks.
//
// Sizes: buffer b has Blocks[b] blocks of the call's count elements. A block has Sub chunks of equal size, up to one
// element (see [Schedule.ChunkRange]). Chunk c of a buffer is part c mod Sub of block c / Sub. The collective
// determines Blocks[Input] and Blocks[Output] ([Collective.IOBlocks]), and the algorithm Blocks[Scratch].
//
// Execution: Pre runs first, then Steps in order, then Post. In a step, every transfer reads the state before the
// step's transfers; then Post of the step runs. Local moves run in the order listed. Pre loads Input into Output or
// Scratch. A pre-multiplied operator scales in Pre, so in a reducing collective only Pre reads Input.
//
// No transfer writes a chunk that another transfer of its step reads or writes. So a receiver never has to hold data
// back for its own sends. [Verify] checks this.
type Schedule struct {
	// Disjoint schedules require that Input and Output do not overlap. All others also work in place; see
	// [Schedule.InPlace].
	Disjoint   bool
	Collective Collective
	Algorithm  string // name with parameters and order: "ring", "bruck:4", ...
	Ranks      int
	Root       int // of rooted collectives
	Sub        int
	Blocks     [NumBuffers]int
	Pre        []Move // local copies, Src == Dst
	Steps      []Step
	Post       []Move // local copies after the last step
}

// Step is one step of a schedule.
type Step struct {
	Transfers []Move
	// Post are local moves (Src == Dst) after the transfers of this step.
	Post []Move
}

// Move copies Count consecutive chunks to a buffer of another rank (a transfer) or of the same rank (a local move).
// With Reduce it combines them into the destination: dst = dst op src.
type Move struct {
	Src, Dst int // ranks
	From, To Ref
	Count    int // chunks
	Reduce   bool
}

// Extend appends next to m if next continues it, and reports whether it does.
func (m *Move) Extend(next *Move) bool {
	if m.Src != next.Src || m.Dst != next.Dst || m.Reduce != next.Reduce ||
		m.From.Buf != next.From.Buf || m.From.Chunk+m.Count != next.From.Chunk ||
		m.To.Buf != next.To.Buf || m.To.Chunk+m.Count != next.To.Chunk {
		return false
	}
	m.Count += next.Count
	return true
}

// Ref identifies the first chunk of a move.
type Ref struct {
	Buf   Buffer
	Chunk int
}

// ChunkRange returns the element range [lo, hi) of chunk c of a buffer for a call of count elements per block. Chunk
// sizes differ by at most one element. Chunks with the same index in their block have the same size in every block and
// buffer.
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
