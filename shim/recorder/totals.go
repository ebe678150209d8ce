package recorder

import (
	"math/bits"

	"lightpath/shim/calls"
	"lightpath/shim/dispatch"
	"lightpath/shim/status"
)

// totals sums up completed operations whose times are known.
type totals struct {
	ranks int
	until int64 // the latest end of an operation
	// By kind and class of sizes. Class i has sizes of at most 4^i bytes. Groups of messages are under calls.Send.
	of [calls.EndOfKinds][classes][]total
}

const classes = 32

// total is the sum of operations of one algorithm.
type total struct {
	algorithm          string
	count, bytes, time uint64 // time in nanoseconds
}

// Measure makes the recorder sum up the operations of a communicator of so many ranks, for [Recorder.Totals]. Call it
// before the first operation.
func (f *Recorder) Measure(ranks int) {
	f.mu.Lock()
	f.totals = &totals{ranks: ranks}
	f.mu.Unlock()
}

// Timing returns the value of [sharedmem.Quick.Timed] for calls that C makes.
func (f *Recorder) Timing() uint32 {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case !f.Timed:
		return 0
	case f.totals == nil:
		return 1
	}
	return 2
}

// Totals returns the sums by call, size and algorithm; none without [Recorder.Measure]. Operations without times are
// not in them: replays that only the GPU counts, and all if LIGHTPATH_FLIGHT_RECORDER is 0.
func (f *Recorder) Totals() (all []status.Total) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.catchUp()
	t := f.totals
	if t == nil {
		return nil
	}
	f.sumQuick()
	for kind := range calls.EndOfKinds {
		name, bus := kind.String(), 1.0
		switch {
		case kind == calls.Send:
			name = groupName
		case kind < calls.Send:
			bus = calls.Kinds[kind].Collective.BusFactor(t.ranks)
		}
		for class, list := range t.of[kind] {
			for _, one := range list {
				a := status.Total{Call: name, Size: 1 << (2 * class), Algorithm: one.algorithm, Count: one.count,
					Bytes: one.bytes, BusBytes: float64(one.bytes) * bus, Seconds: float64(one.time) / 1e9}
				if one.time > 0 {
					a.AlgBW, a.BusBW = float64(a.Bytes)/float64(one.time), a.BusBytes/float64(one.time)
				}
				all = append(all, a)
			}
		}
	}
	return all
}

// ended adds an operation that has completed. Operations on a stream, or in a group, wait for each other. So the time
// of an operation begins with the end of the one before, if that is later than the call: no time counts twice.
// Hot path: no allocation after the first of a kind, size and algorithm.
func (t *totals) ended(op *Operation) {
	if op.Arrived == 0 || op.Ended == 0 {
		return
	}
	begin := max(op.Arrived, t.until)
	t.until = max(t.until, op.Ended)
	kind, bytes := op.Shape.Kind, uint64(op.Bytes)
	switch {
	case op.IsCollective():
		bytes = t.bytesOf(&op.Shape)
	case !kind.OneSided():
		kind = calls.Send
	}
	t.add(kind, bytes, op.Entry, 1, uint64(max(op.Ended-begin, 0)))
}

// bytesOf returns the size of a collective as nccl-tests counts it.
func (t *totals) bytesOf(s *calls.Shape) uint64 {
	return s.Count * uint64(s.Type.Size()*calls.Kinds[s.Kind].Collective.SizeBlocks(t.ranks))
}

// add adds so many operations of the same size. Hot path.
func (t *totals) add(kind calls.Kind, bytes uint64, e *dispatch.Entry, count, time uint64) {
	algorithm := ""
	if e != nil {
		algorithm = e.Algorithm
	}
	class := min((bits.Len64(max(bytes, 1)-1)+1)/2, classes-1)
	list := &t.of[kind][class]
	i := 0
	for i < len(*list) && (*list)[i].algorithm != algorithm { // there are one or two
		i++
	}
	if i == len(*list) {
		*list = append(*list, total{algorithm: algorithm})
	}
	one := &(*list)[i]
	one.count, one.bytes, one.time = one.count+count, one.bytes+count*bytes, one.time+time
}

// sumQuick adds the calls that C has made since its last run. The caller holds f.mu.
func (f *Recorder) sumQuick() {
	if f.totals == nil {
		return
	}
	k := &f.quick
	for i := range k.shapes {
		s := &k.shapes[i]
		count, time := k.q.Measured(i)
		if count > s.count {
			f.totals.add(s.Shape.Kind, f.totals.bytesOf(&s.Shape), s.Entry, count-s.count, time-s.time)
			s.count, s.time = count, time
		}
	}
}
