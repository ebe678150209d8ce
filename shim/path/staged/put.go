package staged

import (
	"errors"
	"sync/atomic"
	"unsafe"

	"lightpath/shim/device"
	"lightpath/shim/memory"
	"lightpath/shim/steps"
	"lightpath/shim/stream"
)

// place finds the launch's staging memory and binds its steps to it. It puts nothing on a stream.
func (l *launch) place() error {
	if err := stream.Enter(l.Comm, l.streams[0]); err != nil {
		return err
	}
	defer device.Active().Leave()
	capture := l.capture
	// A graph may not run other work beside a node that waits, so a captured launch stages whole messages.
	l.Relaying = capture.ID == 0
	size := l.Measure()
	d := l.state
	if err := d.prepare(l.Comm); err != nil {
		return err
	}
	if capture.ID != 0 {
		g, err := d.memoryOfGraph(capture, size)
		if err != nil {
			return err
		}
		l.graph, l.word, l.base, l.back = g, g.memory.Word(), 0, l.streams[0]
		l.Write(unsafe.Add(g.memory.At, memory.WordSize))
		l.ran, l.due = 0, len(l.Steps)
		if err := stream.OnGraphGone(capture, l.forget); err != nil {
			g.leave()
			l.graph = nil
			return err
		}
		l.state.worker.hold(l)
		return nil
	}
	at, err := d.memoryFor(size)
	if err != nil {
		return err
	}
	l.Write(at)
	if err := l.serve(); err != nil {
		return err
	}
	l.word, l.base, l.back = d.control.Word(), d.seq, l.streams[0]
	d.seq += uint32(len(l.Steps))
	l.ran, l.due = 0, len(l.Steps)
	if len(l.Steps) > 1 && d.back != 0 {
		l.back = d.back
	}
	return nil
}

// putFirst makes the launch wait for the communicator's last launch and for the other streams. Then it puts the input
// of the first step on the stream. A communicator's launches run one after another, whatever streams they are on.
// Every rank keeps the same order.
func (l *launch) putFirst() error {
	d, s := l.state, l.streams[0]
	if err := stream.Enter(l.Comm, s); err != nil {
		return err
	}
	defer device.Active().Leave()
	if err := d.dev.Follow(s, l.capture); err != nil {
		return err
	}
	if err := d.dev.Join(s, l.streams[1:]); err != nil {
		return err
	}
	for i := range l.Scalars {
		x := &l.Scalars[i]
		if err := device.Active().CopyOut(x.Room, x.Device, l.From[x.Call].Type.Size(), s); err != nil {
			return err
		}
	}
	return l.sends(0)
}

// putSends puts the input of step k on the stream, if there is a step k.
func (l *launch) putSends(k int) error {
	if k >= len(l.Steps) {
		return nil
	}
	if err := stream.Enter(l.Comm, l.streams[0]); err != nil {
		return err
	}
	defer device.Active().Leave()
	return l.sends(k)
}

// sends puts the input of step k on the stream, and the signal to run the step. Two rooms of staging memory take
// turns. The step before the last frees its room when its output has been copied. With a separate stream for results,
// the input there is overwritten earlier, once that step has run.
func (l *launch) sends(k int) error {
	s, apart := l.streams[0], l.back != l.streams[0] && k >= steps.Rooms
	if apart {
		if err := device.Active().Await(s, l.word, l.base+uint32(k-steps.Rooms+1), false); err != nil {
			return err
		}
	}
	for i := l.Before(k).Outs; i < l.Steps[k].Outs; i++ {
		if err := copyOut(&l.Outs[i], s); err != nil {
			return err
		}
	}
	if apart {
		if err := device.Active().Follow(s, l.state.turns[k%steps.Rooms]); err != nil {
			return err
		}
	}
	last := k == len(l.Steps)-1
	if last {
		for _, m := range l.Relays.Selfs {
			if err := device.Active().Copy(m.To, m.From, m.Bytes, s); err != nil {
				return err
			}
		}
	}
	// Count before the signal, since the step may run at once. Graphs are not counted: they may run any number of
	// times.
	first := l.sent == 0 && l.graph == nil
	if first {
		l.state.dev.Outstanding.Add(1)
		l.state.worker.hold(l)
	}
	err := device.Active().Signal(s, l.token.Part(0))
	if err != nil {
		if first {
			l.state.dev.Outstanding.Add(-1)
			l.state.worker.leave(l)
		}
		return err
	}
	l.sent++
	if last {
		err = l.putRelays()
	}
	return err
}

