package program

import (
	"iter"
	"math"
	"slices"

	"lightpath/collectives/schedule"
	"lightpath/plans"
	"lightpath/plans/circuit"
)

// A plan of hundreds of steps usually repeats a few steps, with other peers and blocks. Its program has sections of
// whole steps, and stores a section that repeats once. A rank begins a section after it has completed the previous one.
// The reconfigurations between two sections belong to the first, so they run while it still sends on other planes.

// Section is a part of a long program. A rank runs it Count times.
type Section struct {
	// Program is the first repetition. Its epochs are relative to the start of the section.
	Program   *Program
	Count     int
	Shifts    []Shift // by instruction of Program; nil if Count is 1
	MapShifts [][]int // by plane and map: the map is a shift, and its distance grows by this number of ranks
}

// Shift is the difference between an instruction and the same instruction of the next repetition: in steps, in ranks
// for Peer and FlowDst, and in blocks for Src and Dst. Ranks and blocks are modulo the number of ranks.
type Shift struct{ Step, Peer, FlowDst, Src, Dst int32 }

// Repetition holds the instructions of one repetition of a section. Section.Repetition reuses its memory.
type Repetition struct {
	Code     []Instruction
	segments []Segment
}

// Repetition sets r to repetition i of the section.
func (s *Section) Repetition(i int, r *Repetition) {
	p := s.Program
	r.Code = append(r.Code[:0], p.Code...)
	if i == 0 {
		return
	}
	r.segments = r.segments[:0]
	for k := range r.Code {
		in, by := &r.Code[k], &s.Shifts[k]
		in.Step += int32(i) * by.Step
		in.Peer, in.FlowDst = p.shiftRank(in.Peer, by.Peer, i), p.shiftRank(in.FlowDst, by.FlowDst, i)
		in.Src, in.Dst = p.shiftSegments(r, in.Src, by.Src, i), p.shiftSegments(r, in.Dst, by.Dst, i)
	}
}

// Map returns map k of a plane in repetition i of the section. If the section does not store this map, Map computes it
// in *room, and replaces *room if it is too small.
func (s *Section) Map(plane, k, i int, room *circuit.Permutation) circuit.Permutation {
	c := s.Program.Configs[plane][k]
	if i == 0 || s.MapShifts[plane][k] == 0 {
		return c
	}
	*room = resize(*room, len(c))
	room.SetShift(c[0] + i*s.MapShifts[plane][k])
	return *room
}

// shiftRank returns a rank of the first repetition in repetition i.
func (p *Program) shiftRank(rank, by int32, i int) int32 {
	if by == 0 {
		return rank
	}
	return int32((int(rank) + i*int(by)) % p.Ranks)
}

// shiftSegments returns segments of the first repetition in repetition i. They use the memory of r.
func (p *Program) shiftSegments(r *Repetition, list []Segment, by int32, i int) []Segment {
	if by == 0 {
		return list
	}
	from := len(r.segments)
	for _, g := range list {
		g.Off = (g.Off/p.block+int64(i)*int64(by))%int64(p.Ranks)*p.block + g.Off%p.block
		r.segments = append(r.segments, g)
	}
	return r.segments[from:len(r.segments):len(r.segments)]
}

// Parts yields the program of each section and the number of its repetitions, or p itself if it has no sections.
func (p *Program) Parts() iter.Seq2[*Program, int] {
	return func(yield func(*Program, int) bool) {
		if p.Sections == nil {
			yield(p, 1)
			return
		}
		for i := range p.Sections {
			if !yield(p.Sections[i].Program, p.Sections[i].Count) {
				return
			}
		}
	}
}

// Instructions returns the number of instructions that a run of p executes.
func (p *Program) Instructions() int {
	sum := 0
	for part, count := range p.Parts() {
		sum += count * len(part.Code)
	}
	return sum
}

