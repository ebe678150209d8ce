package msccl

import (
	"cmp"
	"slices"

	"lightpath/collectives/schedule"
	"lightpath/internal/heap"
)

// In a schedule, a block has parts whose sizes may differ by an element, and a move keeps the part number. In a file,
// all chunks have one size, and any chunk may hold any part. So a chunk of a file, called a place, maps to several
// chunks of the schedule's buffers, called cells. Its home cell holds the part that belongs there. Every other part
// that it ever holds has a cell in Scratch.

// place is a chunk of a buffer of a GPU of the file. If the file is in place, it may belong to two buffers.
type place struct {
	home      schedule.Ref
	hasHome   bool
	input     int32 // chunk of Input that it holds since the beginning, -1 for none
	part      int32 // part that it holds; -1 if undefined
	cell      int32 // cell of that part
	lastWrite int32 // level of the last node that wrote it
	lastRead  int32 // level of the last node that read it
}

// never is a step before all steps, including the local moves before the first (step -1).
const never = -2

// cell is a chunk of a schedule's buffer at a rank.
type cell struct {
	rank    int32
	ref     schedule.Ref
	part    int32
	staging bool    // placeStaging sets ref at the end
	since   int32   // for staging: the step that fills it
	last    int32   // the last step that uses it
	writes  []write // in the order of the nodes
}

// write is a write to a cell, which later nodes must respect.
type write struct {
	at    int32 // in the graph's order
	step  int32
	local bool // after the transfers of the step
}

// memory maps places to cells.
type memory struct {
	s     *schedule.Schedule
	base  [][2]int32 // per rank: first places of Input and Output
	alias []int32    // of a place of Input or Output: the place that represents it

	scratchPlaces map[[2]int32]int32 // (rank, chunk of scratch) -> place

	places []place
	cells  []cell
	others map[[2]int32]int32 // (place, part) -> cell in scratch
	used   [][]int32          // per rank and part: number of used chunks of scratch
}

// newMemory returns the layout of the buffers of f for the schedule s, whose Sub and Blocks are set. With direct, moves
// read Input itself; otherwise used input is loaded first.
func newMemory(f *File, s *schedule.Schedule, direct bool) *memory {
	m := &memory{s: s, others: map[[2]int32]int32{}, scratchPlaces: map[[2]int32]int32{}}
	for r := range s.Ranks {
		var base [2]int32
		for b := range base {
			base[b] = int32(len(m.places))
			for range s.Blocks[b] * s.Sub {
				m.alias = append(m.alias, m.newPlace())
			}
		}
		m.base = append(m.base, base)
		m.used = append(m.used, make([]int32, s.Sub))
		m.aliasInPlace(r, f.InPlace)
		m.fill(r, direct)
	}
	return m
}

// aliasInPlace makes places of Input and Output the same that overlap in an in-place call.
func (m *memory) aliasInPlace(r int, inPlace bool) {
	if !inPlace {
		return
	}
	in, out, blocks := m.s.InPlace(r)
	sub := m.s.Sub
	for c := range blocks * sub {
		m.alias[int(m.base[r][schedule.Input])+in*sub+c] = m.base[r][schedule.Output] + int32(out*sub+c)
	}
}

// fill sets the home and the input of each place.
func (m *memory) fill(r int, direct bool) {
	sub := m.s.Sub
	for c := range m.s.BlocksAt(r, schedule.Output) * sub {
		p := &m.places[int(m.base[r][schedule.Output])+c]
		p.home, p.hasHome = schedule.Ref{Buf: schedule.Output, Chunk: c}, true
	}
	for c := range m.s.BlocksAt(r, schedule.Input) * sub {
		p := &m.places[m.alias[int(m.base[r][schedule.Input])+c]]
		p.input = int32(c)
		if direct && !p.hasHome {
			p.home, p.hasHome = schedule.Ref{Buf: schedule.Input, Chunk: c}, true
			p.part, p.cell = int32(c%sub), m.newCell(r, c%sub, p.home)
		}
	}
}

