package program

import (
	"fmt"
	"slices"

	"lightpath/collectives/schedule"
	"lightpath/plans"
	"lightpath/plans/circuit"
)

// DefaultMinPiece is the default of Args.MinPiece, in bytes. A further piece costs both ranks a system call, about as
// long as 32 KiB take on 25 Gb/s.
const DefaultMinPiece = 32 << 10

// Args are the arguments of [Lower]. All ranks must pass the same values, except Rank.
type Args struct {
	Rank int
	// Planes is the number of packet planes. Lower ignores it if there is a plan.
	Planes int
	// Use lists the packet planes to use, ascending. nil means all.
	Use []int
	// Shares divides flows that use all packet planes, in proportion. nil means even shares. It requires that Use is
	// nil.
	Shares []int
	// Count is the number of elements per block of the schedule, each of ElemSize bytes.
	Count    int64
	ElemSize int64
	// InPlace means that Input and Output overlap as described by [schedule.Schedule.InPlace]. Without InPlace, the
	// buffers must not overlap.
	InPlace bool
	// Scale sets Instruction.Scale on every copy of Input that precedes the steps.
	Scale bool
	// MinPiece is the smallest piece of a flow that uses a packet plane of its own, in bytes. 0 means DefaultMinPiece.
	MinPiece int64
	// Signature is the program's Signature; see [Signature].
	Signature uint32
	// Problem is the problem of the plan, and StepOf[i] is the schedule's step for step i of the problem.
	// [schedule.Problem] returns both. A plan requires them.
	Problem *plans.Problem
	StepOf  []int
	// SectionSteps is the least number of steps per section. A plan that repeats becomes sections if it has at least
	// 4*SectionSteps steps. 0 means no sections.
	SectionSteps int
	// Current are the present maps of the planes. If one differs from the plan's initial map, the program begins with a
	// reconfiguration. nil means that no map differs.
	Current []circuit.Permutation
}

// Lower returns the program of one rank. It turns the schedule's moves into instructions on byte ranges, divides each
// flow over the entries of the plan, and computes the dependencies.
//
// A nil plan means packet planes, where every rank reaches every other rank at all times. Then Lower divides a flow
// over as many planes as it has multiples of MinPiece. If these are not all planes, the first plane depends on source,
// destination and step, so that small flows use different planes.
//
// Lower omits reconfigurations that change no circuit; the plane's epoch then stays the same.
//
// Errors: [ErrArgs], [ErrSchedule], [ErrPlan], [ErrUnsupported].
func Lower(s *schedule.Schedule, plan *plans.Plan, args Args) (*Program, error) {
	if err := checkArgs(s, plan, &args); err != nil {
		return nil, err
	}
	l := &lowering{s: s, args: args, me: args.Rank, to: len(s.Steps)}
	l.p = newProgram(s, &args)
	if plan == nil {
		split := packetSplit{
			ranks: s.Ranks, planes: args.Planes, use: args.Use, shares: args.Shares, minPiece: args.MinPiece,
			elem: args.ElemSize,
		}
		if split.use != nil {
			split.planes = len(split.use)
		}
		l.split = split
		l.p.Lanes = make([]Lane, args.Planes)
	} else {
		tl, err := newTimeline(s, plan, &args)
		if err != nil {
			return nil, err
		}
		if steps := sectionSteps(plan, &args); steps > 0 {
			if p, err := lowerSections(s, tl, args, steps); p != nil || err != nil {
				return p, err
			}
		}
		l.tl, l.split = tl, tl
		l.p.Lanes = make([]Lane, len(plan.Planes))
		l.config, l.base = make([]int, len(plan.Planes)), make([]int, len(plan.Planes))
		for j := range tl.planes {
			l.end = append(l.end, len(tl.planes[j].maps)-1)
			l.p.Configs = append(l.p.Configs, tl.planes[j].maps)
		}
	}
	if err := l.lower(); err != nil {
		return nil, err
	}
	return l.p, nil
}

