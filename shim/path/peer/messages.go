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
	bounce bool   // kernels cannot write the buffer
	number uint64 // counts messages between the two ranks in that direction, from 1
	next   int    // index of the next message of the lane, -1 for the last

	lent *region // the region that the sender lends, nil if the message goes through slots
	look bool    // the receiver checks whether the sender lends the message
}

// lane is the sequence of messages to a peer, or from a peer. Lanes run side by side.
type lane struct {
	stream device.Stream // 0 until it is needed
	event  device.Event
	on     device.Stream // the stream in this launch
	peer   int
	send   bool

	first, last int // indices of messages of the launch; first is -1 if there are none
	off         int64
	chunk       int
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

// matchOwn checks the messages of this rank to itself.
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

// messages enqueues the launch's sends and receives. Lanes run on streams that fork from the launch's stream and join
// it again. Chunks of the lanes alternate, sends first. So the messages also progress if the driver has fewer queues
// than streams. They progress in a graph as well, which runs them in one order.
func (x *Path) messages() error {
	if len(x.msgs) == 0 {
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
		if x.paced() && !x.oneQueue {
			x.awaitRoom(x.stuck)
		}
		for i := range x.lanes {
			turn := x.turn(i)
			l, line := &x.lanes[turn], x.lineOf(turn)
			if l.first < 0 || l.peer == x.me {
				continue
			}
			if x.paced() && !x.oneQueue && !x.c.Failed() && x.full(line) {
				more = true // the other lanes go on: this one may wait for them
				continue
			}
			if x.paced() && x.oneQueue { // in one queue, lanes must alternate
				x.awaitRoom(func() bool { return x.full(line) })
			}
			x.onto(l.on, line)
			if err := x.step(l); err != nil {
				return err
			}
			more = more || l.first >= 0
		}
	}
	x.onto(x.stream, 0)
	if err := x.join(); err != nil {
		return err
	}
	if x.paced() {
		x.markLanes()
	}
	x.settleMessages()
	return nil
}

// turn returns the index of lane i in the order of enqueuing: sends before receives, those to the next rank first.
func (x *Path) turn(i int) int {
	if i < x.n {
		return (x.me + i) % x.n
	}
	return x.n + (x.me-i+2*x.n)%x.n
}

// copyOwn enqueues copies for the messages of this rank to itself.
func (x *Path) copyOwn() {
	s, r := x.lanes[x.me].first, x.lanes[x.n+x.me].first
	for ; s >= 0; s, r = x.msgs[s].next, x.msgs[r].next {
		x.copy(x.msgs[r].at, x.msgs[s].at, x.msgs[s].bytes)
	}
}

// fork gives each lane of the launch a stream. The first lane runs on the launch's own stream. In a graph all lanes
// do.
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
	x.shareRoom(lanes)
	return nil
}

// open makes the stream and the event of a lane if it has none.
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

// join makes the launch's stream wait for all lanes.
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

// step enqueues the next chunk of a lane, on its stream. An empty message has one chunk. The sender copies a chunk from
// its buffer to the slot, unless it lends the buffer. The receiver copies it from the slot, or from the sender's buffer.
func (x *Path) step(l *lane) error {
	m := &x.msgs[l.first]
	n, slot := min(x.pairBytes, m.bytes-l.off), l.chunk%pairSlots
	owner, reader, awaited, given := l.peer, x.me, tokenReady, tokenFree
	if l.send {
		owner, reader, awaited, given = x.me, l.peer, tokenFree, tokenReady
	}
	at := x.page.token(stagePair, slot, owner, reader, awaited)
	x.wait(at)
	x.store(at, 0, false)
	own, inSlot := unsafe.Add(m.at, l.off), x.pairAt(owner, reader, slot)
	switch {
	case !l.send:
		c := device.Copy{Dst: own, Src: inSlot}
		if m.look {
			c.Found, c.Offset = x.said(owner, reader, wordMessage+slot), l.off
		}
		x.find(m.call, c, m.tag(), n, m.bounce, unsafe.Add(x.scratch(), int64(l.peer)*x.pairBytes), x.pairBytes)
	case m.lent == nil && m.bounce:
		x.speakOf(l, m, slot)
		x.copy(inSlot, own, n)
	default:
		x.speakOf(l, m, slot)
		if m.lent == nil {
			x.job(m.call, device.Copy{Dst: inSlot, Src: own}, n)
		}
	}
	x.put(word{gives: true, Store: device.Store{At: x.page.token(stagePair, slot, owner, reader, given), Value: 1}})
	l.off, l.chunk = l.off+n, l.chunk+1
	if l.off == m.bytes {
		l.first, l.off, l.chunk = m.next, 0, 0
	}
	return x.flush()
}
