package peer

import (
	"errors"
	"fmt"
	"unsafe"

	"lightpath/shim/calls"
	"lightpath/shim/device"
	"lightpath/shim/stream"
)

// message is a send or receive of a launch.
type message struct {
	call   *calls.Call
	at     unsafe.Pointer
	id     uint64 // of the allocation
	bytes  int64
	peer   int
	send   bool
	bounce bool   // kernels cannot write the buffer
	number uint64 // counts messages between the two ranks in that direction, from 1
	next   int    // index of the next message of the lane, -1 for the last

	lent *region // the region that the sender lends, nil if the message goes through slots
	look bool    // the receiver checks whether the sender lends the message
}

// lane is the sequence of messages to a peer, or from a peer.
type lane struct {
	on   device.Stream // the stream in this launch
	peer int
	send bool

	first, last int // indices of messages of the launch; first is -1 if there are none
	off         int64
	chunk       int
	rests       bool   // skips a turn
	said        uint32 // slots whose word the sender has written
}

// addMessage adds a send or receive to the launch.
func (x *Path) addMessage(call *calls.Call) error {
	from, place, err := stream.LocateBuffers(call)
	if err != nil {
		return err
	}
	send, recv := call.Extents()
	m := message{call: call, at: call.Recv, bytes: max(send, recv), peer: int(call.Peer), next: -1,
		send: call.Kind == calls.Send}
	if m.send {
		m.at, place = call.Send, from
	}
	m.bounce, m.id = place.Kind == device.Host, place.ID
	if len(x.launch.msgs) == 0 {
		for i := range x.lanes {
			x.lanes[i].first = -1
		}
	}
	l := &x.lanes[m.peer]
	if !m.send {
		l = &x.lanes[x.n+m.peer]
	}
	if l.first < 0 {
		l.first = len(x.launch.msgs)
	} else {
		x.launch.msgs[l.last].next = len(x.launch.msgs)
	}
	l.last = len(x.launch.msgs)
	x.launch.msgs = append(x.launch.msgs, m)
	return nil
}

// matchOwn checks the messages of this rank to itself.
func (x *Path) matchOwn() error {
	if len(x.launch.msgs) == 0 {
		return nil
	}
	s, r := x.lanes[x.me].first, x.lanes[x.n+x.me].first
	for ; s >= 0 && r >= 0; s, r = x.launch.msgs[s].next, x.launch.msgs[r].next {
		if a, b := &x.launch.msgs[s], &x.launch.msgs[r]; a.bytes != b.bytes {
			return a.call.Misuse(fmt.Errorf("a rank sends itself %d bytes and receives %d", a.bytes, b.bytes))
		}
	}
	if i := max(s, r); i >= 0 {
		return x.launch.msgs[i].call.Misuse(errors.New("a rank that sends to itself must receive in the same group"))
	}
	return nil
}

// messages enqueues the launch's sends and receives.
func (x *Path) messages() error {
	if len(x.launch.msgs) == 0 {
		return nil
	}
	x.copyOwn()
	if err := x.considerMessages(); err != nil {
		return err
	}
	if err := x.fork(); err != nil {
		return err
	}
	for more := true; more; {
		more = false
		if x.queue.paced {
			x.queue.awaitRoom(x.stuck)
		}
		for i := range x.tracks {
			left, err := x.turns(&x.tracks[i], i)
			if err != nil {
				return err
			}
			more = more || left
		}
	}
	x.queue.onto(x.launch.stream, 0)
	if err := x.sides.Join(x.launch.stream); err != nil {
		return err
	}
	if x.queue.paced {
		x.queue.markSides()
	}
	x.settleMessages()
	return nil
}

// copyOwn enqueues copies for the messages of this rank to itself.
func (x *Path) copyOwn() {
	s, r := x.lanes[x.me].first, x.lanes[x.n+x.me].first
	for ; s >= 0; s, r = x.launch.msgs[s].next, x.launch.msgs[r].next {
		x.queue.copy(x.launch.msgs[r].at, x.launch.msgs[s].at, x.launch.msgs[s].bytes)
	}
}

// step enqueues the next chunk of a lane, on its stream. An empty message has one chunk. The sender copies a chunk from
// its buffer to the slot, unless it lends the buffer. The receiver copies it from the slot, or from the sender's
// buffer.
func (x *Path) step(l *lane) error {
	m := &x.launch.msgs[l.first]
	n, slot := min(x.exchange.pairBytes, m.bytes-l.off), l.chunk%pairSlots
	owner, reader, awaited, given := l.peer, x.me, tokenReady, tokenFree
	if l.send {
		owner, reader, awaited, given = x.me, l.peer, tokenFree, tokenReady
	}
	at := x.page.token(stagePair, slot, owner, reader, awaited)
	x.queue.wait(at)
	x.queue.store(at, 0, false)
	own, inSlot := unsafe.Add(m.at, l.off), x.exchange.pair(owner, reader, slot)
	switch {
	case !l.send:
		c := device.Copy{Dst: own, Src: inSlot}
		if m.look {
			c.Found, c.Offset = x.exchange.said(owner, reader, wordMessage+slot), l.off
		}
		room := unsafe.Add(x.exchange.scratch(), int64(l.peer)*x.exchange.pairBytes)
		x.find(m.call, c, m.tag(), n, m.bounce, room, x.exchange.pairBytes)
	case m.lent == nil && m.bounce:
		x.speakOf(l, m, slot)
		x.queue.copy(inSlot, own, n)
	default:
		x.speakOf(l, m, slot)
		if m.lent == nil {
			x.queue.job(m.call, device.Copy{Dst: inSlot, Src: own}, n)
		}
	}
	x.queue.put(word{gives: true, Store: device.Store{At: x.page.token(stagePair, slot, owner, reader, given), Value: 1}})
	l.off, l.chunk = l.off+n, l.chunk+1
	if l.off == m.bytes {
		l.rests = l.send && l.chunk > 1
		l.first, l.off, l.chunk = m.next, 0, 0
	}
	return x.queue.flush()
}

