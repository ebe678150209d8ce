package recorder

import (
	"lightpath/collectives/sharedmem"
	"lightpath/shim/calls"
	"lightpath/shim/dispatch"
)

// quick is the record of the calls that C makes. C leaves a record of each, in order, and a reader of the recorder
// enters them first. So a call costs one record, and no lock.
type quick struct {
	q      *sharedmem.Quick             // nil where C makes none
	shapes []Recipe                     // by recipe
	calls  [sharedmem.QuickKinds]uint64 // that have been counted, by kind
	// entered is how many records have been; the last of them had not ended where open is set, and is
	// the operation of that number.
	entered uint64
	open    uint64 // 0: they all had
}

// Recipe is what calls of one recipe are.
type Recipe struct {
	Shape calls.Shape
	Entry *dispatch.Entry
}

// FollowC has the recorder take the records of q, of which there are none yet.
func (f *Recorder) FollowC(q *sharedmem.Quick) {
	f.mu.Lock()
	f.quick.q = q
	f.mu.Unlock()
}

// Learn gives C a recipe, and says what it stands for. The communicator's lock is held: C has no part in it
// meanwhile.
func (f *Recorder) Learn(s Recipe, r *sharedmem.QuickRecipe) {
	f.mu.Lock()
	f.catchUp() // while recipes are what records say
	k := &f.quick
	if k.q.Full() {
		clear(k.shapes)
		k.shapes = k.shapes[:0]
	}
	k.q.Learn(r)
	k.shapes = append(k.shapes, s)
	f.mu.Unlock()
}

// Adopt returns the number of the operation that C has begun and that goes on in Go, which ends it.
func (f *Recorder) Adopt() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.catchUp()
	f.quick.open = 0
	return f.last
}

// enterQuick enters the calls that C has made. f.mu is held. Hot path: no allocation after the first.
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

// closeQuick ends the operation that had not ended, if it has meanwhile.
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