// Signature returns a hash (FNV-1a) of the values that identify a call. It is never 0, which means no call.
func Signature(parts ...uint64) uint32 {
	h := uint32(2166136261)
	for _, v := range parts {
		for i := 0; i < 64; i += 8 {
			h = (h ^ uint32(v>>i&0xff)) * 16777619
		}
	}
	return max(h, 1)
}

// maxBytes limits the size of a buffer, so that offsets cannot overflow.
const maxBytes = 1 << 56

func checkArgs(s *schedule.Schedule, plan *plans.Plan, a *Args) error {
	blocks := 1
	for _, b := range s.Blocks {
		blocks = max(blocks, b)
	}
	switch {
	case s.Ranks < 1 || s.Sub < 1:
		return fmt.Errorf("program: %d ranks, %d chunks a block: %w", s.Ranks, s.Sub, ErrSchedule)
	case a.Rank < 0 || a.Rank >= s.Ranks:
		return fmt.Errorf("program: rank %d of %d: %w", a.Rank, s.Ranks, ErrArgs)
	case a.Count < 0 || a.ElemSize < 1 || a.ElemSize > 8:
		return fmt.Errorf("program: %d elements of %d bytes: %w", a.Count, a.ElemSize, ErrArgs)
	case a.Count > maxBytes/a.ElemSize/int64(blocks):
		return fmt.Errorf("program: %d blocks of %d elements: %w", blocks, a.Count, ErrArgs)
	case plan == nil && (a.Planes < 1 || a.Planes > plans.MaxPlanes):
		return fmt.Errorf("program: %d packet planes: %w", a.Planes, ErrArgs)
	case plan == nil && a.Use != nil && (len(a.Use) == 0 || slices.Min(a.Use) < 0 || slices.Max(a.Use) >= a.Planes):
		return fmt.Errorf("program: packet planes %v of %d: %w", a.Use, a.Planes, ErrArgs)
	case plan == nil && a.Shares != nil && !a.sharesFit():
		return fmt.Errorf("program: shares %v of %d packet planes: %w", a.Shares, a.Planes, ErrArgs)
	case plan != nil && (len(plan.Planes) < 1 || len(plan.Planes) > plans.MaxPlanes):
		return fmt.Errorf("program: plan of %d planes: %w", len(plan.Planes), ErrPlan)
	case plan != nil && a.Problem == nil:
		return fmt.Errorf("program: plan without its problem: %w", ErrArgs)
	case plan != nil && len(a.StepOf) != len(a.Problem.Steps):
		return fmt.Errorf("program: %d step numbers for %d steps: %w", len(a.StepOf), len(a.Problem.Steps), ErrArgs)
	case a.InPlace && s.Disjoint:
		return fmt.Errorf("program: %s %s in place: %w", s.Collective, s.Algorithm, ErrArgs)
	}
	if a.MinPiece <= 0 {
		a.MinPiece = DefaultMinPiece
	}
	return nil
}

// maxShare is the largest share of a plane.
const maxShare = 1 << 20

// sharesFit reports whether all planes are used and have shares, at least one of which is positive.
func (a *Args) sharesFit() bool {
	if a.Use != nil || len(a.Shares) != a.Planes {
		return false
	}
	least, most := slices.Min(a.Shares), slices.Max(a.Shares)
	return least >= 0 && most > 0 && most <= maxShare
}

// splitter divides the elements of a flow in one step into pieces, the same on every rank.
type splitter interface {
	// cut appends the pieces in order. They cover [0, f.elems) exactly.
	cut(f *flow, step int, pieces []piece) ([]piece, error)
}

// piece is the range [lo, hi) of a flow's elements in a step, which an entry of a plane carries.
type piece struct {
	plane  int
	entry  int // index in the plane's timeline; 0 on packet planes
	lo, hi int64
}

