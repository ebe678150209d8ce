package peer

import (
	"sync"
	"sync/atomic"
	"time"

	"lightpath/shim/comm"
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

// pace keeps a launch from filling the driver's queues.
type pace struct {
	paced        bool       // the launch counts its operations: a graph keeps them all, and peers hold up no single rank
	lines        []line     // of the launch's stream, then of the side streams
	putting      sync.Mutex // held by Put, except while it waits for room
	turning      bool       // a lane has a turn, for which there was room
	roomForSides uint32     // how many operations may be outstanding on all side streams
}

// divideRoom divides queueRoom among the ranks of this process on the device. The launch's stream gets half of a rank's
// room, the side streams in use share the other half.
func (p *pace) divideRoom(c *comm.Core) {
	p.paced, p.lines = c.Ranks > 1, make([]line, 1+stream.MaxSides)
	p.roomForSides = queueRoom / 2 / uint32(stream.Sharing(c))
	p.lines[0].room = max(p.roomForSides, leastRoom)
}

// shareRoom divides the room for side streams.
func (p *pace) shareRoom(sides int) {
	for i := 1; i < len(p.lines); i++ {
		p.lines[i].room = max(p.roomForSides/uint32(max(sides, 1)), leastRoom)
	}
}

// due reports whether a line needs a mark.
func (l *line) due() bool { return l.put-l.marked >= l.room/4 }

// mark returns the write that says that the stream has passed all that is enqueued on a line.
func (q *queue) mark(i int) word {
	l := &q.lines[i]
	l.marked = l.put
	return word{Store: device.Store{At: q.page.wordOf(&q.page.rank(q.me).passed[i]), Value: uint64(l.put)}}
}

// full reports whether a line has no room.
func (q *queue) full(i int) bool {
	l := &q.lines[i]
	return l.put-atomic.LoadUint32(&q.page.rank(q.me).passed[i]) > l.room
}

// awaitRoom waits until full reports false, or the communicator has failed: then streams wait for nothing. Meanwhile
// the watcher may acknowledge regions.
func (q *queue) awaitRoom(full func() bool) {
	for pause := shortestLook; full() && !q.c.Failed(); pause = min(2*pause, longestPause) {
		q.putting.Unlock()
		time.Sleep(pause)
		q.putting.Lock()
	}
}

// markSides marks the lines of all side streams on the launch's stream, which has joined them.
func (q *queue) markSides() {
	for i := 1; i < len(q.lines); i++ {
		if q.lines[i].marked != q.lines[i].put {
			q.put(q.mark(i))
		}
	}
}

// stuck reports whether there are messages, and no stream with some has room.
func (x *Path) stuck() bool {
	some := false
	for i := range x.tracks {
		for _, k := range x.tracks[i].lanes {
			if x.lanes[k].first >= 0 && !x.queue.full(i) {
				return false
			}
			some = some || x.lanes[k].first >= 0
		}
	}
	return some
}
