package staged

import (
	"slices"
	"sync"
	"unsafe"

	"lightpath/shim/calls"
	"lightpath/shim/comm"
	"lightpath/shim/device"
	"lightpath/shim/memory"
	"lightpath/shim/session"
	"lightpath/shim/steps"
	"lightpath/shim/stream"
)

// launch is calls of one communicator that run when its stream comes to them. On the stream come, for each step of its script: copies of what
// it sends into staging memory; a signal, on which the communicator's worker runs the step; a wait for the communicator's word to say that it
// has; copies of what it received out of staging memory.
//
// The copies of the next step, and its signal, come before the wait of a step. So a step runs while what it follows is copied back
// and what follows it is copied out. What is put on streams can be done in the order in which it is put there: a driver that
// keeps several streams in one queue delays launches, and never stops them.
type launch struct {
	steps.List
	state   *state
	token   stream.Token
	streams []device.Stream // the first is the one that the work is on
	back    device.Stream   // the one that results are copied on
	word    *uint32         // base + k says that k steps have run
	base    uint32
	graph   *graphMemory // captured: the launch runs as often as the graph is replayed
	kept    bool         // by the graph, whose end is the launch's
	sent    int          // signals that are on the stream
	copies  []*[8]byte   // of elements of operators; those in use are the first owned
	owned   int

	ran, due int // steps that have run, and that the stream will come to; guarded by dev.worker.mu

	begun *session.Session // of the step that the driver's thread has begun and left to the worker, with the lock of the communicator
	met   error            // what it came to there
}

// group is launches that are put on their streams together.
type group struct {
	launches []*launch // in the order of their locks
	capture  device.Capture
}

var groups = sync.Pool{New: func() any { return new(group) }}

// Run puts a group on its streams and returns: it runs when they come to it. All calls are checked before any
// has an effect. Hot path: groups of shapes seen before allocate nothing.
func Run(calls []calls.Call) error {
	g := groups.Get().(*group)
	err := g.divide(calls)
	if err == nil {
		// One order of locks, as for groups that run at once.
		slices.SortFunc(g.launches, launchesBySerial)
		for _, l := range g.launches {
			l.state.dev.Mu.Lock()
		}
		err = g.put()
		for _, l := range g.launches {
			l.state.dev.Mu.Unlock()
		}
	} else {
		g.drop()
	}
	clear(g.launches)
	g.launches = g.launches[:0]
	groups.Put(g)
	return err
}

func launchesBySerial(a, b *launch) int { return comm.BySerial(a.Comm, b.Comm) }

// divide makes a launch of each communicator's calls.
func (g *group) divide(calls []calls.Call) error {
	for i := range calls {
		call := &calls[i]
		if slot.Of(call.Comm) == nil {
			return call.Invalid("the group has calls on streams, and this communicator has no device")
		}
		k := slices.IndexFunc(g.launches, func(l *launch) bool { return l.Comm == call.Comm })
		if k < 0 {
			k = len(g.launches)
			l := slot.Of(call.Comm).worker.take(call.Comm)
			l.Begin(call.Comm)
			l.streams, l.owned, l.sent, l.kept = l.streams[:0], 0, 0, false
			g.launches = append(g.launches, l)
		}
		if err := g.launches[k].take(call); err != nil {
			return err
		}
	}
	return nil
}

// drop gives back launches that are not on streams.
func (g *group) drop() {
	for _, l := range g.launches {
		if !l.kept {
			l.forget()
		}
	}
}

// forget gives a launch back that no stream will come to.
func (l *launch) forget() {
	if l.graph != nil {
		l.graph.leave()
		l.graph = nil
	}
	l.state.worker.give(l)
}

// take adds a call to the launch.
func (l *launch) take(call *calls.Call) error {
	if !slices.Contains(l.streams, call.Stream) {
		l.streams = append(l.streams, call.Stream)
	}
	where, err := stagedOf(call)
	if err != nil {
		return err
	}
	l.From, l.Staged = append(l.From, *call), append(l.Staged, where)
	return l.takeScalar(len(l.From) - 1)
}

// takeScalar sees to an operator's element: what is in device memory is copied out of it when the stream comes to the launch, what is in
// page-locked memory is read then, and what the driver does not know may be the caller's until the call returns, and is copied now.
func (l *launch) takeScalar(i int) error {
	call := &l.From[i]
	if call.Scalar == nil {
		return nil
	}
	place, err := device.Active().Locate(call.Scalar)
	if err != nil {
		return err
	}
	switch {
	case place.Kind == device.Memory && place.Device != l.Comm.Device:
		return call.Invalid("the operator's scalar is memory of device %d, the communicator is of device %d", place.Device, l.Comm.Device)
	case place.Kind >= device.Managed:
		l.Scalars = append(l.Scalars, steps.Scalar{Call: i, Device: call.Scalar})
	case place.Kind == device.Host:
		if l.owned == len(l.copies) {
			l.copies = append(l.copies, new([8]byte))
		}
		own := l.copies[l.owned]
		l.owned++
		copy(own[:], memory.Bytes(call.Scalar, int64(call.Type.Size())))
		call.Scalar = unsafe.Pointer(own)
	}
	return nil
}

// put puts the launches on their streams. Their locks are held.
func (g *group) put() (err error) {
	if g.capture, err = g.capturing(); err == nil {
		for _, l := range g.launches {
			if err = l.place(g.capture); err != nil {
				break
			}
		}
	}
	if err != nil {
		g.drop()
		return err
	}
	if err = g.putSteps(); err != nil {
		for _, l := range g.launches {
			l.broken(err)
		}
	}
	return err
}

// putSteps puts all steps on the streams. What any launch sends in a step comes before all waits for that step: launches that share a
// stream do not wait for each other's ends.
func (g *group) putSteps() error {
	last := 0
	for _, l := range g.launches {
		last = max(last, len(l.Steps)-1)
		if err := l.putFirst(g.capture); err != nil {
			return err
		}
	}
	for k := range last + 1 {
		for _, l := range g.launches {
			if err := l.putSends(k + 1); err != nil {
				return err
			}
		}
		for _, l := range g.launches {
			if err := l.putResults(k, g.capture); err != nil {
				return err
			}
		}
	}
	return nil
}

// capturing returns the graph that the streams are captured into: all of them or none.
func (g *group) capturing() (first device.Capture, err error) {
	for i, l := range g.launches {
		got, err := stream.Capturing(l.Comm, l.streams)
		if err == nil && i > 0 {
			err = stream.SameCapture(first, got)
		}
		if err != nil {
			return first, err
		}
		first = got
	}
	return first, nil
}
