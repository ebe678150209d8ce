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
	m := message{call: call, at: call.Recv, peer: int(call.Peer), next: -1}
	name := "recvbuff"
	if m.send = call.Kind == calls.Send; m.send {
		m.at, name = call.Send, "sendbuff"
	}
	send, recv := call.Extents()
	m.bytes = max(send, recv)
	place, err := stream.Locate(call, name, m.at, m.bytes)
	if err != nil {
		return err
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
