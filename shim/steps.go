package shim

import (
	"errors"
	"sync/atomic"
	"unsafe"

	"lightpath/shim/comm"
	"lightpath/shim/device"
	"lightpath/shim/memory"
)

// place finds memory for what the launch moves, and has its steps work there; nothing is on a stream yet.
func (l *launch) place(capture device.Capture) error {
	if _, err := enterStream(l.comm, l.streams[0]); err != nil {
		return err
	}
	defer device.Active().Leave()
	// In a graph nothing is sure to go on beside something that waits: there all messages of a group are staged whole.
	l.relaying = capture.ID == 0
	size := l.measure()
	d := l.dev
	if err := d.prepare(!l.whole && capture.ID == 0); err != nil {
		return err
	}
	if capture.ID != 0 {
		g, err := d.roomOfGraph(capture, size)
		if err != nil {
			return err
		}
		l.graph, l.word, l.base, l.back = g, g.memory.Word(), 0, l.streams[0]
		l.write(unsafe.Add(g.memory.At, memory.WordSize))
		l.ran, l.due = 0, len(l.steps)
		if err := device.Active().Retain(capture, l.token); err != nil {
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
	if err := d.serve(&l.relays); err != nil {
		return err
	}
	l.word, l.base, l.back = d.control.Word(), d.seq, l.streams[0]
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
	if _, err := enterStream(l.comm, s); err != nil {
		return err
	}
	defer device.Active().Leave()
	if err := d.follow(s, capture); err != nil {
		return err
	}
	for _, other := range l.streams[1:] {
		if err := errors.Join(device.Active().Record(d.joint, other), device.Active().Follow(s, d.joint)); err != nil {
			return err
		}
	}
	for i := range l.scalars {
		x := &l.scalars[i]
		if err := device.Active().CopyOut(x.room, x.device, l.from[x.call].Type.Size(), s); err != nil {
			return err
		}
	}
	return l.sends(0)
}

// putSends puts on the stream what step k sends, where there is such a step.
func (l *launch) putSends(k int) error {
	if k >= len(l.steps) {
		return nil
	}
	if _, err := enterStream(l.comm, l.streams[0]); err != nil {
		return err
	}
	defer device.Active().Leave()
	return l.sends(k)
}

// sends puts on the stream what step k sends, and the signal that it can run. The rooms of the step before the last
// are free when what it received has been copied; on two streams what it sent is overwritten earlier, once it has run.
func (l *launch) sends(k int) error {
	s, apart := l.streams[0], l.back != l.streams[0] && k >= stepRooms
	if apart {
		if err := device.Active().Await(s, l.word, l.base+uint32(k-stepRooms+1), false); err != nil {
			return err
		}
	}
	for i := l.before(k).outs; i < l.steps[k].outs; i++ {
		if err := l.outs[i].copyOut(s); err != nil {
			return err
		}
	}
	if apart {
		if err := device.Active().Follow(s, l.dev.turns[k%stepRooms]); err != nil {
			return err
		}
	}
	last := k == len(l.steps)-1
	if last {
		for _, m := range l.relays.selfs {
			if err := device.Active().Copy(m.to, m.from, m.bytes, s); err != nil {
				return err
			}
		}
	}
	// Before, since it may run at once. How often a graph will run nobody knows.
	if l.sent == 0 && l.graph == nil {
		l.dev.outstanding.Add(1)
	}
	l.sent++
	err := device.Active().Signal(s, l.token)
	if err != nil {
		if l.sent--; l.sent == 0 && l.graph == nil {
			l.dev.outstanding.Add(-1)
		}
		return err
	}
	if last {
		err = l.putRelays()
	}
	return err
}

// putResults has a stream wait until step k has run, where there is such a step, and copy what it received.
func (l *launch) putResults(k int, capture device.Capture) error {
	if k >= len(l.steps) {
		return nil
	}
	s := l.streams[0]
	if _, err := enterStream(l.comm, s); err != nil {
		return err
	}
	defer device.Active().Leave()
	if err := device.Active().Await(l.back, l.word, l.base+uint32(k+1), false); err != nil {
		return err
	}
	for i := l.before(k).ins; i < l.steps[k].ins; i++ {
		if err := l.ins[i].copyIn(l.back); err != nil {
			return err
		}
	}
	if l.back != s {
		if err := device.Active().Record(l.dev.turns[k%stepRooms], l.back); err != nil {
			return err
		}
	}
	if k+1 < len(l.steps) {
		return nil
	}
	return l.putEnd(capture)
}

// putEnd lets the streams go on behind the launch.
func (l *launch) putEnd(capture device.Capture) (err error) {
	d, s := l.dev, l.streams[0]
	if l.back != s {
		err = device.Active().Follow(s, d.turns[(len(l.steps)-1)%stepRooms])
	}
	if l.graph != nil {
		err = device.Active().Store(s, l.word, 0)
	}
	for i := range l.relays.all {
		lane := l.relays.all[i].lane
		err = errors.Join(err, device.Active().Record(lane.event, lane.stream), device.Active().Follow(s, lane.event))
	}
	last := d.last(capture)
	err = errors.Join(err, device.Active().Record(last, s))
	for _, other := range l.streams[1:] {
		err = errors.Join(err, device.Active().Follow(other, last))
	}
	return err
}

// copyOut copies what is in device memory into staging memory, copyIn out of it.
func (m *move) copyOut(s device.Stream) error {
	switch {
	case m.byCPU:
		return nil
	case m.strided():
		return device.Active().CopyRows(m.room, m.width, m.buffer, m.pitch, m.width, m.rows, s)
	}
	return device.Active().CopyOut(m.room, m.buffer, m.width*m.rows, s)
}

func (m *move) copyIn(s device.Stream) error {
	switch {
	case m.byCPU:
		return nil
	case m.strided():
		return device.Active().CopyRows(m.buffer, m.pitch, m.room, m.width, m.width, m.rows, s)
	}
	return device.Active().CopyIn(m.buffer, m.room, m.width*m.rows, s)
}

// broken fails the communicator of a launch that is on its streams in part only: nobody can take that back. Its streams
// come to the signals that are there, and go on.
func (l *launch) broken(err error) {
	l.comm.Spread(err)
	w := &l.dev.worker
	w.mu.Lock()
	l.due = l.sent
	over := l.ran == l.due
	w.mu.Unlock()
	if over {
		l.relays.release()
		l.end(l.sent > 0)
	}
}

// step runs the launch's next step, on the communicator's worker, and lets the stream go on, whatever has come of it.
func (l *launch) step(comms []*comm.Core) {
	var err error
	switch c := comms[0]; {
	case l.begun != nil:
		err = l.goOn()
	case c.Sound() == nil:
		err = l.run(l.ran, comms)
	}
	if err != nil {
		comms[0].Spread(err)
	}
	l.stepped()
}

// stepped lets the stream go on behind a step.
func (l *launch) stepped() {
	w := &l.dev.worker
	w.mu.Lock()
	l.ran++
	k, over := l.ran, l.ran == l.due
	w.mu.Unlock()
	if over {
		l.relays.release() // not before: what is sent lies in their slots
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
