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
	bytes  int64
	peer   int
	send   bool
	bounce bool   // at is memory that no kernel writes
	number uint64 // of those between the two ranks in that direction, from 1
	next   int    // of the same lane, -1: it is the last

	lent *region // by the sender: it is read where it is
	look bool    // the receiver asks whether it is
}

// lane is what goes to another rank, or comes from there: messages one after another, beside those of other lanes.
type lane struct {
	stream device.Stream // 0: there has been no need for one
	event  device.Event
	on     device.Stream // where this launch has it
	peer   int
	send   bool

	first, last int // messages of the launch; first -1: none
	off         int64
	chunk       int
	said        uint32 // slots for which the sender has said where something is
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
	m.bounce = place.Kind == device.Host
	if len(x.msgs) == 0 {
		for i := range x.lanes {
			x.lanes[i].first = -1
		}
	}
	l := &x.lanes[m.peer]
	if !m.send {
		l = &x.lanes[x.n+m.peer]
	}
	if l.first < 0 {
		l.first = len(x.msgs)
	} else {
		x.msgs[l.last].next = len(x.msgs)
	}
	l.last = len(x.msgs)
	x.msgs = append(x.msgs, m)
	return nil
}

// matchOwn checks what this rank sends to itself.
func (x *Path) matchOwn() error {
	if len(x.msgs) == 0 {
		return nil
	}
	s, r := x.lanes[x.me].first, x.lanes[x.n+x.me].first
	for ; s >= 0 && r >= 0; s, r = x.msgs[s].next, x.msgs[r].next {
		if a, b := &x.msgs[s], &x.msgs[r]; a.bytes != b.bytes {
			return a.call.Misuse(fmt.Errorf("a rank sends itself %d bytes and receives %d", a.bytes, b.bytes))
		}
	}
	if i := max(s, r); i >= 0 {
		return x.msgs[i].call.Misuse(errors.New("a rank that sends to itself must receive in the same group"))
	}
	return nil
}

// messages puts the launch's sends and receives on the stream, and what goes on beside on streams that part from it and join it again.
// Parts of messages are put there by turns, sends first: so they also go on where a driver has fewer queues than
// streams, or a graph, which is in one order.
func (x *Path) messages() error {
	if len(x.msgs) == 0 {
		return nil
	}
	if err := x.copyOwn(); err != nil {
		return err
	}
	if err := x.considerMessages(); err != nil {
		return err
	}
	if err := x.fork(); err != nil {
		return err
	}
	for more := true; more; {
		more = false
		for i := range x.lanes {
			l := &x.lanes[x.turn(i)]
			if l.first < 0 || l.peer == x.me {
				continue
			}
			if err := x.step(l); err != nil {
				return err
			}
			more = more || l.first >= 0
		}
	}
	if err := x.join(); err != nil {
		return err
	}
	x.settleMessages()
	return nil
}

// turn is the lane that comes as number i: sends before receives, those to the next rank first.
func (x *Path) turn(i int) int {
	if i < x.n {
		return (x.me + i) % x.n
	}
	return x.n + (x.me-i+2*x.n)%x.n
}

// copyOwn copies what this rank sends to itself.
func (x *Path) copyOwn() error {
	s, r := x.lanes[x.me].first, x.lanes[x.n+x.me].first
	for ; s >= 0; s, r = x.msgs[s].next, x.msgs[r].next {
		if err := x.copy(x.msgs[r].at, x.msgs[s].at, x.msgs[s].bytes); err != nil {
			return err
		}
	}
	return nil
}

// fork gives each lane of the launch a stream: the first the launch's own, as all in a graph.
func (x *Path) fork() error {
	if err := x.flush(); err != nil {
		return err
	}
	d, lanes := x.dev, 0
	for i := range x.lanes {
		l := &x.lanes[x.turn(i)]
		if l.first < 0 || l.peer == x.me {
			continue
		}
		l.on, l.off, l.chunk = x.stream, 0, 0
		if lanes++; lanes == 1 || x.capture.ID != 0 {
			continue
		}
		if lanes == 2 {
			if err := device.Active().Record(d.Joint, x.stream); err != nil {
				return err
			}
		}
		if err := x.open(l); err != nil {
			return err
		}
		l.on = l.stream
		if err := device.Active().Follow(l.on, d.Joint); err != nil {
			return err
		}
	}
	return nil
}

// open makes the stream of a lane.
func (x *Path) open(l *lane) (err error) {
	if l.event == 0 {
		if l.event, err = device.Active().NewEvent(); err != nil {
			return err
		}
	}
	if l.stream == 0 {
		l.stream, err = x.driver.NewStream()
	}
	return err
}

// join has the launch's stream wait for all lanes.
func (x *Path) join() error {
	for i := range x.lanes {
		l := &x.lanes[i]
		if l.on == 0 || l.on == x.stream {
			l.on = 0
			continue
		}
		if err := errors.Join(x.driver.Record(l.event, l.on), x.driver.Follow(x.stream, l.event)); err != nil {
			return err
		}
		l.on = 0
	}
	return nil
}

// move copies a chunk of n bytes between a message and its slot, or to the receiver from where the sender has it.
func (x *Path) move(l *lane, m *message, slot int, n int64) error {
	own := unsafe.Add(m.at, l.off)
	switch {
	case n == 0 || m.lent != nil:
		return nil
	case m.look:
		return x.fetchMessage(l, m, own, slot, n)
	}
	if err := x.flushTo(l.on); err != nil {
		return err
	}
	if l.send {
		return device.Active().Copy(x.pairAt(x.me, l.peer, slot), own, int(n), l.on)
	}
	return device.Active().Copy(own, x.pairAt(l.peer, x.me, slot), int(n), l.on)
}

// step puts the next chunk of a lane on its stream. A message of no bytes has one.
func (x *Path) step(l *lane) error {
	m := &x.msgs[l.first]
	n, slot := min(x.pairBytes, m.bytes-l.off), l.chunk%numSlots
	owner, reader, awaited, given := l.peer, x.me, tokenReady, tokenFree
	if l.send {
		owner, reader, awaited, given = x.me, l.peer, tokenFree, tokenReady
	}
	at := x.page.token(stagePair, slot, owner, reader, awaited)
	x.word(at, 1, 1)
	x.word(at, 0, 0)
	if l.send {
		x.speakOf(l, m, slot)
	}
	if err := x.move(l, m, slot, n); err != nil {
		return err
	}
	x.word(x.page.token(stagePair, slot, owner, reader, given), 1, 0)
	l.off, l.chunk = l.off+n, l.chunk+1
	if l.off == m.bytes {
		l.first, l.off, l.chunk = m.next, 0, 0
	}
	return x.flushTo(l.on)
}
