package peer

import (
	"sync/atomic"
	"time"

	"lightpath/shim/device"
	"lightpath/shim/stream"
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

// line counts the operations on a stream: the launch's stream, or a side stream. A number wraps around.
type line struct {
	put    uint32 // enqueued or about to be
	marked uint32 // put when the line last got a mark: a write of that number into the page
	room   uint32 // how many may be outstanding
}

// rooms divides queueRoom among the ranks of this process on the device. The launch's stream gets half of a rank's
// room, the side streams in use share the other half.
func (x *Path) rooms() {
	x.mostSides = stream.SidesOfLaunch(x.c)
	x.lines = make([]line, 1+stream.MaxSides)
	x.roomForSides = queueRoom / 2 / uint32(stream.Sharing(x.c))
	x.lines[0].room = max(x.roomForSides, leastRoom)
}

// shareRoom divides the room for side streams.
func (x *Path) shareRoom(sides int) {
	for i := 1; i < len(x.lines); i++ {
		x.lines[i].room = max(x.roomForSides/uint32(max(sides, 1)), leastRoom)
	}
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

// markSides marks the lines of all side streams on the launch's stream, which has joined them.
func (x *Path) markSides() {
	for i := 1; i < len(x.lines); i++ {
		if x.lines[i].marked != x.lines[i].put {
			x.put(x.mark(i))
		}
	}
}

// stuck reports whether there are messages, and no stream with some has room.
func (x *Path) stuck() bool {
	some := false
	for i := range x.tracks {
		for _, k := range x.tracks[i].lanes {
			if x.lanes[k].first >= 0 && !x.full(i) {
				return false
			}
			some = some || x.lanes[k].first >= 0
		}
	}
	return some
}
