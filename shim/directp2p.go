package shim

import (
	"errors"
	"fmt"
	"unsafe"

	"lightpath/shim/device"
)

// directMessage is a send or receive of a launch.
type directMessage struct {
	call  *Call
	at    unsafe.Pointer
	bytes int64
	peer  int
	send  bool
	next  int // of the same lane, -1: it is the last
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
}

// addMessage adds a send or receive to the launch.
func (x *direct) addMessage(call *Call) error {
	if _, err := call.check(); err != nil {
		return err
	}
	m := directMessage{call: call, at: call.Recv, peer: int(call.Peer), next: -1}
	name := "recvbuff"
	if m.send = call.Kind == CallSend; m.send {
		m.at, name = call.Send, "sendbuff"
	}
	send, recv := call.extents()
	m.bytes = max(send, recv)
	if _, err := call.located(name, m.at, m.bytes); err != nil {
		return err
	}
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
func (x *direct) matchOwn() error {
	if len(x.msgs) == 0 {
		return nil
	}
	s, r := x.lanes[x.me].first, x.lanes[x.n+x.me].first
	for ; s >= 0 && r >= 0; s, r = x.msgs[s].next, x.msgs[r].next {
		if a, b := &x.msgs[s], &x.msgs[r]; a.bytes != b.bytes {
			return a.call.misuse(fmt.Errorf("a rank sends itself %d bytes and receives %d", a.bytes, b.bytes))
		}
	}
	if i := max(s, r); i >= 0 {
		return x.msgs[i].call.misuse(errors.New("a rank that sends to itself must receive in the same group"))
	}
	return nil
}

// messages puts the launch's sends and receives on the stream, and what goes on beside on streams that part from it and join it again.
// Parts of messages are put there by turns, sends first: so they also go on where a driver has fewer queues than
// streams, or a graph, which is in one order.
func (x *direct) messages() error {
	if len(x.msgs) == 0 {
		return nil
	}
	if err := x.copyOwn(); err != nil {
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
	return x.join()
}

// turn is the lane that comes as number i: sends before receives, those to the next rank first.
func (x *direct) turn(i int) int {
	if i < x.n {
		return (x.me + i) % x.n
	}
	return x.n + (x.me-i+2*x.n)%x.n
}

// copyOwn copies what this rank sends to itself.
func (x *direct) copyOwn() error {
	s, r := x.lanes[x.me].first, x.lanes[x.n+x.me].first
	for ; s >= 0; s, r = x.msgs[s].next, x.msgs[r].next {
		if err := x.copy(x.msgs[r].at, x.msgs[s].at, x.msgs[s].bytes); err != nil {
			return err
		}
	}
	return nil
}

// fork gives each lane of the launch a stream: the first the launch's own, as all in a graph.
func (x *direct) fork() error {
	if err := x.flush(); err != nil {
		return err
	}
	d, lanes := x.c.dev, 0
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
			if err := devices.Record(d.joint, x.stream); err != nil {
				return err
			}
		}
		if err := x.open(l); err != nil {
			return err
		}
		l.on = l.stream
		if err := devices.Follow(l.on, d.joint); err != nil {
			return err
		}
	}
	return nil
}

// open makes the stream of a lane.
func (x *direct) open(l *lane) (err error) {
	if l.event == 0 {
		if l.event, err = devices.NewEvent(); err != nil {
			return err
		}
	}
	if l.stream == 0 {
		l.stream, err = x.driver.NewStream()
	}
	return err
}

// join has the launch's stream wait for all lanes.
func (x *direct) join() error {
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

// step puts the next chunk of a lane on its stream. A message of no bytes has one.
func (x *direct) step(l *lane) error {
	m := &x.msgs[l.first]
	n, slot := min(x.pairBytes, m.bytes-l.off), l.chunk%numSlots
	owner, reader, awaited, given := l.peer, x.me, tokenReady, tokenFree
	if l.send {
		owner, reader, awaited, given = x.me, l.peer, tokenFree, tokenReady
	}
	to, from := unsafe.Add(m.at, l.off), x.pairAt(owner, reader, slot)
	if l.send {
		to, from = from, to
	}
	at := x.page.token(stagePair, slot, owner, reader, awaited)
	x.word(at, 1, 1)
	x.word(at, 0, 0)
	if n > 0 {
		if err := x.flushTo(l.on); err != nil {
			return err
		}
		if err := devices.Copy(to, from, int(n), l.on); err != nil {
			return err
		}
	}
	x.word(x.page.token(stagePair, slot, owner, reader, given), 1, 0)
	l.off, l.chunk = l.off+n, l.chunk+1
	if l.off == m.bytes {
		l.first, l.off, l.chunk = m.next, 0, 0
	}
	return x.flushTo(l.on)
}
