package msccl

import (
	"errors"
	"fmt"

	"lightpath/collectives/schedule"
	"lightpath/plans"
)

// Errors of this package. Errors that wrap them name the gpu, thread block, step and attribute.
var (
	// ErrFormat reports a text that is not MSCCL XML.
	ErrFormat = errors.New("msccl: bad file")
	// ErrMismatch reports a file for another collective, root or number of ranks.
	ErrMismatch = errors.New("msccl: wrong file")
	// ErrDeadlock reports a cycle of steps that wait for each other.
	ErrDeadlock = errors.New("msccl: deadlock")
	// ErrExport reports a schedule that a file cannot express.
	ErrExport = errors.New("msccl: cannot export")
)

// Limits of a file, so that a small file cannot cause large allocations.
const (
	maxText    = 64 << 20 // bytes of a file
	maxPlaces  = 1 << 21  // chunks of all inputs and outputs; chunks of one scratch buffer
	maxPieces  = 1 << 22  // chunks moved by all steps
	maxScratch = 1 << 24  // chunks of the schedule's scratch of all ranks
)

// MaxCount is the largest number of chunks per step that MSCCL's runtimes accept.
const MaxCount = 71

// Kind is the type of a step.
type Kind uint8

// The kinds of steps, with their names in the format.
const (
	Nop    Kind = iota // nop: only waits
	Send               // s
	Recv               // r
	RRC                // receive, reduce, copy
	RCS                // receive, copy, send
	RRS                // receive, reduce, send: the sum is not stored
	RRCS               // receive, reduce, copy, send
	Copy               // cpy, local
	Reduce             // re, local
	numKinds
)

var kindNames = [numKinds]string{"nop", "s", "r", "rrc", "rcs", "rrs", "rrcs", "cpy", "re"}

// String returns the name of k in the format.
func (k Kind) String() string {
	if k >= numKinds {
		return fmt.Sprintf("kind(%d)", uint8(k))
	}
	return kindNames[k]
}

func (k Kind) sends() bool    { return k == Send || k == RCS || k == RRS || k == RRCS }
func (k Kind) receives() bool { return k >= Recv && k <= RRCS }
func (k Kind) reduces() bool  { return k == RRC || k == RRS || k == RRCS || k == Reduce }
func (k Kind) local() bool    { return k == Copy || k == Reduce }

// File is an algorithm in MSCCL's format. Chunks are numbered per buffer.
type File struct {
	Name, Proto   string
	Custom        bool // coll="custom": the file does not name its collective, and Collective is undefined
	Collective    schedule.Collective
	Root          int // -1 if the file does not name it
	InPlace       bool
	Channels      int
	ChunksPerLoop int // chunks of the larger of input and output
	MinBytes      int64
	MaxBytes      int64 // 0: no limit
	GPUs          []GPU // by rank
}

// GPU is the program of one rank.
type GPU struct {
	Chunks [schedule.NumBuffers]int // numbers of chunks used of input, output and scratch
	Blocks []Block                  // by id
}

// Block is a thread block: a sequence of steps with at most one send peer and one receive peer.
type Block struct {
	Send, Recv int // peers, -1 for none
	Chan       int
	Steps      []Step
}

// Step is one instruction.
type Step struct {
	Kind     Kind
	Src, Dst schedule.Ref
	Count    int // chunks
	// DepBlock and DepStep identify the step that this one waits for; DepBlock is -1 for none.
	DepBlock, DepStep int
	HasDep            bool // a step of another thread block waits for this one
}

// Ranks returns the number of ranks of the algorithm.
func (f *File) Ranks() int { return len(f.GPUs) }

// As returns f as the algorithm of a collective. If f is custom, the result is a copy that names the collective; only
// [File.Schedule] proves that it computes it. Errors: [ErrMismatch], [ErrFormat].
func (f *File) As(c schedule.Collective) (*File, error) {
	if f.Custom {
		g := *f
		g.Custom, g.Collective = false, c
		if err := g.Validate(); err != nil {
			return nil, fmt.Errorf("as %v: %w", c, err)
		}
		return &g, nil
	}
	if f.Collective != c {
		return nil, fmt.Errorf("%w: coll: %v, want %v", ErrMismatch, f.Collective, c)
	}
	return f, nil
}

// sub returns the number of chunks of a block.
func (f *File) sub() (int, error) {
	in, out := f.Collective.IOBlocks(f.Ranks())
	blocks := max(in, out)
	if f.ChunksPerLoop%blocks != 0 {
		return 0, fmt.Errorf("%w: nchunksperloop: %d, want a multiple of the %d blocks of %v",
			ErrFormat, f.ChunksPerLoop, blocks, f.Collective)
	}
	return f.ChunksPerLoop / blocks, nil
}