// putResults makes a stream wait for step k and then copy its output, if there is a step k.
func (l *launch) putResults(k int) error {
	if k >= len(l.Steps) {
		return nil
	}
	s := l.streams[0]
	if err := stream.Enter(l.Comm, s); err != nil {
		return err
	}
	defer device.Active().Leave()
	if err := device.Active().Await(l.back, l.word, l.base+uint32(k+1), false); err != nil {
		return err
	}
	for i := l.Before(k).Ins; i < l.Steps[k].Ins; i++ {
		if err := copyIn(&l.Ins[i], l.back); err != nil {
			return err
		}
	}
	if l.back != s {
		if err := device.Active().Record(l.state.turns[k%steps.Rooms], l.back); err != nil {
			return err
		}
	}
	if k+1 < len(l.Steps) {
		return nil
	}
	return l.putEnd()
}

// putEnd ends the launch on its streams: later work waits for the results, the relays and the other streams.
func (l *launch) putEnd() (err error) {
	d, s := l.state, l.streams[0]
	if l.back != s {
		err = device.Active().Follow(s, d.turns[(len(l.Steps)-1)%steps.Rooms])
	}
	if l.graph != nil {
		err = device.Active().Store(s, l.word, 0)
	}
	return errors.Join(err, d.sides.Join(s), d.dev.End(s, l.streams[1:], l.capture))
}

// copyOut copies from device memory into staging memory.
func copyOut(m *steps.Move, s device.Stream) error {
	switch {
	case m.ByCPU:
		return nil
	case m.Strided():
		return device.Active().CopyRows(m.Room, m.Width, m.Buffer, m.Pitch, m.Width, m.Rows, s)
	}
	return device.Active().CopyOut(m.Room, m.Buffer, m.Width*m.Rows, s)
}

// copyIn copies from staging memory into device memory.
func copyIn(m *steps.Move, s device.Stream) error {
	switch {
	case m.ByCPU:
		return nil
	case m.Strided():
		return device.Active().CopyRows(m.Buffer, m.Pitch, m.Room, m.Width, m.Width, m.Rows, s)
	}
	return device.Active().CopyIn(m.Buffer, m.Room, m.Width*m.Rows, s)
}

// broken fails the communicator of a launch that is only partly on its streams, which cannot be undone. The streams
// still reach the signals that are there, and continue.
func (l *launch) broken(err error) {
	l.Comm.Spread(err)
	l.state.torn = true
	w := &l.state.worker
	w.mu.Lock()
	over := 0 < l.sent && l.sent == l.ran && l.ran < l.due // else the worker ends it, or has ended it
	l.due = l.sent
	w.mu.Unlock()
	if over {
		l.end()
	}
}

// step runs the launch's next step on the communicator's worker. The stream continues also after an error.
func (l *launch) step() {
	var err error
	switch {
	case l.begun != nil:
		err = l.goOn()
	case l.Comm.Healthy() == nil:
		err = l.Run(l.ran)
	}
	if err != nil {
		l.Comm.Spread(err)
	}
	l.stepped()
}

// stepped lets the stream continue after a step.
func (l *launch) stepped() {
	w := &l.state.worker
	w.mu.Lock()
	l.ran++
	k, over := l.ran, l.ran == l.due
	w.mu.Unlock()
	if over {
		l.end()
	} else {
		atomic.StoreUint32(l.word, l.base+uint32(k))
	}
}

// end lets the streams continue after the last step. Afterwards another group may reuse the launch, or the graph's next
// replay begins it again.
func (l *launch) end() {
	l.Relays.Release() // not earlier: the data to send is in their slots
	word, value := l.word, l.base+uint32(len(l.Steps))
	if l.graph != nil {
		l.ran = 0
	} else {
		l.state.dev.Outstanding.Add(-1)
		l.state.worker.leave(l)
	}
	atomic.StoreUint32(word, value)
}