func (m *memory) newPlace() int32 {
	m.places = append(m.places, place{input: -1, part: -1, cell: -1, lastWrite: -1, lastRead: -1})
	return int32(len(m.places) - 1)
}

// at returns the place of a chunk of a GPU.
func (m *memory) at(gpu int32, ref schedule.Ref) int32 {
	if ref.Buf != schedule.Scratch {
		return m.alias[int(m.base[gpu][ref.Buf])+ref.Chunk]
	}
	key := [2]int32{gpu, int32(ref.Chunk)}
	at, ok := m.scratchPlaces[key]
	if !ok {
		at = m.newPlace()
		m.scratchPlaces[key] = at
	}
	return at
}

func (m *memory) newCell(rank, part int, ref schedule.Ref) int32 {
	m.cells = append(m.cells, cell{rank: int32(rank), ref: ref, part: int32(part), last: never})
	return int32(len(m.cells) - 1)
}

// cellFor returns the cell of a part in a place of a rank.
func (m *memory) cellFor(rank, at int32, part int32) int32 {
	p := &m.places[at]
	key := [2]int32{at, part}
	if c, ok := m.others[key]; ok {
		return c
	}
	var ref schedule.Ref
	if p.hasHome && int32(p.home.Chunk%m.s.Sub) == part {
		ref = p.home
	} else {
		ref = m.scratch(rank, part)
	}
	c := m.newCell(int(rank), int(part), ref)
	m.others[key] = c
	return c
}

// scratch returns the next unused chunk of Scratch with a given part number.
func (m *memory) scratch(rank, part int32) schedule.Ref {
	block := int(m.used[rank][part])
	m.used[rank][part]++
	m.s.Blocks[schedule.Scratch] = max(m.s.Blocks[schedule.Scratch], block+1)
	return schedule.Ref{Buf: schedule.Scratch, Chunk: block*m.s.Sub + int(part)}
}

// stage returns a staging cell that a step fills.
func (m *memory) stage(rank, part, step int32) int32 {
	c := m.newCell(int(rank), int(part), schedule.Ref{})
	m.cells[c].staging, m.cells[c].since, m.cells[c].last = true, step, step
	return c
}

// placeStaging assigns chunks of Scratch to staging cells. Two cells may share a chunk if the later is filled after the
// last step that uses the earlier.
func (m *memory) placeStaging() {
	var staging []int32
	for i := range m.cells {
		if m.cells[i].staging {
			staging = append(staging, int32(i))
		}
	}
	slices.SortFunc(staging, func(a, b int32) int {
		return cmp.Or(cmp.Compare(m.cells[a].since, m.cells[b].since), cmp.Compare(a, b))
	})
	free := map[[2]int32]*heap.Heap[slot]{} // by rank and part
	for _, i := range staging {
		c := &m.cells[i]
		key := [2]int32{c.rank, c.part}
		have := free[key]
		if have == nil {
			have = new(heap.Heap[slot])
			free[key] = have
		}
		if len(*have) > 0 && (*have)[0].last < c.since {
			c.ref = have.Pop().ref
		} else {
			c.ref = m.scratch(c.rank, c.part)
		}
		have.Push(slot{c.ref, c.last})
	}
}

// slot is a chunk of Scratch for staging cells, and the last step that uses it.
type slot struct {
	ref  schedule.Ref
	last int32
}

// Before orders by the last use, then by place, so that consecutive cells get consecutive chunks.
func (a slot) Before(b slot) bool {
	return a.last < b.last || a.last == b.last && a.ref.Chunk < b.ref.Chunk
}

// touch records that a step uses a cell.
func (m *memory) touch(c, step int32) { m.cells[c].last = max(m.cells[c].last, step) }

// written records a write.
func (m *memory) written(c int32, w write) {
	m.touch(c, w.step)
	m.cells[c].writes = append(m.cells[c].writes, w)
}