// Target returns the target of a plane's reconfiguration. Reconfigurations count from 1.
func (p *Program) Target(plane int, move uint32) circuit.Permutation {
	for i := range p.Sections {
		s := &p.Sections[i]
		each := s.Program.Switches(plane)
		if all := each * uint32(s.Count); move > all {
			move -= all
			continue
		}
		return s.Map(plane, int((move-1)%each+1), int((move-1)/each), new(circuit.Permutation))
	}
	return p.Configs[plane][move]
}

// sectionSteps returns the number of problem steps per section, or 0 if the program has no sections.
func sectionSteps(plan *plans.Plan, a *Args) int {
	steps := len(a.StepOf)
	if a.SectionSteps <= 0 || steps < 4*a.SectionSteps || !ascending(a.StepOf) {
		return 0
	}
	by := 0 // period of all planes, in steps
	for _, repeats := range plan.Repeats {
		for _, r := range repeats {
			switch {
			case r.StepBy <= 0 || r.Count*r.StepBy < steps/8: // too short
			case by == 0:
				by = r.StepBy
			default:
				by = by * r.StepBy / gcd(by, r.StepBy)
			}
			if by > steps/2 {
				return 0
			}
		}
	}
	if by == 0 {
		return 0
	}
	return by * ((a.SectionSteps + by - 1) / by)
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// lowerSections lowers a plan in sections of the given number of problem steps. It returns nil if the sections do not
// repeat, or if ranks forward: the executor counts forwarded bytes over a whole call.
func lowerSections(s *schedule.Schedule, tl *timeline, args Args, steps int) (*Program, error) {
	whole := newProgram(s, &args)
	whole.Lanes = make([]Lane, len(tl.planes))
	at := make([]int, len(tl.planes)) // by plane: index of the present map
	var r Repetition
	for lo := 0; lo < len(args.StepOf); lo += steps {
		hi := min(lo+steps, len(args.StepOf))
		l := &lowering{
			s: s, args: args, me: args.Rank, tl: tl, split: tl, config: slices.Clone(at), base: slices.Clone(at),
		}
		l.from, l.to = args.StepOf[lo], len(s.Steps)
		if lo == 0 {
			l.from = 0
		}
		if hi < len(args.StepOf) {
			l.to = args.StepOf[hi]
		}
		l.p = newProgram(s, &args)
		l.p.Lanes = make([]Lane, len(tl.planes))
		for j := range tl.planes {
			end := tl.planes[j].configAt(l.to)
			l.end = append(l.end, end)
			// A clone, so that the maps of other sections can be freed.
			l.p.Configs = append(l.p.Configs, slices.Clone(tl.planes[j].maps[at[j]:end+1]))
			at[j] = end
		}
		if err := l.lower(); err != nil {
			return nil, err
		}
		if slices.ContainsFunc(l.p.Code, func(in Instruction) bool { return in.Kind == Forward }) {
			return nil, nil
		}
		whole.Reduces, whole.Scales = whole.Reduces || l.p.Reduces, whole.Scales || l.p.Scales
		for b := range whole.Extent {
			whole.Extent[b] = max(whole.Extent[b], l.p.Extent[b])
		}
		if last := len(whole.Sections) - 1; last < 0 || !whole.Sections[last].repeat(l.p, &r) {
			whole.Sections = append(whole.Sections, Section{Program: l.p, Count: 1})
		}
	}
	if len(whole.Sections)*2 > (len(args.StepOf)+steps-1)/steps {
		return nil, nil
	}
	whole.Configs = whole.Sections[0].Program.Configs
	return whole, nil
}

// repeat increments Count if p is the next repetition of the section, and reports whether it is.
func (s *Section) repeat(p *Program, r *Repetition) bool {
	next := *s
	if s.Count == 1 && !next.setShifts(p) {
		return false
	}
	next.Repetition(s.Count, r)
	if !sameProgram(p, s.Program, r) || !next.sameMaps(p) {
		return false
	}
	next.Count++
	*s = next
	return true
}

// setShifts computes Shifts and MapShifts from the differences between the section's program and p. It returns false
// if p cannot be a repetition; repeat makes the complete check.
func (s *Section) setShifts(p *Program) bool {
	q := s.Program
	if len(p.Code) != len(q.Code) || len(p.Configs) != len(q.Configs) {
		return false
	}
	between := func(a, b int32) int32 { return (b - a + int32(p.Ranks)) % int32(p.Ranks) }
	blocks := func(a, b []Segment) int32 {
		if len(a) == 0 || len(b) == 0 {
			return 0
		}
		return between(int32(a[0].Off/p.block%int64(p.Ranks)), int32(b[0].Off/p.block%int64(p.Ranks)))
	}
	s.Shifts = make([]Shift, len(q.Code))
	for i := range q.Code {
		a, b := &q.Code[i], &p.Code[i]
		s.Shifts[i] = Shift{
			b.Step - a.Step, between(a.Peer, b.Peer), between(a.FlowDst, b.FlowDst),
			blocks(a.Src, b.Src), blocks(a.Dst, b.Dst),
		}
	}
	s.MapShifts = make([][]int, len(q.Configs))
	for j, maps := range q.Configs {
		if len(maps) != len(p.Configs[j]) {
			return false
		}
		for k := range maps {
			by := 0
			if !maps[k].Equal(p.Configs[j][k]) {
				from, ok := maps[k].Distance()
				to, ok2 := p.Configs[j][k].Distance()
				if !ok || !ok2 {
					return false
				}
				by = to - from
			}
			s.MapShifts[j] = append(s.MapShifts[j], by)
		}
	}
	return true
}

// sameProgram reports whether p has the instructions of the repetition, and the lanes and order of the first one.
func sameProgram(p, first *Program, r *Repetition) bool {
	sameCode := slices.EqualFunc(p.Code, r.Code, func(a, b Instruction) bool {
		return a.Kind == b.Kind && a.Scale == b.Scale && a.Plane == b.Plane && a.Step == b.Step &&
			a.Peer == b.Peer && a.FlowDst == b.FlowDst && a.Base == b.Base && a.Bytes == b.Bytes &&
			a.Epoch == b.Epoch && a.Route == b.Route && a.InEpoch == b.InEpoch && a.Config == b.Config &&
			a.Moves == b.Moves && slices.Equal(a.Src, b.Src) && slices.Equal(a.Dst, b.Dst) &&
			slices.Equal(a.Init, b.Init) && slices.Equal(a.Deps, b.Deps)
	})
	sameLanes := slices.EqualFunc(p.Lanes, first.Lanes, func(a, b Lane) bool {
		return slices.Equal(a.TX, b.TX) && slices.Equal(a.RX, b.RX)
	})
	// A chain links the instructions of one peer. If two peers become one, the chains differ.
	sameChains := slices.Equal(p.Next, first.Next)
	return sameCode && sameLanes && sameChains && slices.Equal(p.Local, first.Local)
}

// sameMaps reports whether p has the maps of the section's next repetition.
func (s *Section) sameMaps(p *Program) bool {
	var room circuit.Permutation
	for j, maps := range p.Configs {
		for k, c := range maps {
			if !s.Map(j, k, s.Count, &room).Equal(c) {
				return false
			}
		}
	}
	return true
}

// configAt returns the index of a plane's map at its first transmission of a schedule step or of a later step. Without
// such a transmission, it returns the last map.
func (tp *planeLine) configAt(step int) int {
	for i := range tp.entries {
		if tp.entries[i].step >= step {
			return tp.entries[i].config
		}
	}
	return len(tp.maps) - 1
}

// newProgram returns a program without instructions.
func newProgram(s *schedule.Schedule, a *Args) *Program {
	return &Program{
		Rank: a.Rank, Ranks: s.Ranks, ElemSize: a.ElemSize, Signature: a.Signature,
		ScratchBytes: int64(s.Blocks[schedule.Scratch]) * a.Count * a.ElemSize,
		block:        max(1, a.Count*a.ElemSize),
	}
}

// ascending reports whether step numbers ascend. Sections are ranges of steps, so they require it.
func ascending(stepOf []int) bool {
	last := math.MinInt
	for _, at := range stepOf {
		if at <= last {
			return false
		}
		last = at
	}
	return true
}