// Validate returns an error if no runtime could run f. It does not detect deadlocks or wrong results; [File.Schedule]
// does. Errors: [ErrFormat].
func (f *File) Validate() error {
	if f.Collective >= schedule.NumCollectives {
		return fmt.Errorf("%w: coll: %v", ErrFormat, f.Collective)
	}
	n := f.Ranks()
	if n < 1 || n > plans.MaxRanks {
		return fmt.Errorf("%w: ngpus: %d, want 1 to %d", ErrFormat, n, plans.MaxRanks)
	}
	if f.ChunksPerLoop < 1 || f.ChunksPerLoop > maxPlaces {
		return fmt.Errorf("%w: nchunksperloop: %d, want 1 to %d", ErrFormat, f.ChunksPerLoop, maxPlaces)
	}
	if f.Root < -1 || f.Root >= n {
		return fmt.Errorf("%w: root: %d of %d gpus", ErrFormat, f.Root, n)
	}
	limits := [schedule.NumBuffers]int{f.ChunksPerLoop, f.ChunksPerLoop, maxPlaces}
	if !f.Custom {
		sub, err := f.sub()
		if err != nil {
			return err
		}
		in, out := f.Collective.IOBlocks(n)
		limits[schedule.Input], limits[schedule.Output] = in*sub, out*sub
	}
	if limits[schedule.Input]+limits[schedule.Output] > maxPlaces/n {
		return fmt.Errorf("%w: nchunksperloop: %d for %d gpus, want at most %d in total",
			ErrFormat, f.ChunksPerLoop, n, maxPlaces)
	}
	pieces := 0
	for g := range f.GPUs {
		for b, chunks := range f.GPUs[g].Chunks {
			if chunks < 0 || chunks > limits[b] {
				return fmt.Errorf("%w: gpu %d: %s_chunks: %d, want 0 to %d",
					ErrFormat, g, bufferNames[b], chunks, limits[b])
			}
		}
		if err := f.validateGPU(g, &pieces); err != nil {
			return err
		}
	}
	return nil
}

func (f *File) validateGPU(g int, pieces *int) error {
	gpu := &f.GPUs[g]
	type connection struct{ peer, channel, direction int }
	owner := map[connection]int{}
	for t := range gpu.Blocks {
		b := &gpu.Blocks[t]
		for direction, peer := range [2]int{b.Send, b.Recv} {
			name := [2]string{"send", "recv"}[direction]
			if peer < -1 || peer >= f.Ranks() || peer == g {
				return fmt.Errorf("%w: gpu %d tb %d: %s: gpu %d is no peer", ErrFormat, g, t, name, peer)
			}
			if peer == -1 {
				continue
			}
			c := connection{peer, b.Chan, direction}
			if other, taken := owner[c]; taken {
				return fmt.Errorf("%w: gpu %d tb %d: %s: tb %d already has gpu %d on channel %d",
					ErrFormat, g, t, name, other, peer, b.Chan)
			}
			owner[c] = t
		}
		if b.Chan < -1 || b.Chan >= max(1, f.Channels) {
			return fmt.Errorf("%w: gpu %d tb %d: chan: %d of %d channels", ErrFormat, g, t, b.Chan, f.Channels)
		}
		for s := range b.Steps {
			if err := f.validateStep(g, t, s); err != nil {
				return fmt.Errorf("%w: gpu %d tb %d step %d: %w", ErrFormat, g, t, s, err)
			}
			if *pieces += b.Steps[s].Count; *pieces > maxPieces {
				return fmt.Errorf("%w: gpu %d tb %d step %d: steps move more than %d chunks", ErrFormat, g, t, s, maxPieces)
			}
		}
	}
	return nil
}

func (f *File) validateStep(g, t, s int) error {
	gpu := &f.GPUs[g]
	b := &gpu.Blocks[t]
	st := &b.Steps[s]
	if st.Kind >= numKinds {
		return fmt.Errorf("type: %v", st.Kind)
	}
	if st.DepBlock >= 0 {
		if st.DepBlock >= len(gpu.Blocks) || st.DepStep < 0 || st.DepStep >= len(gpu.Blocks[st.DepBlock].Steps) {
			return fmt.Errorf("depid, deps: no tb %d step %d", st.DepBlock, st.DepStep)
		}
		if !gpu.Blocks[st.DepBlock].Steps[st.DepStep].HasDep {
			return fmt.Errorf("depid, deps: tb %d step %d has hasdep=\"0\"", st.DepBlock, st.DepStep)
		}
	}
	if st.Kind == Nop {
		return nil
	}
	if st.Count < 1 {
		return fmt.Errorf("cnt: %d chunks", st.Count)
	}
	if st.Kind.sends() && b.Send < 0 {
		return fmt.Errorf("type: %v in a thread block without send peer", st.Kind)
	}
	if st.Kind.receives() && b.Recv < 0 {
		return fmt.Errorf("type: %v in a thread block without recv peer", st.Kind)
	}
	if st.Kind.reduces() && !f.Custom && !f.Collective.Reduces() {
		return fmt.Errorf("type: %v in %v", st.Kind, f.Collective)
	}
	if !st.Kind.receives() {
		if err := gpu.inside("src", st.Src, st.Count); err != nil {
			return err
		}
	}
	if st.Kind != Send {
		return gpu.inside("dst", st.Dst, st.Count)
	}
	return nil
}

func (gpu *GPU) inside(which string, ref schedule.Ref, count int) error {
	if ref.Buf >= schedule.NumBuffers {
		return fmt.Errorf("%sbuf: no buffer %d", which, ref.Buf)
	}
	if size := gpu.Chunks[ref.Buf]; ref.Chunk < 0 || ref.Chunk > size-count {
		return fmt.Errorf("%soff: chunks %d to %d of %d in buffer %s",
			which, ref.Chunk, ref.Chunk+count-1, size, bufferNames[ref.Buf])
	}
	return nil
}

// bufferNames are the names in the format.
var bufferNames = [schedule.NumBuffers]string{schedule.Input: "i", schedule.Output: "o", schedule.Scratch: "s"}
