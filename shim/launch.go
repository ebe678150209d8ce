package shim

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"unsafe"

	"lightpath/shim/device"
)

// launch is a group of calls that runs when the streams of its communicators come to it.
type launch struct {
	calls   []Call // on host memory
	comms   []*Comm
	parts   []part       // one for each communicator
	missing atomic.Int32 // parts whose streams have not come to it
	token   uintptr
	graph   bool   // captured: it runs as often as the graph is replayed
	staging []room // of a captured launch; others use their communicators'
}

// part is what a communicator's streams wait for: the word to become the value.
type part struct {
	comm    *Comm
	word    *uint32
	value   uint32
	streams []device.Stream // the first is the one that the work is on
	stages  []stage         // of its calls
	outs    []transfer      // before it
	ins     []transfer      // after it
	signals bool            // its stream will come to the launch
}

// transfer is a copy between device and staging memory.
type transfer struct {
	device, host unsafe.Pointer
	size         int
}

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
		for _, p := range []unsafe.Pointer{call.Send, call.Recv} {
			place, err := devices.Locate(p)
			if err != nil || place.Kind >= device.Managed {
				return err == nil, err
			}
		}
	}
	return false, nil
}

// enqueue puts a group on its streams and returns: it runs when they come to it. All calls are checked before any
// has an effect.
func enqueue(calls []Call) error {
	for i := range calls {
		if err := Check(&calls[i]); err != nil {
			return err
		}
	}
	l := &launch{calls: slices.Clone(calls)}
	if err := l.divide(); err != nil {
		return err
	}
	// One order of locks, as for groups that run at once.
	slices.SortFunc(l.comms, bySerial)
	for _, c := range l.comms {
		c.dev.mu.Lock()
		defer c.dev.mu.Unlock()
	}
	capture, err := l.capturing()
	if err != nil {
		return err
	}
	l.graph = capture.ID != 0
	for i := range l.parts {
		if err := l.place(&l.parts[i]); err != nil {
			l.giveBack()
			return err
		}
	}
	l.missing.Store(int32(len(l.parts)))
	l.token = launches.add(l)
	for i := range l.parts {
		if err := l.put(&l.parts[i], capture); err != nil {
			l.broken(err)
			return err
		}
	}
	return nil
}

// divide finds the parts of a launch, and what they copy.
func (l *launch) divide() (err error) {
	for i := range l.calls {
		call := &l.calls[i]
		if call.Comm.dev == nil {
			return call.invalid("the group has calls on streams, and this communicator has no device")
		}
		k := slices.Index(l.comms, call.Comm)
		if k < 0 {
			k = len(l.comms)
			l.comms = append(l.comms, call.Comm)
			l.parts = append(l.parts, part{comm: call.Comm})
		}
		p := &l.parts[k]
		if !slices.Contains(p.streams, call.Stream) {
			p.streams = append(p.streams, call.Stream)
		}
		if p.stages, err = call.stages(p.stages); err != nil {
			return err
		}
		if err := call.scalarOnHost(); err != nil {
			return err
		}
		call.ownScalar()
	}
	return nil
}

// scalarOnHost refuses an operator's element in device memory: NCCL reads it when the call runs, which needs
// a kernel.
func (c *Call) scalarOnHost() error {
	if c.Scalar == nil {
		return nil
	}
	place, err := devices.Locate(c.Scalar)
	if err == nil && place.Kind == device.Memory {
		err = c.invalid("the operator's scalar is in device memory: pass it as ncclScalarHostImmediate")
	}
	return err
}

// capturing returns the graph that the launch's streams are captured into: all of them or none.
func (l *launch) capturing() (first device.Capture, err error) {
	for i := range l.parts {
		p := &l.parts[i]
		for k, s := range p.streams {
			got, err := p.capturing(s)
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

// capturing checks a stream of the part.
func (p *part) capturing(s device.Stream) (device.Capture, error) {
	on, err := devices.Enter(s)
	if err != nil {
		return device.Capture{}, err
	}
	defer devices.Leave()
	if on != p.comm.args.Device {
		return device.Capture{}, fmt.Errorf("shim: the stream is of device %d, the communicator of device %d: %w", on, p.comm.args.Device, ErrInvalidArgument)
	}
	return devices.Capturing(s)
}

// put enqueues a part. The communicator's launches follow each other, whatever streams they are on: that is
// the order in which they run here and on every other rank.
func (l *launch) put(p *part, capture device.Capture) error {
	d, s := p.comm.dev, p.streams[0]
	if _, err := devices.Enter(s); err != nil {
		return err
	}
	defer devices.Leave()
	if err := d.follow(s, capture); err != nil {
		return err
	}
	for _, other := range p.streams[1:] {
		if err := errors.Join(devices.Record(d.joint, other), devices.Follow(s, d.joint)); err != nil {
			return err
		}
	}
	for _, t := range p.outs {
		if err := devices.CopyOut(t.host, t.device, t.size, s); err != nil {
			return err
		}
	}
	// Before, since it may run at once. How often a graph will run nobody knows.
	p.signals = true
	if !l.graph {
		d.outstanding.Add(1)
	}
	if err := devices.Signal(s, l.token); err != nil {
		p.signals = false
		if !l.graph {
			d.outstanding.Add(-1)
		}
		return err
	}
	if err := devices.Await(s, p.word, p.value, l.graph); err != nil {
		return err
	}
	for _, t := range p.ins {
		if err := devices.CopyIn(t.device, t.host, t.size, s); err != nil {
			return err
		}
	}
	var err error
	if l.graph {
		err = errors.Join(devices.Store(s, p.word, 0), devices.Retain(capture, l.token))
	}
	last := d.last(capture)
	err = errors.Join(err, devices.Record(last, s))
	for _, other := range p.streams[1:] {
		err = errors.Join(err, devices.Follow(other, last))
	}
	return err
}

// giveBack gives back the staging memory of a captured launch that will not run.
func (l *launch) giveBack() {
	for _, r := range l.staging {
		pinned.give(r)
	}
}

// broken fails the communicators of a launch that is on its streams in part only: nobody can take that back.
func (l *launch) broken(err error) {
	for _, c := range l.comms {
		c.spread(err)
	}
	var never int32
	for i := range l.parts {
		if !l.parts[i].signals {
			never++
		}
	}
	if l.missing.Add(-never) == 0 {
		l.run() // the streams that come to it have come
	}
}

// run runs the calls, on the launch's worker, and lets the streams go on, whatever has come of them.
func (l *launch) run() {
	if !slices.ContainsFunc(l.comms, func(c *Comm) bool { return c.sound() != nil }) {
		runUnwatched(l.calls, l.comms)
	}
	if l.graph {
		l.missing.Store(int32(len(l.parts))) // for the next replay, which begins after this one
	} else {
		launches.remove(l.token)
	}
	for i := range l.parts {
		if p := &l.parts[i]; p.signals {
			if !l.graph {
				p.comm.dev.outstanding.Add(-1)
			}
			atomic.StoreUint32(p.word, p.value)
		}
	}
}
