package shim

import (
	"lightpath/collectives/sharedmem"
	"lightpath/shim/calls"
	"lightpath/shim/dispatch"
)

// quickFlights is what a recorder knows of the calls that C makes: those leave records of their own, in
// the order in which they are made, and whoever looks into the recorder enters them first. So they cost
// their caller a record, and no lock.
type quickFlights struct {
	q      *sharedmem.Quick             // nil where C makes none
	shapes []quickShape                 // by recipe
	calls  [sharedmem.QuickKinds]uint64 // that have been counted, by kind
	// entered is how many records have been; the last of them had not ended where open is set, and is
	// the operation of that number.
	entered uint64
	open    uint64 // 0: they all had
}

// quickShape is what calls of one recipe are.
type quickShape struct {
	shape calls.Shape
	entry *dispatch.Entry
}

// follow has the recorder take the records of q, of which there are none yet.
func (f *recorder) follow(q *sharedmem.Quick) {
	f.mu.Lock()
	f.quick.q = q
	f.mu.Unlock()
}

// learn gives C a recipe, and says what it stands for. The communicator's lock is held: C has no part in it
// meanwhile.
func (f *recorder) learn(s quickShape, r *sharedmem.QuickRecipe) {
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

// adopt returns the number of the operation that C has begun and that goes on in Go, which ends it.
func (f *recorder) adopt() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.catchUp()
	f.quick.open = 0
	return f.last
}

// catchUp enters what C has done. f.mu is held.
// Hot path: no allocation after the first, nothing where C has made no call.
func (f *recorder) catchUp() {
	f.device.catchUp(f)
	k := &f.quick
	if k.q == nil {
		return
	}
	head := k.q.Records()
	if k.open != 0 {
		f.closeQuick(head)
	}
	if head == k.entered {
		return
	}
	if head-k.entered > f.size {
		f.last += head - k.entered - f.size // what nobody remembers
		k.entered = head - f.size
	}
	for k.entered < head {
		k.entered++
		op := f.next(0)
		op.outcome = completed
		r, ok := k.q.Record(k.entered)
		if !ok {
			op.number = 0 // overwritten
			continue
		}
		s := &k.shapes[r.Recipe]
		op.seq, op.shape, op.entry, op.arrived, op.ended = r.Seq, s.shape, s.entry, r.Begin, r.End
		if r.Done == 0 && k.entered == head {
			op.outcome, k.open = underWay, op.number
		}
	}
	for kind := range calls.NumKinds {
		n := k.q.Calls(int(kind))
		f.counts[kind] += n - k.calls[kind]
		k.calls[kind] = n
	}
}

// closeQuick ends the operation that had not ended, if it has meanwhile.
func (f *recorder) closeQuick(head uint64) {
	k := &f.quick
	r, ok := k.q.Record(k.entered)
	if r.Done == 0 && ok && head == k.entered {
		return
	}
	if op := f.at(k.open); op.number == k.open {
		op.ended, op.outcome = r.End, completed
		if !ok {
			op.ended = 0 // who knows
		}
	}
	k.open = 0
}
