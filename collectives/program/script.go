package program

import (
	"fmt"
	"slices"
)

// Area is the Segment.Buf of a script's own memory. It holds packed messages to send, and received messages that must
// still be combined or scattered.
const Area = Messages + 1

// Script is a program for libraries such as NCCL, which send and receive groups of whole messages on streams. It is
// immutable.
//
// A script has a lane per plane. The batches of a lane run one after another. A batch begins after the batches of other
// lanes in Wait have ended. The first lane also does the local work. Batches lists each batch after the batches in its
// Wait, in the same order of steps and planes on all ranks. So running them one by one cannot deadlock.
type Script struct {
	*Program
	Batches []Batch
	// Stages has an element per lane and map, as Program.Configs. Packet planes have one stage per lane.
	Stages [][]ScriptStage
	// AreaBytes is the size of Area.
	AreaBytes int64
}

// Batch is local work, followed by one group of messages that run concurrently.
type Batch struct {
	Lane      int
	Config    int   // index of the plane's map for the messages
	Wait      []int // batches of other lanes that must have ended before
	Work      []Work
	Transfers []Transfer
	// First and Last are set for the first and last batch with messages of the lane under its Config.
	First, Last bool
	// Marked is set if a batch of another lane waits for this one.
	Marked bool
}

// ScriptStage is the time during which a plane has one map.
type ScriptStage struct {
	Batches int // number of batches with messages
	// Moves is set if the rank takes part in the reconfiguration at the end of the stage.
	Moves bool
}

// Work is local: Dst = A, or Dst = A op B if Reduce is set. The segments have the same length.
type Work struct {
	Dst, A, B Segment
	Reduce    bool
	Scale     bool // multiply A by the call's factor, as Instruction.Scale
}

// Transfer is one message to or from Peer. Both ranks of a pair have their messages in the same order.
type Transfer struct {
	Peer int32
	Send bool
	At   Segment
}

// NewScript returns the script of a program. It returns [ErrUnsupported] if the program forwards.
func NewScript(p *Program) (*Script, error) {
	b := scripter{
		s:     &Script{Program: p, Stages: make([][]ScriptStage, len(p.Lanes))},
		where: make([]int, len(p.Code)),
		known: make([][]int, len(p.Lanes)),
		area:  make([]int64, len(p.Lanes)), landing: map[ID]int64{},
	}
	for i := range b.where {
		b.where[i] = -1
	}
	for j := range p.Lanes {
		if err := b.stages(j); err != nil {
			return nil, err
		}
		b.known[j] = slices.Repeat([]int{-1}, len(p.Lanes))
	}
	for at := 0; at < len(p.Code); {
		end := at
		for end < len(p.Code) && (p.Code[end].Kind == Reconfigure || p.Code[end].Step == p.Code[at].Step) {
			end++
		}
		if p.Code[at].Kind == Reconfigure {
			at++ // Stages describes it
			continue
		}
		b.step(ID(at), ID(end))
		at = end
	}
	b.finish()
	return b.s, b.err
}

// scripter is the state of one call of NewScript.
type scripter struct {
	s     *Script
	where []int // by instruction: number of the batch that completes it, or -1
	// known[j][k] is the latest batch of lane k that has ended before the next batch of lane j. after[i] is the value
	// of known for the lane of batch i after that batch.
	known   [][]int
	after   [][]int
	landing map[ID]int64 // by receive: offset of its message in the lane's area
	area    []int64      // by lane: bytes of its area
	used    []int64      // by lane: bytes of its area that the present step uses
	err     error        // first order of instructions that batches cannot have
}

// stages sets the stages of a lane.
func (b *scripter) stages(j int) error {
	p := b.s.Program
	n := 1
	if j < len(p.Configs) {
		n = len(p.Configs[j])
	}
	b.s.Stages[j] = make([]ScriptStage, n)
	for _, id := range p.Lanes[j].TX {
		switch in := &p.Code[id]; in.Kind {
		case Forward:
			return fmt.Errorf("program: a script cannot forward from rank %d to rank %d: %w",
				in.Peer, in.FlowDst, ErrUnsupported)
		case Reconfigure:
			b.s.Stages[j][in.Config-1].Moves = in.Moves
		default:
			if err := b.checkCircuit(in, p.Rank, int(in.Peer)); err != nil {
				return err
			}
		}
	}
	for _, id := range p.Lanes[j].RX {
		if err := b.checkCircuit(&p.Code[id], int(p.Code[id].Peer), p.Rank); err != nil {
			return err
		}
	}
	return nil
}

