package msccl

import (
	"fmt"
	"slices"

	"lightpath/collectives/schedule"
)

// Schedule returns the schedule of f and proves it with [schedule.Verify]. Only rooted collectives read root. Equal
// files give equal schedules, also if the file leaves an order open. The caller owns the schedule.
//
// Every send is in the first step after all steps that it waits for. Consecutive sends of a thread block are one flow
// of one step. The alternative is a pipeline with a step for each send; Schedule chooses it if the busiest rank then
// sends and receives less, summed over the steps. A message that arrives before its receiver is ready stays in Scratch.
//
// The file may leave the order of two conflicting steps open. Then the step with the lower level comes first, at equal
// levels the step with the lower gpu, tb and step.
//
// Errors: those of [File.Validate], [ErrDeadlock], [ErrMismatch] for a wrong root and for a custom file (see
// [File.As]), and [schedule.ErrIncorrect] if f does not compute its collective.
func (f *File) Schedule(root int, opts ...schedule.Option) (*schedule.Schedule, error) {
	if err := f.Validate(); err != nil {
		return nil, err
	}
	if f.Custom {
		return nil, fmt.Errorf("%w: coll: custom, want a collective", ErrMismatch)
	}
	if !f.Collective.Rooted() {
		root = 0
	} else if f.Root >= 0 && root != f.Root {
		return nil, fmt.Errorf("%w: root: %d, want %d", ErrMismatch, f.Root, root)
	}
	if root < 0 || root >= f.Ranks() {
		return nil, fmt.Errorf("%w: %d of %d ranks", schedule.ErrRoot, root, f.Ranks())
	}
	disjoint := slices.Contains(opts, schedule.Disjoint)
	for _, u := range []inputUse{readInPlace, copyFrom} {
		if u == readInPlace && !f.readsInput() {
			continue
		}
		s, err := f.build(root, u, disjoint)
		if err != nil || schedule.Verify(s) == nil {
			return s, err
		}
	}
	s, err := f.build(root, loadFirst, disjoint)
	if err == nil {
		err = schedule.Verify(s)
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// inputUse selects the moves that may read Input. More of them mean fewer copies, but an in-place call may overwrite
// input before it is read.
type inputUse int

const (
	loadFirst   inputUse = iota // only Pre moves, which load all used input
	copyFrom                    // also copy steps of the file that do not wait
	readInPlace                 // all steps of the file that read input
)

// build returns the better of two schedules: with consecutive sends as one flow, and as a pipeline.
func (f *File) build(root int, use inputUse, disjoint bool) (*schedule.Schedule, error) {
	flows, err := f.arrange(root, use, true, disjoint)
	if err != nil {
		return nil, err
	}
	pipeline, err := f.arrange(root, use, false, disjoint)
	if err != nil {
		return nil, err
	}
	if pipeline.Volume() < flows.Volume() {
		return pipeline, nil
	}
	return flows, nil
}

// readsInput reports whether no step of the file writes its input and steps of the collective may read it.
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

func (f *File) arrange(root int, use inputUse, batchSends bool, disjoint bool) (*schedule.Schedule, error) {
	sub, err := f.sub()
	if err != nil {
		return nil, err
	}
	s := &schedule.Schedule{
		Collective: f.Collective, Algorithm: f.Identity(), Ranks: f.Ranks(), Root: root, Sub: sub, Disjoint: disjoint,
	}
	s.Blocks[schedule.Input], s.Blocks[schedule.Output] = f.Collective.IOBlocks(f.Ranks())
	g, err := newGraph(f, batchSends)
	if err != nil {
		return nil, err
	}
	b := &importer{
		graph: g, memory: newMemory(f, s, use == readInPlace), use: use,
		sentCells: make([][]int32, len(g.nodes)), position: make([]int32, len(g.nodes)),
	}
	b.keepUnusedSums()
	for at, i := range g.order {
		b.position[i] = int32(at)
		if err := b.run(i); err != nil {
			return nil, fmt.Errorf("%w: %s: %w", schedule.ErrIncorrect, g.name(int(i)), err)
		}
	}
	b.finish()
	if places := s.Blocks[schedule.Scratch] * sub * s.Ranks; places > maxScratch {
		return nil, fmt.Errorf("%w: the steps need scratch of %d chunks on all gpus together, want at most %d",
			ErrFormat, places, maxScratch)
	}
	return s, nil
}
