package msccl

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"lightpath/collectives/schedule"
)

// Export returns a file with the algorithm of s. With inPlace, input and output overlap; a Disjoint schedule has no
// such file.
//
// A GPU has one thread block per send peer and per receive peer, on channel 0. A send peer and a receive peer share a
// thread block if the GPU always uses both together. Local moves have their own thread block.
//
// A step depends on the steps with which it conflicts. A send also depends on the sends of the previous step of s. So
// reading the file again gives at most as many steps as s has. Runtimes need only one slot per connection: each step
// waits only for steps that are earlier in the order (step of s, number of the message in its flow; sends, then
// receives, then local moves).
//
// Errors: [schedule.ErrIncorrect] if s is incorrect, [ErrExport].
func Export(s *schedule.Schedule, inPlace bool) (*File, error) {
	if inPlace && s.Disjoint {
		return nil, fmt.Errorf("%w: in place: the schedule requires disjoint buffers", ErrExport)
	}
	if err := schedule.Verify(s); err != nil {
		return nil, err
	}
	in, out := s.Collective.IOBlocks(s.Ranks)
	f := &File{
		Name: s.Algorithm, Proto: "Simple", Collective: s.Collective, Root: -1, InPlace: inPlace,
		Channels: 1, ChunksPerLoop: max(in, out) * s.Sub, GPUs: make([]GPU, s.Ranks),
	}
	if s.Collective.Rooted() {
		f.Root = s.Root
	}
	e := &exporter{s: s, inPlace: inPlace, ops: make([][]op, s.Ranks)}
	e.collect()
	for r := range e.ops {
		e.write(r, &f.GPUs[r])
	}
	if err := f.Validate(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrExport, err)
	}
	return f, nil
}

// op is a step of the file, before write assigns it to a thread block.
type op struct {
	Step
	peer        int
	time        [3]int // step of the schedule, number in its flow, phase
	block, slot int
	needs       []int // ops of the same rank that it waits for
}

// The phases of a step. Loads have step -1.
const (
	sending = iota
	receiving
	working
)

type exporter struct {
	s       *schedule.Schedule
	inPlace bool
	ops     [][]op // by rank, ordered by time
}

// collect converts the moves of the schedule to ops.
func (e *exporter) collect() {
	e.locals(-1, e.s.Pre)
	for t := range e.s.Steps {
		for _, flow := range e.s.Flows(t) {
			k := 0
			for i := range flow.Moves {
				for _, m := range pieces(&flow.Moves[i]) {
					kind := Recv
					if m.Reduce {
						kind = RRC
					}
					send := Step{Kind: Send, Src: m.From, Dst: m.To, Count: m.Count}
					e.add(m.Src, op{Step: send, peer: m.Dst, time: [3]int{t, k, sending}})
					st := Step{Kind: kind, Src: m.From, Dst: m.To, Count: m.Count}
					if m.Reduce {
						st.Src = m.To // runtimes reduce with the local src, and msccl-tools with dst
					}
					e.add(m.Dst, op{Step: st, peer: m.Src, time: [3]int{t, k, receiving}})
					k++
				}
			}
		}
		e.locals(t, e.s.Steps[t].Post)
	}
	e.locals(len(e.s.Steps), e.s.Post)
	for _, ops := range e.ops {
		slices.SortStableFunc(ops, func(a, b op) int { return slices.Compare(a.time[:], b.time[:]) })
	}
}

// locals adds local moves after the transfers of a step.
func (e *exporter) locals(t int, moves []schedule.Move) {
	for i := range moves {
		for _, m := range pieces(&moves[i]) {
			kind := Copy
			if m.Reduce {
				kind = Reduce
			}
			if kind == Copy && e.memory(m.Src, m.From) == e.memory(m.Src, m.To) {
				continue
			}
			st := Step{Kind: kind, Src: m.From, Dst: m.To, Count: m.Count}
			e.add(m.Src, op{Step: st, peer: -1, time: [3]int{t, 1 << 30, working}})
		}
	}
}

// pieces splits a move into moves of at most MaxCount chunks.
func pieces(m *schedule.Move) []schedule.Move {
	var out []schedule.Move
	for done := 0; done < m.Count; done += MaxCount {
		p := *m
		p.From.Chunk, p.To.Chunk, p.Count = m.From.Chunk+done, m.To.Chunk+done, min(MaxCount, m.Count-done)
		out = append(out, p)
	}
	return out
}

func (e *exporter) add(r int, o op) {
	o.DepBlock, o.DepStep = -1, -1
	e.ops[r] = append(e.ops[r], o)
}

