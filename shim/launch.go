package shim

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"lightpath/shim/device"
)

// launch is calls of one communicator that run when its stream comes to them. On the stream come, for each step of its script: copies of what
// it sends into staging memory; a signal, on which the communicator's worker runs the step; a wait for the communicator's word to say that it
// has; copies of what it received out of staging memory.
//
// The copies of the next step, and its signal, come before the wait of a step. So a step runs while what it follows is copied back
// and what follows it is copied out. What is put on streams can be done in the order in which it is put there: a driver that
// keeps several streams in one queue delays launches, and never stops them.
type launch struct {
	script
	dev     *onDevice
	token   uintptr
	streams []device.Stream // the first is the one that the work is on
	back    device.Stream   // the one that results are copied on
	word    *uint32         // base + k says that k steps have run
	base    uint32
	graph   *graphRoom // captured: the launch runs as often as the graph is replayed
	kept    bool       // by the graph, whose end is the launch's
	sent    int        // signals that are on the stream
	copies  []*[8]byte // of elements of operators; those in use are the first owned
	owned   int

	ran, due int // steps that have run, and that the stream will come to; guarded by dev.worker.mu
}

// group is launches that are put on their streams together.
type group struct {
	launches []*launch // in the order of their locks
	capture  device.Capture
}

var groups = sync.Pool{New: func() any { return new(group) }}

// onStreams tells whether a group belongs on streams: one of its calls has a stream or device memory.
// Hot path for communicators without a device.
func onStreams(calls []Call) (bool, error) {
	for i := range calls {
		call := &calls[i]
		if call.Comm == nil || call.Comm.dev == nil {
			continue // whose stream must be 0
		}
		if call.Stream != 0 {
			return true, nil
		}
		if on, err := call.onDevice(); on || err != nil {
			return on, err
		}
	}
	return false, nil
}

// onDevice tells whether the call has device memory.
func (c *Call) onDevice() (bool, error) {
	for _, p := range [...]unsafe.Pointer{c.Send, c.Recv, c.Scalar} {
		if p == nil {
			continue
		}
		place, err := devices.Locate(p)
		if err != nil || place.Kind >= device.Managed {
			return err == nil, err
		}
	}
	return false, nil
}

// enqueue puts a group on its streams and returns: it runs when they come to it. All calls are checked before any
// has an effect. Hot path: groups of shapes seen before allocate nothing.
func enqueue(calls []Call) error {
	for i := range calls {
		if err := Check(&calls[i]); err != nil {
			return err
		}
	}
	g := groups.Get().(*group)
	err := g.divide(calls)
	if err == nil {
		// One order of locks, as for groups that run at once.
		slices.SortFunc(g.launches, launchesBySerial)
		for _, l := range g.launches {
			l.dev.mu.Lock()
		}
		err = g.put()
		for _, l := range g.launches {
			l.dev.mu.Unlock()
		}
	} else {
		g.drop()
	}
	clear(g.launches)
	g.launches = g.launches[:0]
	groups.Put(g)
	return err
}

func launchesBySerial(a, b *launch) int { return bySerial(a.comm, b.comm) }