// A launch has a lane for each peer and direction. Its lanes run on a few streams: the launch's own one, and side
// streams that fork from it and join it again. The communicators of a context share the side streams, so that there are
// fewer streams than queues of the driver. Sends and receives are on different streams, if there is a side stream: then
// a receive does not hold up a send that its peer needs first.
//
// The lanes of one stream take turns, sends first. In each turn a lane moves one chunk. In its first turn of a message,
// a send moves both slots, and it rests for a turn after the message. So a send waits only for receives of earlier
// turns, and a receive for sends of its own turn or an earlier one. If all ranks have the same messages in a group, one
// stream does not stop. A message that fits into both slots does not wait for its receiver at all.

// track is the lanes of one stream in a launch. The first track is of the launch's own stream.
type track struct {
	on    device.Stream
	lanes []int // indices, in the order of their turns
	next  int   // whose turn it is
}

// fork gives each lane of the launch a stream. In a graph, nodes of one stream keep their order, so it uses only one.
func (x *Path) fork() error {
	if err := x.queue.flush(); err != nil {
		return err
	}
	lanes, sends := 0, 0
	for i := range x.lanes {
		if l := &x.lanes[i]; l.first >= 0 && l.peer != x.me {
			lanes++
			if l.send {
				sends++
			}
		}
	}
	if n := lanes - 1; n > 0 && x.launch.capture.ID == 0 {
		if err := x.sides.Fork(x.dev, n, &x.page.rank(x.me).ended, x.launch.number, x.launch.stream); err != nil {
			return err
		}
	}
	x.makeTracks()
	// Sends have the first streams, receives the others.
	split := len(x.tracks) * sends / max(lanes, 1)
	if 0 < sends && sends < lanes && len(x.tracks) > 1 {
		split = min(max(split, 1), len(x.tracks)-1)
	}
	s, r := 0, 0
	for i := range x.lanes {
		k := x.turn(i)
		l := &x.lanes[k]
		if l.first < 0 || l.peer == x.me {
			continue
		}
		t := &x.tracks[0]
		switch {
		case len(x.tracks) == 1:
		case l.send:
			t = &x.tracks[s%split]
			s++
		default:
			t = &x.tracks[split+r%(len(x.tracks)-split)]
			r++
		}
		l.on, l.off, l.chunk, l.rests = t.on, 0, 0, false
		t.lanes = append(t.lanes, k)
	}
	return nil
}

// turn returns the index of lane i in the order of turns: sends before receives, those to the next rank first.
func (x *Path) turn(i int) int {
	if i < x.n {
		return (x.me + i) % x.n
	}
	return x.n + (x.me-i+2*x.n)%x.n
}

// makeTracks makes a track of each stream of the launch.
func (x *Path) makeTracks() {
	for len(x.tracks) < 1+len(x.sides.Streams) {
		x.tracks = append(x.tracks, track{})
	}
	x.tracks = x.tracks[:1+len(x.sides.Streams)]
	for i := range x.tracks {
		x.tracks[i].lanes, x.tracks[i].next = x.tracks[i].lanes[:0], 0
	}
	x.tracks[0].on = x.launch.stream
	for i, s := range x.sides.Streams {
		x.tracks[1+i].on = s
	}
	x.queue.shareRoom(len(x.sides.Streams))
}

// turns gives each lane of a track a turn, while its stream has room. It reports whether there are more chunks.
func (x *Path) turns(t *track, line int) (more bool, err error) {
	for range t.lanes {
		l := &x.lanes[t.lanes[t.next]]
		switch {
		case l.rests:
			l.rests = false
		case l.first >= 0:
			if x.queue.paced && !x.c.Failed() && x.queue.full(line) {
				return true, nil // the other streams go on: this one may wait for them
			}
			x.queue.turning = true
			x.queue.onto(l.on, line)
			err = x.step(l)
			if err == nil && l.send && l.chunk == 1 {
				err = x.step(l)
			}
			x.queue.turning = false
		}
		if err != nil {
			return false, err
		}
		more = more || l.first >= 0
		t.next = (t.next + 1) % len(t.lanes)
	}
	return more, nil
}
