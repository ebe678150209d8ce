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

// launch is the calls of one communicator that run when its stream reaches them. Each step of its script puts four
// things on the stream. First come copies of its input into staging memory. A signal follows, on which the
// communicator's worker runs the step. Then the stream waits for the communicator's word, which the worker sets after
// the step. Last come copies of the output out of staging memory.
//
// The copies and the signal of the next step come before the wait of a step. So the device copies the previous output
// and the next input while a step runs. Streams never need a later operation to finish an earlier one. A driver that
// keeps several streams in one queue therefore delays launches, but never stops them.
type launch struct {
	steps.List
	state   *state
	token   stream.Token
	streams []device.Stream // the first carries the work
	capture device.Capture
	back    device.Stream // copies the results
	word    *uint32       // base + k says that k steps have run
	base    uint32
	graph   *graphMemory // set if captured: the launch runs at each replay
	sent    int          // signals put on the stream
	copies  []*[8]byte   // of operators' scalars; the first owned are in use
	owned   int

	// Guarded by state.worker.mu:
	ran, due int // steps that have run, and steps that the stream will signal
	holders  int // the group that puts it, and the stream or the graph: the last one leaves it to other groups

	begun *session.Session // begun by the driver's thread, left to the worker; holds the communicator's lock
	met   error            // the error of that step so far
}

// group is the launches that are put on their streams together.
type group struct {
	launches []*launch // in the order of their locks
}

var groups = sync.Pool{New: func() any { return new(group) }}

// Run puts a group on its streams and returns; the calls run when the streams reach them. It checks all calls before
// any has an effect. Hot path: groups of known shapes allocate nothing.
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
	}
	for _, l := range g.launches {
		l.state.worker.leave(l)
	}
	clear(g.launches)
	g.launches = g.launches[:0]
	groups.Put(g)
	return err
}

func launchesBySerial(a, b *launch) int { return comm.BySerial(a.Comm, b.Comm) }

// divide makes one launch of the calls of each communicator.
func (g *group) divide(calls []calls.Call) error {
	for i := range calls {
		call := &calls[i]
		if slot.Of(call.Comm) == nil {
			return call.Invalid("the group has calls on streams, and this communicator has no device")
		}
		k := slices.IndexFunc(g.launches, func(l *launch) bool { return l.Comm == call.Comm })
		if k < 0 {
			k = len(g.launches)
			l := slot.Of(call.Comm).take()
			l.Begin(call.Comm)
			l.streams, l.owned, l.sent = l.streams[:0], 0, 0
			g.launches = append(g.launches, l)
		}
		if err := g.launches[k].take(call); err != nil {
			return err
		}
	}
	return nil
}

// forget leaves a launch whose graph is gone.
func (l *launch) forget() {
	l.graph.leave()
	l.graph = nil
	l.state.worker.leave(l)
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

// takeScalar decides when to read an operator's scalar. The stream copies a scalar in device memory when it reaches
// the launch. The step reads a scalar in page-locked memory when it runs. The caller may reuse other host memory after
// the call, so takeScalar copies a scalar there at once.
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
		return call.Invalid("the operator's scalar is memory of device %d, the communicator is of device %d",
			place.Device, l.Comm.Device)
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

// put puts the launches on their streams. The caller holds their locks.
func (g *group) put() (err error) {
	if err = g.findCaptures(); err != nil {
		return err
	}
	for _, l := range g.launches {
		if err = l.place(); err != nil {
			return err
		}
	}
	if err = g.putSteps(); err != nil {
		for _, l := range g.launches {
			l.broken(err)
		}
	}
	return err
}

// putSteps puts all steps on the streams. The inputs of all launches for a step come before any wait for that step. So
// launches that share a stream do not wait for each other's end.
func (g *group) putSteps() error {
	last := 0
	for _, l := range g.launches {
		last = max(last, len(l.Steps)-1)
		if err := l.putFirst(); err != nil {
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
			if err := l.putResults(k); err != nil {
				return err
			}
		}
	}
	return nil
}

// findCaptures finds the graph that captures the streams of each communicator. Communicators may have different graphs,
// but either all have one, or none.
func (g *group) findCaptures() (err error) {
	for _, l := range g.launches {
		if l.capture, err = stream.Capturing(l.Comm, l.streams); err != nil {
			return err
		}
		if (l.capture.ID == 0) != (g.launches[0].capture.ID == 0) {
			return stream.ErrCaptures
		}
	}
	return nil
}

// stagedOf returns which buffers of the call need staging. It refuses invalid memory.
func stagedOf(c *calls.Call) (where steps.Staged, err error) {
	if c.Kind.OneSided() {
		place, err := device.Active().Locate(c.Send)
		if err == nil && place.Kind >= device.Managed {
			err = c.Invalid("localbuff %p is device memory: what is put is host memory, as windows are where it arrives", c.Send)
		}
		return where, err
	}
	if c.Count == 0 {
		return where, nil
	}
	send, recv, err := stream.LocateBuffers(c)
	// The CPU could use managed memory in place, but not while the device does.
	return steps.Staged{Send: send.Kind >= device.Managed, Recv: recv.Kind >= device.Managed}, err
}