// write sets the thread blocks of a rank.
func (e *exporter) write(r int, g *GPU) {
	ops := e.ops[r]
	g.Blocks = assign(ops)
	for b := range schedule.NumBuffers {
		g.Chunks[b] = e.s.BlocksAt(r, b) * e.s.Sub
	}
	e.depend(r, ops)
	// waited[a][b] is the last step of block b that block a has waited for.
	waited := make([][]int, len(g.Blocks))
	for b := range waited {
		waited[b] = slices.Repeat([]int{-1}, len(g.Blocks))
	}
	for i := range ops {
		o := &ops[i]
		block := &g.Blocks[o.block]
		latest := map[int]int{} // block -> step
		for _, j := range o.needs {
			if p := &ops[j]; p.block != o.block && p.slot > waited[o.block][p.block] {
				latest[p.block] = max(latest[p.block], p.slot)
				waited[o.block][p.block] = p.slot
			}
		}
		blocks := slices.Sorted(maps.Keys(latest))
		for k, b := range blocks {
			g.Blocks[b].Steps[latest[b]].HasDep = true
			if k == len(blocks)-1 {
				o.DepBlock, o.DepStep = b, latest[b]
				break
			}
			block.Steps = append(block.Steps, Step{
				Kind: Nop, DepBlock: b, DepStep: latest[b],
				Src: schedule.Ref{Buf: schedule.Input, Chunk: -1}, Dst: schedule.Ref{Buf: schedule.Output, Chunk: -1},
			})
		}
		o.slot = len(block.Steps)
		block.Steps = append(block.Steps, o.Step)
	}
}

// partners pairs the peers to which and from which a rank sends and receives at the same time, if each is the only one
// then: they share a thread block. The map leads from the receiver of a send to the sender of a receive.
func partners(ops []op) map[int]int {
	partner := map[int]int{}
	taken := map[int]bool{}
	for i := 0; i < len(ops); {
		t := ops[i].time[0]
		var to, from []int
		for ; i < len(ops) && ops[i].time[0] == t; i++ {
			switch o := &ops[i]; o.time[2] {
			case sending:
				to = append(to, o.peer)
			case receiving:
				from = append(from, o.peer)
			}
		}
		slices.Sort(to)
		slices.Sort(from)
		to, from = slices.Compact(to), slices.Compact(from)
		if len(to) != 1 || len(from) != 1 {
			continue
		}
		if _, ok := partner[to[0]]; !ok && !taken[from[0]] {
			partner[to[0]], taken[from[0]] = from[0], true
		}
	}
	return partner
}

// assign returns the thread blocks of a rank and assigns each op to one.
func assign(ops []op) []Block {
	partner := partners(ops)
	var blocks []Block
	bySend, byRecv, local := map[int]int{}, map[int]int{}, -1
	open := func(send, recv int) int {
		blocks = append(blocks, Block{Send: send, Recv: recv})
		if send >= 0 {
			bySend[send] = len(blocks) - 1
		}
		if recv >= 0 {
			byRecv[recv] = len(blocks) - 1
		}
		return len(blocks) - 1
	}
	for i := range ops {
		o := &ops[i]
		switch o.time[2] {
		case sending:
			b, ok := bySend[o.peer]
			if !ok {
				recv, shared := partner[o.peer]
				if _, exists := byRecv[recv]; !shared || exists {
					recv = -1
				}
				b = open(o.peer, recv)
			}
			o.block = b
		case receiving:
			b, ok := byRecv[o.peer]
			if !ok {
				b = open(-1, o.peer)
			}
			o.block = b
		default:
			if local < 0 {
				local = open(-1, -1)
			}
			o.block = local
		}
	}
	return blocks
}

// depend sets the ops that each op of a rank waits for. These are the last writer of each chunk that it uses, and all
// readers since then of each chunk that it writes. A send also waits for the sends of the last step before it with
// sends.
func (e *exporter) depend(r int, ops []op) {
	writer := map[schedule.Ref]int{}
	readers := map[schedule.Ref][]int{}
	lastStep, sends, earlier := -1, []int(nil), []int(nil)
	for i := range ops {
		o := &ops[i]
		read := func(ref schedule.Ref) {
			for k := range o.Count {
				at := e.memory(r, schedule.Ref{Buf: ref.Buf, Chunk: ref.Chunk + k})
				if w, ok := writer[at]; ok {
					o.needs = append(o.needs, w)
				}
				readers[at] = append(readers[at], i)
			}
		}
		if !o.Kind.receives() {
			read(o.Src)
		}
		if o.Kind.reduces() {
			read(o.Dst)
		}
		if o.Kind != Send {
			for k := range o.Count {
				at := e.memory(r, schedule.Ref{Buf: o.Dst.Buf, Chunk: o.Dst.Chunk + k})
				if w, ok := writer[at]; ok {
					o.needs = append(o.needs, w)
				}
				o.needs = append(o.needs, readers[at]...)
				writer[at] = i
				delete(readers, at)
			}
			o.needs = slices.DeleteFunc(o.needs, func(j int) bool { return j == i })
			continue
		}
		if o.time[0] != lastStep {
			lastStep, earlier, sends = o.time[0], sends, nil
		}
		o.needs = append(o.needs, earlier...)
		sends = append(sends, i)
	}
	for i := range ops {
		slices.SortFunc(ops[i].needs, func(a, b int) int { return cmp.Compare(b, a) })
		ops[i].needs = slices.Compact(ops[i].needs)
	}
}

// memory returns the chunk of Output for a chunk of Input that is the same memory in an in-place call, and ref
// otherwise.
func (e *exporter) memory(r int, ref schedule.Ref) schedule.Ref {
	if !e.inPlace || ref.Buf != schedule.Input {
		return ref
	}
	in, out, blocks := e.s.InPlace(r)
	if c := ref.Chunk - in*e.s.Sub; c >= 0 && c < blocks*e.s.Sub {
		return schedule.Ref{Buf: schedule.Output, Chunk: out*e.s.Sub + c}
	}
	return ref
}
