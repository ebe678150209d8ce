package recorder

import (
	"lightpath/collectives/program"
	"lightpath/shim/calls"
	"lightpath/shim/dispatch"
)

// AddGroup records a group of sends and receives.
func (f *Recorder) AddGroup(sends, recvs []program.Message) uint64 {
	var bytes int64
	for _, list := range [2][]program.Message{sends, recvs} {
		for i := range list {
			bytes += list[i].Bytes
		}
	}
	return f.addMessages(MessageCount{uint64(len(sends)), uint64(len(recvs)), bytes}, sends, recvs)
}

// AddMessages is [Recorder.AddGroup] for a caller that has counted the messages.
func (f *Recorder) AddMessages(n MessageCount) uint64 { return f.addMessages(n, nil, nil) }

func (f *Recorder) addMessages(n MessageCount, sends, recvs []program.Message) uint64 {
	now := f.clock()
	f.mu.Lock()
	f.catchUp()
	op := f.next(now)
	what := Called{MessageCount: n}
	what.describe(op)
	f.tally(&what, 1)
	f.began(op, sends, recvs)
	f.mu.Unlock()
	return op.Number
}

// MessageCount is how many messages a group has.
type MessageCount struct {
	Sends, Recvs uint64
	Bytes        int64
}

// Called describes an operation without a number among the collectives: a group of messages or, if it has no messages,
// a collective that a graph replays.
type Called struct {
	Shape calls.Shape
	Entry *dispatch.Entry
	MessageCount
}

func (w *Called) isGroup() bool { return w.Sends+w.Recvs > 0 }

// describe copies w into an operation that has just begun.
func (w *Called) describe(op *Operation) {
	if w.isGroup() {
		op.Messages, op.Bytes = int32(w.Sends+w.Recvs), w.Bytes
		return
	}
	op.Shape, op.Entry = w.Shape, w.Entry
}

// tally adds a number of such operations to the metrics. The caller holds f.mu.
func (f *Recorder) tally(w *Called, times int64) {
	n := uint64(times)
	if w.isGroup() {
		f.counts[calls.Send] += n * w.Sends
		f.counts[calls.Recv] += n * w.Recvs
		f.groups += n
		return
	}
	f.counts[w.Shape.Kind] += n
}

// AddOneSided records a one-sided call.
func (f *Recorder) AddOneSided(c *calls.Call) uint64 {
	now := f.clock()
	f.mu.Lock()
	f.catchUp()
	op := f.next(now)
	op.Shape = calls.Shape{Kind: c.Kind, Type: c.Type, Count: c.Count, Root: c.Peer}
	if c.Kind == calls.PutSignal {
		op.Bytes = int64(c.Count) * int64(c.Type.Size())
	}
	f.counts[c.Kind]++
	f.began(op, nil, nil)
	f.mu.Unlock()
	return op.Number
}
