package recorder

import (
	"lightpath/collectives/sharedmem"
	"lightpath/shim/calls"
	"lightpath/shim/dispatch"
)

// quick is the recorder's part for calls that C makes. C writes a record of each call, in order, and a reader of the
// recorder enters these records first. So a call costs one record and no lock.
type quick struct {
	q      *sharedmem.Quick             // nil where C makes none
	shapes []learnt                     // by recipe
	calls  [sharedmem.QuickKinds]uint64 // that have been counted, by kind
	// entered is the number of records entered so far. If open is set, the last of them had not ended; open is its
	// operation.
	entered uint64
	open    uint64 // 0: they all had
}

// Recipe describes the calls of one recipe.
type Recipe struct {
	Shape calls.Shape
	Entry *dispatch.Entry
}

// learnt is a recipe that C has, and the part of its calls and nanoseconds that is in the totals.
type learnt struct {
	Recipe
	count, time uint64
}

// FollowC makes the recorder enter the records of q, which must be empty.
func (f *Recorder) FollowC(q *sharedmem.Quick) {
	f.mu.Lock()
	f.quick.q = q
	f.mu.Unlock()
}

// Learn gives C a recipe, and records the calls that it stands for. The caller holds the communicator's turn, so C
// makes no calls meanwhile.
func (f *Recorder) Learn(s Recipe, r *sharedmem.QuickRecipe) {
	f.mu.Lock()
	f.catchUp() // before the new recipe replaces one that records refer to
	k := &f.quick
	if k.q.Full() {
		f.sumQuick()
		clear(k.shapes)
		k.shapes = k.shapes[:0]
	}
	k.q.Learn(r)
	k.shapes = append(k.shapes, learnt{Recipe: s})
	f.mu.Unlock()
}

// Adopt returns the number of an operation that C has begun. Go continues and ends it.
func (f *Recorder) Adopt() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.catchUp()
	f.quick.open = 0
	return f.last
}

// enterQuick enters the calls that C has made. The caller holds f.mu. Hot path: no allocation after the first run.
func (f *Recorder) enterQuick() {
	k := &f.quick
	head := k.q.Records()
	if k.open != 0 {
		f.closeQuick(head)
	}
	if head == k.entered {
		return
	}
	if head-k.entered > f.Size {
		f.last += head - k.entered - f.Size // the records that the recorder has lost
		k.entered = head - f.Size
	}
	for k.entered < head {
		k.entered++
		op := f.next(0)
		op.Outcome = Completed
		r, ok := k.q.Record(k.entered)
		if !ok {
			op.Number = 0 // overwritten
			continue
		}
		s := &k.shapes[r.Recipe]
		op.Seq, op.Shape, op.Entry, op.Arrived, op.Ended = r.Seq, s.Shape, s.Entry, r.Begin, r.End
		f.seq = r.Seq
		if r.Done == 0 && k.entered == head {
			op.Outcome, k.open = UnderWay, op.Number
		}
	}
	for kind := range calls.NumKinds {
		n := k.q.Calls(int(kind))
		f.counts[kind] += n - k.calls[kind]
		k.calls[kind] = n
	}
}

// closeQuick ends the open operation, if it has ended meanwhile.
func (f *Recorder) closeQuick(head uint64) {
	k := &f.quick
	r, ok := k.q.Record(k.entered)
	if r.Done == 0 && ok && head == k.entered {
		return
	}
	if op := f.at(k.open); op.Number == k.open {
		op.Ended, op.Outcome = r.End, Completed
		if !ok {
			op.Ended = 0 // who knows
		}
	}
	k.open = 0
}
