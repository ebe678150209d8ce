package peer

import (
	"sync/atomic"
	"time"

	"lightpath/shim/device"
)

// A driver keeps about 1000 operations in a queue, and streams may share a queue. If it is full, the driver blocks the
// thread that adds more, and with it all other threads in the context: docs/design/gpu-model.md. So a rank adds
// operations only while few are outstanding, and sleeps before it calls the driver.

// queueRoom is how many outstanding operations the ranks of a context share.
const queueRoom = 960

// leastRoom is how many operations a line always has.
const leastRoom = 24

// longestPause is the longest pause between looks for room.
const longestPause = 500 * time.Microsecond

// line counts the operations on a stream: the launch's stream, or that of a lane. A number wraps around.
type line struct {
	put    uint32 // enqueued, with those that are about to be
	marked uint32 // put when the line last got a mark: a write of that number into the page
	room   uint32 // how many may be outstanding
}

// rooms divides queueRoom among the ranks of this process on the device. The launch's stream gets half of a rank's
// room, the lanes in use share the other half.
func (x *Path) rooms() {
	sharing := uint32(0)
	for r := range x.c.Table {
		if x.c.Table[r].Process == x.c.Table[x.me].Process && x.c.Table[r].Identity == x.c.Table[x.me].Identity {
			sharing++
		}
	}
	x.lines = make([]line, 1+len(x.lanes))
	x.roomForLanes = queueRoom / 2 / max(sharing, 1)
	x.lines[0].room = max(x.roomForLanes, leastRoom)
}

// shareRoom divides the room for lanes.
func (x *Path) shareRoom(lanes int) {
	for i := 1; i < len(x.lines); i++ {
		x.lines[i].room = max(x.roomForLanes/uint32(max(lanes, 1)), leastRoom)
	}
}

// lineOf returns the index of the line of lane i in this launch.
func (x *Path) lineOf(i int) int {
	if x.lanes[i].on == x.stream {
		return 0
	}
	return 1 + i
}

// paced reports whether the launch counts its operations. A graph keeps them all, and peers hold up no single rank.
func (x *Path) paced() bool { return x.n > 1 && x.capture.ID == 0 }

// due reports whether a line needs a mark.
func (l *line) due() bool { return l.put-l.marked >= l.room/4 }

// mark returns the write that says that the stream has passed all that is enqueued on a line.
func (x *Path) mark(i int) word {
	l := &x.lines[i]
	l.marked = l.put
	return word{Store: device.Store{At: x.page.wordOf(&x.page.rank(x.me).passed[i]), Value: uint64(l.put)}}
}

// full reports whether a line has no room.
func (x *Path) full(i int) bool {
	l := &x.lines[i]
	return l.put-atomic.LoadUint32(&x.page.rank(x.me).passed[i]) > l.room
}

// awaitRoom waits until full reports false, or the communicator has failed: then streams wait for nothing. Meanwhile
// the watcher may acknowledge regions.
func (x *Path) awaitRoom(full func() bool) {
	for pause := shortestLook; full() && !x.c.Failed(); pause = min(2*pause, longestPause) {
		x.putting.Unlock()
		time.Sleep(pause)
		x.putting.Lock()
	}
}

// markLanes marks the lines of all lanes on the launch's stream, which has joined them.
func (x *Path) markLanes() {
	for i := 1; i < len(x.lines); i++ {
		if x.lines[i].marked != x.lines[i].put {
			x.put(x.mark(i))
		}
	}
}

// stuck reports whether there are lanes with messages, and none of them has room.
func (x *Path) stuck() bool {
	some := false
	for i := range x.lanes {
		l := &x.lanes[i]
		if l.first < 0 || l.peer == x.me {
			continue
		}
		if !x.full(x.lineOf(i)) {
			return false
		}
		some = true
	}
	return some
}