// checkCircuit returns an error if other ranks must forward the message of an instruction.
func (b *scripter) checkCircuit(in *Instruction, from, to int) error {
	if p := b.s.Program; p.Configs != nil && p.Configs[in.Plane][in.Config][from] != to {
		return fmt.Errorf("program: a script cannot send from rank %d to rank %d through other ranks: %w",
			from, to, ErrUnsupported)
	}
	return nil
}

// step adds the batches of one step: messages, local moves before any receive, work on the received messages in the
// area, and the other local moves.
func (b *scripter) step(from, to ID) {
	p := b.s.Program
	b.used = resize(b.used, len(p.Lanes))
	clear(b.used)
	var own, post []ID
	landed := make([][]ID, len(p.Lanes))
	transfers, received := map[[2]int][]ID{}, false
	for id := from; id < to; id++ {
		switch in := &p.Code[id]; in.Kind {
		case Send, Recv, RecvReduce:
			received = received || in.Kind != Send
			key := [2]int{int(in.Plane), int(in.Config)}
			transfers[key] = append(transfers[key], id)
		case Copy, LocalReduce:
			if received {
				post = append(post, id)
			} else {
				own = append(own, id)
			}
		}
	}
	for j := range p.Lanes {
		for c := range b.s.Stages[j] {
			if ids := transfers[[2]int{j, c}]; ids != nil {
				landed[j] = append(landed[j], b.transfer(j, c, ids)...)
			}
		}
	}
	b.local(own)
	for j, ids := range landed {
		b.unpack(j, ids)
	}
	b.local(post)
	for j, n := range b.used {
		b.area[j] = max(b.area[j], n)
	}
}

// add appends a batch that depends on instructions, and returns its number. It sets Wait for the batches of other lanes
// that complete these instructions.
func (b *scripter) add(batch Batch, deps []ID) int {
	j, n := batch.Lane, len(b.s.Batches)
	for _, d := range deps {
		w := b.where[d]
		if w < 0 {
			b.err = fmt.Errorf("program: batch %d of a script waits for instruction %d, which comes later: %w",
				n, d, ErrSchedule)
			continue
		}
		lane := b.s.Batches[w].Lane
		if lane == j || b.known[j][lane] >= w {
			continue
		}
		batch.Wait = append(batch.Wait, w)
		for k, seen := range b.after[w] {
			b.known[j][k] = max(b.known[j][k], seen)
		}
	}
	batch.Wait = b.latest(batch.Wait)
	for _, w := range batch.Wait {
		b.s.Batches[w].Marked = true
	}
	b.known[j][j] = n
	b.after = append(b.after, slices.Clone(b.known[j]))
	b.s.Batches = append(b.s.Batches, batch)
	return n
}

// latest returns the last batch of each lane.
func (b *scripter) latest(batches []int) []int {
	var kept []int
	slices.Sort(batches)
	for i, w := range batches {
		later := slices.ContainsFunc(batches[i+1:], func(v int) bool {
			return b.s.Batches[v].Lane == b.s.Batches[w].Lane
		})
		if !later {
			kept = append(kept, w)
		}
	}
	return kept
}

// alloc allocates bytes of the lane's area, with the same alignment as segment like.
func (b *scripter) alloc(j int, bytes int64, like Segment) Segment {
	at := (b.used[j]+15)&^15 + like.Off&15
	b.used[j] = at + bytes
	return Segment{Buf: Area, Msg: int32(j), Off: at, Len: bytes}
}

