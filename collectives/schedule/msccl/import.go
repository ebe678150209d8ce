package msccl

import (
	"fmt"

	"lightpath/collectives/schedule"
)

// Schedule returns the schedule that f states, proven by [schedule.Verify]. root is that of a
// rooted collective. Results are combined in one order, whatever the file leaves open, so equal
// files give equal schedules; they are the caller's.
//
// Steps: every send is in the first step after all that it waits for. What a thread block sends in
// a row is one flow of one step, unless a pipeline (a step for each) makes the busiest rank send and
// receive less, step after step. A message arrives when its receiver is ready for it, or lies in
// Scratch until then. Where the file leaves the order of two conflicting steps open, the one that can run in an
// earlier step comes first, then the one of the lower gpu, tb and step.
//
// Errors: those of [File.Validate], [ErrDeadlock], [ErrMismatch] for a root that is not the
// file's and for a custom file (see [File.As]), [schedule.ErrIncorrect] where f computes something else than it says.
func (f *File) Schedule(root int, opts ...schedule.Option) (*schedule.Schedule, error) {
	if err := f.Validate(); err != nil {
		return nil, err
	}
	if f.Custom {
		return nil, fmt.Errorf("%w: coll: it is custom: it must be taken as a collective first", ErrMismatch)
	}
	if !f.Collective.Rooted() {
		root = 0
	} else if f.Root >= 0 && root != f.Root {
		return nil, fmt.Errorf("%w: root: it has root %d, not %d", ErrMismatch, f.Root, root)
	}
	if root < 0 || root >= f.Ranks() {
		return nil, fmt.Errorf("%w: %d of %d ranks", schedule.ErrRoot, root, f.Ranks())
	}
	set := schedule.Apply(opts...)
	if set.Order != nil {
		return nil, fmt.Errorf("%w: a file has its own", schedule.ErrOrder)
	}
	for _, u := range []inputUse{readInPlace, copyFrom} {
		if u == readInPlace && !f.readsInput() {
			continue
		}
		s, err := f.build(root, u, set)
		if err != nil || schedule.Verify(s) == nil {
			return s, err
		}
	}
	s, err := f.build(root, loadFirst, set)
	if err == nil {
		err = schedule.Verify(s)
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// inputUse says what may read Input. The less, the more is copied; the more, the likelier an
// in-place call overwrites what is still to be read.
type inputUse int

const (
	loadFirst   inputUse = iota // all that is used of it is loaded before anything else
	copyFrom                    // copies that wait for nothing read it too
	readInPlace                 // whatever reads the input of the file
)

// build returns the better of the two schedules that differ in what sends in a row mean.
func (f *File) build(root int, use inputUse, set schedule.Settings) (*schedule.Schedule, error) {
	flows, err := f.arrange(root, use, true, set)
	if err != nil {
		return nil, err
	}
	pipeline, err := f.arrange(root, use, false, set)
	if err != nil {
		return nil, err
	}
	if volume(pipeline) < volume(flows) {
		return pipeline, nil
	}
	return flows, nil
}

// volume returns the sum over the steps of the most chunks that a rank sends or receives.
func volume(s *schedule.Schedule) (sum int) {
	sent, received := make([]int, s.Ranks), make([]int, s.Ranks)
	for t := range s.Steps {
		clear(sent)
		clear(received)
		busiest := 0
		for i := range s.Steps[t].Transfers {
			m := &s.Steps[t].Transfers[i]
			sent[m.Src] += m.Count
			received[m.Dst] += m.Count
			busiest = max(busiest, sent[m.Src], received[m.Dst])
		}
		sum += busiest
	}
	return sum
}

// readsInput reports whether a file only ever reads its input, and in a collective that lets
// steps do so.
func (f *File) readsInput() bool {
	if f.InPlace || f.Collective.Reduces() {
		return false
	}
	for g := range f.GPUs {
		for t := range f.GPUs[g].Blocks {
			for i := range f.GPUs[g].Blocks[t].Steps {
				st := &f.GPUs[g].Blocks[t].Steps[i]
				if st.Dst.Buf == schedule.Input && st.Kind != Send && st.Kind != Nop {
					return false
				}
			}
		}
	}
	return true
}

func (f *File) arrange(root int, use inputUse, inARow bool, set schedule.Settings) (*schedule.Schedule, error) {
	sub, err := f.sub()
	if err != nil {
		return nil, err
	}
	s := &schedule.Schedule{Collective: f.Collective, Algorithm: f.Identity(), Ranks: f.Ranks(), Root: root, Sub: sub, Disjoint: set.Disjoint}
	s.Blocks[schedule.Input], s.Blocks[schedule.Output] = f.Collective.IOBlocks(f.Ranks())
	g, err := newGraph(f, inARow)
	if err != nil {
		return nil, err
	}
	b := &importer{graph: g, memory: newMemory(f, s, use == readInPlace), use: use, held: make([][]int32, len(g.nodes)), turn: make([]int32, len(g.nodes))}
	b.keepDeadSums()
	for at, i := range g.order {
		b.turn[i] = int32(at)
		if err := b.run(i); err != nil {
			return nil, fmt.Errorf("%w: %s: %w", schedule.ErrIncorrect, g.name(int(i)), err)
		}
	}
	b.finish()
	return s, nil
}