// lowering is the state of one call of Lower.
type lowering struct {
	s        *schedule.Schedule
	p        *Program
	args     Args
	me       int
	split    splitter
	tl       *timeline // nil on packet planes
	from, to int       // range of the schedule's steps to lower
	// By plane: config is the index of the map that TX has reached, base that of the first map and end of the last.
	config, base, end []int
	// phase is the phase of each instruction. Instructions of one phase do not depend on each other; see depend.
	phase  []int32
	phases int32
}

// lower sets the program.
func (l *lowering) lower() error {
	if err := l.run(); err != nil {
		return err
	}
	if l.from == 0 && l.to == len(l.s.Steps) { // sections would have to change Init in each repetition
		l.fuse()
	}
	if err := l.depend(); err != nil {
		return err
	}
	l.extents()
	l.p.index()
	return nil
}

// run adds the instructions, and the order of each plane.
func (l *lowering) run() error {
	if l.from == 0 {
		if err := l.locals(l.s.Pre, -1, true); err != nil {
			return err
		}
	}
	for i := l.from; i < l.to; i++ {
		if err := l.step(i); err != nil {
			return fmt.Errorf("program: step %d: %w", i, err)
		}
	}
	if l.to == len(l.s.Steps) {
		if err := l.locals(l.s.Post, len(l.s.Steps), false); err != nil {
			return err
		}
	}
	// The last reconfigurations have no instructions after them.
	for j := range l.config {
		l.reconfigure(j, l.end[j])
	}
	return nil
}

func (l *lowering) step(i int) error {
	st := &l.s.Steps[i]
	flows, own, err := l.flows(st)
	if err != nil {
		return err
	}
	carried, err := l.place(flows, i)
	if err != nil {
		return err
	}
	l.phases++
	// Sends and local moves read the buffers as they were before the step. Receives change them.
	for _, c := range carried {
		if err := l.transmit(c, i); err != nil {
			return err
		}
	}
	for _, m := range own {
		if err := l.local(m, i, false); err != nil {
			return err
		}
	}
	for _, c := range carried {
		if c.f.dst == l.me {
			l.receive(c, i)
		}
	}
	return l.locals(st.Post, i, false)
}

// locals adds the local moves of this rank in order.
func (l *lowering) locals(moves []schedule.Move, step int, load bool) error {
	for _, m := range moves {
		if m.Src != l.me {
			continue
		}
		if m.Dst != m.Src {
			return fmt.Errorf("program: local move from rank %d to %d: %w", m.Src, m.Dst, ErrSchedule)
		}
		l.phases++
		if err := l.local(m, step, load); err != nil {
			return err
		}
	}
	return nil
}

func (l *lowering) local(m schedule.Move, step int, load bool) error {
	src, dst, err := l.ends(m)
	if err != nil {
		return err
	}
	scale := l.args.Scale && load && m.From.Buf == schedule.Input && !m.Reduce
	if src.Len == 0 || !scale && !m.Reduce && l.sameMemory(src, dst) {
		return nil
	}
	in := Instruction{
		Kind: Copy, Scale: scale, Plane: -1, Step: int32(step), Peer: int32(l.me), FlowDst: int32(l.me),
		Bytes: src.Len, Src: []Segment{src}, Dst: []Segment{dst},
	}
	if m.Reduce {
		in.Kind = LocalReduce
	}
	l.p.Local = append(l.p.Local, l.add(in))
	return nil
}

// add appends an instruction to the current phase.
func (l *lowering) add(in Instruction) ID {
	l.p.Code = append(l.p.Code, in)
	l.phase = append(l.phase, l.phases)
	return ID(len(l.p.Code) - 1)
}

// extents computes Program.Extent.
func (l *lowering) extents() {
	for i := range l.p.Code {
		in := &l.p.Code[i]
		for _, list := range [3][]Segment{in.Src, in.Dst, in.Init} {
			for _, g := range list {
				l.p.Extent[g.Buf] = max(l.p.Extent[g.Buf], g.Off+g.Len)
			}
		}
	}
}