// transfer adds the messages of a lane in one step and under one map. It returns the receives into the area. A receive
// uses the area if its message is combined or scattered, or if it depends on an instruction that may end after the
// batch begins.
func (b *scripter) transfer(j, config int, ids []ID) (landed []ID) {
	p := b.s.Program
	batch := Batch{Lane: j, Config: config}
	var deps []ID
	for _, id := range ids {
		in := &p.Code[id]
		t := Transfer{Peer: in.Peer, Send: in.Kind == Send}
		switch {
		case t.Send && len(in.Src) == 1:
			t.At = in.Src[0]
			deps = append(deps, in.Deps...)
		case t.Send:
			t.At = b.alloc(j, in.Bytes, Segment{})
			batch.Work = append(batch.Work, pieces(in.Src, t.At, func(of, area Segment) Work {
				return Work{Dst: area, A: of}
			})...)
			deps = append(deps, in.Deps...)
		case in.Kind == Recv && len(in.Dst) == 1 && b.ended(in.Deps):
			t.At = in.Dst[0]
			deps = append(deps, in.Deps...)
		default:
			t.At = b.alloc(j, in.Bytes, in.Dst[0])
			b.landing[id] = t.At.Off
			landed = append(landed, id)
		}
		batch.Transfers = append(batch.Transfers, t)
	}
	n := b.add(batch, deps)
	for _, id := range ids {
		if _, lands := b.landing[id]; !lands {
			b.where[id] = n
		}
	}
	b.s.Stages[j][config].Batches++
	return landed
}

// ended reports whether the batches so far complete all of the instructions.
func (b *scripter) ended(deps []ID) bool {
	return !slices.ContainsFunc(deps, func(d ID) bool { return b.where[d] < 0 })
}

// unpack adds a batch that combines or scatters messages in the area.
func (b *scripter) unpack(j int, ids []ID) {
	if len(ids) == 0 {
		return
	}
	p := b.s.Program
	batch := Batch{Lane: j}
	var deps []ID
	for _, id := range ids {
		in := &p.Code[id]
		deps = append(deps, in.Deps...)
		at := Segment{Buf: Area, Msg: int32(j), Off: b.landing[id], Len: in.Bytes}
		i := 0
		batch.Work = append(batch.Work, pieces(in.Dst, at, func(of, area Segment) Work {
			w := Work{Dst: of, A: area}
			if in.Kind == RecvReduce {
				w.A, w.B, w.Reduce = of, area, true
				if in.Init != nil && in.Init[i].Len > 0 {
					w.A = in.Init[i]
				}
			}
			i++
			return w
		})...)
	}
	n := b.add(batch, deps)
	for _, id := range ids {
		b.where[id] = n
	}
}

// pieces calls pair for each segment with the corresponding part of a segment of the area.
func pieces(list []Segment, area Segment, pair func(of, area Segment) Work) []Work {
	var work []Work
	for _, g := range list {
		part := area
		part.Len = g.Len
		area.Off += g.Len
		work = append(work, pair(g, part))
	}
	return work
}

// local adds a batch of local moves, which run in order.
func (b *scripter) local(ids []ID) {
	if len(ids) == 0 {
		return
	}
	p := b.s.Program
	var batch Batch
	var deps []ID
	for _, id := range ids {
		in := &p.Code[id]
		for _, d := range in.Deps {
			if !slices.Contains(ids, d) {
				deps = append(deps, d)
			}
		}
		for i, src := range in.Src {
			w := Work{Dst: in.Dst[i], A: src, Scale: in.Scale}
			if in.Kind == LocalReduce {
				w = Work{Dst: in.Dst[i], A: in.Dst[i], B: src, Reduce: true}
			}
			batch.Work = append(batch.Work, w)
		}
	}
	n := b.add(batch, deps)
	for _, id := range ids {
		b.where[id] = n
	}
}

// finish assigns offsets to the areas of the lanes, and sets First and Last.
func (b *scripter) finish() {
	base := make([]int64, len(b.area))
	for j, n := range b.area {
		base[j] = b.s.AreaBytes
		b.s.AreaBytes += (n + 255) &^ 255
	}
	move := func(g *Segment) {
		if g.Buf == Area && g.Len > 0 {
			g.Off += base[g.Msg]
			g.Msg = 0
		}
	}
	last := make(map[[2]int]int)
	for i := range b.s.Batches {
		batch := &b.s.Batches[i]
		for k := range batch.Work {
			w := &batch.Work[k]
			move(&w.Dst)
			move(&w.A)
			move(&w.B)
		}
		for k := range batch.Transfers {
			move(&batch.Transfers[k].At)
		}
		if len(batch.Transfers) == 0 {
			continue
		}
		key := [2]int{batch.Lane, batch.Config}
		_, seen := last[key]
		batch.First = !seen
		last[key] = i
	}
	for _, i := range last {
		b.s.Batches[i].Last = true
	}
}