// divide makes a launch of each communicator's calls.
func (g *group) divide(calls []Call) error {
	for i := range calls {
		call := &calls[i]
		if call.Comm.dev == nil {
			return call.invalid("the group has calls on streams, and this communicator has no device")
		}
		k := slices.IndexFunc(g.launches, func(l *launch) bool { return l.comm == call.Comm })
		if k < 0 {
			k = len(g.launches)
			l := call.Comm.dev.worker.take(call.Comm)
			l.begin(call.Comm)
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
	l.dev.worker.give(l)
}

// take adds a call to the launch.
func (l *launch) take(call *Call) error {
	if !slices.Contains(l.streams, call.Stream) {
		l.streams = append(l.streams, call.Stream)
	}
	where, err := call.staged()
	if err != nil {
		return err
	}
	l.from, l.staged = append(l.from, *call), append(l.staged, where)
	return l.takeScalar(len(l.from) - 1)
}

// takeScalar sees to an operator's element: what is in device memory is copied out of it when the stream comes to the launch, what is in
// page-locked memory is read then, and what the driver does not know may be the caller's until the call returns, and is copied now.
func (l *launch) takeScalar(i int) error {
	call := &l.from[i]
	if call.Scalar == nil {
		return nil
	}
	place, err := devices.Locate(call.Scalar)
	if err != nil {
		return err
	}
	switch {
	case place.Kind == device.Memory && place.Device != l.comm.args.Device:
		return call.invalid("the operator's scalar is memory of device %d, the communicator is of device %d", place.Device, l.comm.args.Device)
	case place.Kind >= device.Managed:
		l.scalars = append(l.scalars, scalarAt{call: i, device: call.Scalar})
	case place.Kind == device.Host:
		if l.owned == len(l.copies) {
			l.copies = append(l.copies, new([8]byte))
		}
		own := l.copies[l.owned]
		l.owned++
		copy(own[:], bytesOf(call.Scalar, int64(call.Type.Size())))
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
	// All first steps come before all waits: communicators that share a stream do not wait for each other in a group.
	for _, l := range g.launches {
		if err == nil {
			err = l.putFirst(g.capture)
		}
	}
	for _, l := range g.launches {
		if err == nil {
			err = l.putRest(g.capture)
		}
	}
	if err != nil {
		for _, l := range g.launches {
			l.broken(err)
		}
	}
	return err
}

// capturing returns the graph that the streams are captured into: all of them or none.
func (g *group) capturing() (first device.Capture, err error) {
	for i, l := range g.launches {
		for k, s := range l.streams {
			got, err := l.capturing(s)
			switch {
			case err != nil:
				return first, err
			case i == 0 && k == 0:
				first = got
			case got.ID != first.ID:
				return first, fmt.Errorf("shim: a group cannot have streams that are captured and streams that are not, or of two captures: %w", ErrInvalidUsage)
			}
		}
	}
	return first, nil
}

// capturing checks a stream of the launch.
func (l *launch) capturing(s device.Stream) (device.Capture, error) {
	on, err := devices.Enter(s)
	if err != nil {
		return device.Capture{}, err
	}
	defer devices.Leave()
	if on != l.comm.args.Device {
		return device.Capture{}, fmt.Errorf("shim: the stream is of device %d, the communicator of device %d: %w", on, l.comm.args.Device, ErrInvalidArgument)
	}
	return devices.Capturing(s)
}

// place finds memory for what the launch moves, and has its steps work there; nothing is on a stream yet.
func (l *launch) place(capture device.Capture) error {
	if _, err := devices.Enter(l.streams[0]); err != nil {
		return err
	}
	defer devices.Leave()
	size := l.measure()
	d := l.dev
	if err := d.prepare(!l.script.whole && capture.ID == 0); err != nil {
		return err
	}
	if capture.ID != 0 {
		g, err := d.roomOfGraph(capture, size)
		if err != nil {
			return err
		}
		l.graph, l.word, l.base, l.back = g, g.memory.word(), 0, l.streams[0]
		l.write(unsafe.Add(g.memory.at, wordRoom))
		l.ran, l.due = 0, len(l.steps)
		if err := devices.Retain(capture, l.token); err != nil {
			return err
		}
		l.kept = true
		return nil
	}
	at, err := d.roomFor(size)
	if err != nil {
		return err
	}
	l.write(at)
	l.word, l.base, l.back = d.control.word(), d.seq, l.streams[0]
	d.seq += uint32(len(l.steps))
	l.ran, l.due = 0, len(l.steps)
	if len(l.steps) > 1 {
		l.back = d.back
	}
	return nil
}

// putFirst has the launch follow the communicator's last one, and the other streams, and puts what its first step sends on its stream. The
// communicator's launches follow each other, whatever streams they are on: that is the order in which they run here
// and on every other rank.
func (l *launch) putFirst(capture device.Capture) error {
	d, s := l.dev, l.streams[0]
	if _, err := devices.Enter(s); err != nil {
		return err
	}
	defer devices.Leave()
	if err := d.follow(s, capture); err != nil {
		return err
	}
	for _, other := range l.streams[1:] {
		if err := errors.Join(devices.Record(d.joint, other), devices.Follow(s, d.joint)); err != nil {
			return err
		}
	}
	for i := range l.scalars {
		x := &l.scalars[i]
		if err := devices.CopyOut(x.room, x.device, l.from[x.call].Type.Size(), s); err != nil {
			return err
		}
	}
	return l.putSends(0)
}

// putSends puts on the stream what step k sends, and the signal that it can run. The rooms of the step before the last
// are free when what it received has been copied; on two streams what it sent is overwritten earlier, once it has run.
func (l *launch) putSends(k int) error {
	s, apart := l.streams[0], l.back != l.streams[0] && k >= stepRooms
	if apart {
		if err := devices.Await(s, l.word, l.base+uint32(k-stepRooms+1), false); err != nil {
			return err
		}
	}
	for i := l.before(k).outs; i < l.steps[k].outs; i++ {
		if err := l.outs[i].copyOut(s); err != nil {
			return err
		}
	}
	if apart {
		if err := devices.Follow(s, l.dev.turns[k%stepRooms]); err != nil {
			return err
		}
	}
	// Before, since it may run at once. How often a graph will run nobody knows.
	if l.sent == 0 && l.graph == nil {
		l.dev.outstanding.Add(1)
	}
	l.sent++
	err := devices.Signal(s, l.token)
	if err != nil {
		if l.sent--; l.sent == 0 && l.graph == nil {
			l.dev.outstanding.Add(-1)
		}
	}
	return err
}

// putRest puts on the streams what follows putFirst.
func (l *launch) putRest(capture device.Capture) error {
	d, s := l.dev, l.streams[0]
	if _, err := devices.Enter(s); err != nil {
		return err
	}
	defer devices.Leave()
	for k := range l.steps {
		if k+1 < len(l.steps) {
			if err := l.putSends(k + 1); err != nil {
				return err
			}
		}
		if err := l.putResults(k); err != nil {
			return err
		}
	}
	var err error
	if l.back != s {
		err = devices.Follow(s, d.turns[(len(l.steps)-1)%stepRooms])
	}
	if l.graph != nil {
		err = devices.Store(s, l.word, 0)
	}
	last := d.last(capture)
	err = errors.Join(err, devices.Record(last, s))
	for _, other := range l.streams[1:] {
		err = errors.Join(err, devices.Follow(other, last))
	}
	return err
}

// putResults has a stream wait until step k has run, and copy what it received.
func (l *launch) putResults(k int) error {
	if err := devices.Await(l.back, l.word, l.base+uint32(k+1), false); err != nil {
		return err
	}
	for i := l.before(k).ins; i < l.steps[k].ins; i++ {
		if err := l.ins[i].copyIn(l.back); err != nil {
			return err
		}
	}
	if l.back == l.streams[0] {
		return nil
	}
	return devices.Record(l.dev.turns[k%stepRooms], l.back)
}

// copyOut copies what is in device memory into staging memory, copyIn out of it.
func (m *move) copyOut(s device.Stream) error {
	switch {
	case m.byCPU:
		return nil
	case m.strided():
		return devices.CopyRows(m.room, m.width, m.buffer, m.pitch, m.width, m.rows, s)
	}
	return devices.CopyOut(m.room, m.buffer, m.width*m.rows, s)
}

func (m *move) copyIn(s device.Stream) error {
	switch {
	case m.byCPU:
		return nil
	case m.strided():
		return devices.CopyRows(m.buffer, m.pitch, m.room, m.width, m.width, m.rows, s)
	}
	return devices.CopyIn(m.buffer, m.room, m.width*m.rows, s)
}

// broken fails the communicator of a launch that is on its streams in part only: nobody can take that back. Its streams
// come to the signals that are there, and go on.
func (l *launch) broken(err error) {
	l.comm.spread(err)
	w := &l.dev.worker
	w.mu.Lock()
	l.due = l.sent
	over := l.ran == l.due
	w.mu.Unlock()
	if over {
		l.end(l.sent > 0)
	}
}

// step runs the launch's next step, on the communicator's worker, and lets the stream go on, whatever has come of it.
func (l *launch) step(comms []*Comm) {
	if c := comms[0]; c.sound() == nil {
		if err := l.run(l.ran, comms); err != nil {
			c.spread(err)
		}
	}
	w := &l.dev.worker
	w.mu.Lock()
	l.ran++
	k, over := l.ran, l.ran == l.due
	w.mu.Unlock()
	if over {
		l.end(true)
	} else {
		atomic.StoreUint32(l.word, l.base+uint32(k))
	}
}

// end lets the stream go on behind the last step that it comes to. The launch is somebody else's then, or begins with the next
// replay.
func (l *launch) end(awaited bool) {
	word, value := l.word, l.base+uint32(len(l.steps))
	if l.graph != nil {
		l.ran = 0
	} else {
		if awaited {
			l.dev.outstanding.Add(-1)
		}
		l.dev.worker.give(l)
	}
	if awaited {
		atomic.StoreUint32(word, value)
	}
}
