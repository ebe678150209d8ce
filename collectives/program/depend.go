package program

import (
	"fmt"
	"slices"

	"lightpath/collectives/schedule"
)

// memory is the address of a byte. Buffers that overlap in an in-place call share a space.
type memory struct {
	space int
	off   int64
}

// at returns the address of a segment.
func (l *lowering) at(g Segment) memory {
	if g.Buf == schedule.Scratch {
		return memory{space: 2, off: g.Off}
	}
	in, out, blocks := l.s.InPlace(l.me)
	if !l.args.InPlace || blocks == 0 {
		return memory{space: int(g.Buf), off: g.Off}
	}
	block := l.args.Count * l.args.ElemSize
	if g.Buf == schedule.Output {
		return memory{off: g.Off + int64(in-out)*block}
	}
	return memory{off: g.Off}
}

func (l *lowering) sameMemory(a, b Segment) bool { return l.at(a) == l.at(b) && a.Len == b.Len }

// depend sets Deps. An instruction depends on each earlier one that writes what it reads, reads what it writes or
// writes what it writes.
//
// All boundaries of segments divide memory into cells, so an instruction accesses whole cells. For each cell the
// tracker keeps the last writer and the readers since then.
func (l *lowering) depend() error {
	t := tracker{l: l}
	t.cut()
	for id := range l.p.Code {
		if err := t.visit(ID(id)); err != nil {
			return err
		}
	}
	return nil
}

type tracker struct {
	l       *lowering
	bounds  [3][]int64 // by space, ascending
	cells   [3][]cell
	readers []reader // memory of the cells' lists
	deps    []ID
}

type cell struct {
	writer  ID
	readers int32 // head of a list in tracker.readers, -1 for none
}

type reader struct {
	in   ID
	next int32
}

func (t *tracker) cut() {
	for i := range t.l.p.Code {
		in := &t.l.p.Code[i]
		for _, list := range [2][]Segment{in.Src, in.Dst} {
			for _, g := range list {
				m := t.l.at(g)
				t.bounds[m.space] = append(t.bounds[m.space], m.off, m.off+g.Len)
			}
		}
	}
	for s := range t.bounds {
		slices.Sort(t.bounds[s])
		t.bounds[s] = slices.Compact(t.bounds[s])
		t.cells[s] = make([]cell, len(t.bounds[s]))
		for i := range t.cells[s] {
			t.cells[s][i] = cell{writer: None, readers: -1}
		}
	}
}

// covers returns the cells of g.
func (t *tracker) covers(g Segment) []cell {
	m := t.l.at(g)
	lo, _ := slices.BinarySearch(t.bounds[m.space], m.off)
	hi, _ := slices.BinarySearch(t.bounds[m.space], m.off+g.Len)
	return t.cells[m.space][lo:hi]
}

func (t *tracker) visit(id ID) error {
	in := &t.l.p.Code[id]
	t.deps = t.deps[:0]
	combines := in.Kind == RecvReduce || in.Kind == LocalReduce
	for _, g := range in.Src {
		if err := t.checkRead(id, g); err != nil {
			return err
		}
		t.read(id, g)
	}
	for _, g := range in.Dst {
		if err := t.write(id, g, combines); err != nil {
			return err
		}
	}
	slices.Sort(t.deps)
	t.deps = slices.Compact(t.deps)
	t.deps = t.reduce(t.deps)
	in.Deps = slices.Clone(t.deps)
	return nil
}

// checkRead returns an error for reads that dependencies cannot order. With Scale, only the first copies may read
// Input: scaled data is in Output or Scratch. A transfer must not read what another transfer of its step writes.
func (t *tracker) checkRead(id ID, g Segment) error {
	in := &t.l.p.Code[id]
	if t.l.args.Scale && g.Buf == schedule.Input && !in.Scale {
		return fmt.Errorf("program: step %d reads an unscaled input: %w", in.Step, ErrUnsupported)
	}
	for _, c := range t.covers(g) {
		if c.writer != None && t.l.phase[c.writer] == t.l.phase[id] {
			return fmt.Errorf("program: step %d reads what it writes: %w", in.Step, ErrSchedule)
		}
	}
	return nil
}

func (t *tracker) read(id ID, g Segment) {
	cells := t.covers(g)
	for i := range cells {
		c := &cells[i]
		if c.writer != None {
			t.deps = append(t.deps, c.writer)
		}
		t.readers = append(t.readers, reader{in: id, next: c.readers})
		c.readers = int32(len(t.readers) - 1)
	}
}

// write makes id the writer of the cells of g. It depends on the readers since the last write, which depend on that
// write themselves. Without readers it depends on the last write.
func (t *tracker) write(id ID, g Segment, combines bool) error {
	cells := t.covers(g)
	in := &t.l.p.Code[id]
	for i := range cells {
		c := &cells[i]
		if c.writer != None && (combines || c.readers < 0) {
			t.deps = append(t.deps, c.writer)
		}
		for r := c.readers; r >= 0; r = t.readers[r].next {
			by := t.readers[r].in
			if by == id {
				continue
			}
			// Waiting for a send of the same step could deadlock: the peer may wait for this rank in the same way, with
			// both directions full.
			if in.Kind != Copy && in.Kind != LocalReduce &&
				t.l.phase[by] == t.l.phase[id] && t.l.p.Code[by].Kind == Send {
				return fmt.Errorf("program: step %d receives over what it sends: %w", in.Step, ErrSchedule)
			}
			t.deps = append(t.deps, by)
		}
		c.writer, c.readers = id, -1
	}
	return nil
}

// maxReduce limits the input of reduce, which takes quadratic time.
const maxReduce = 64

// reduce removes dependencies that are also direct dependencies of another one.
func (t *tracker) reduce(deps []ID) []ID {
	if len(deps) < 2 || len(deps) > maxReduce {
		return deps
	}
	keep := deps[:0]
	for i, d := range deps {
		implied := false
		for _, later := range deps[i+1:] {
			if _, ok := slices.BinarySearch(t.l.p.Code[later].Deps, d); ok {
				implied = true
				break
			}
		}
		if !implied {
			keep = append(keep, d)
		}
	}
	return keep
}
