package peer

import "lightpath/shim/device"

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
