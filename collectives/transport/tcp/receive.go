package tcp

import (
	"fmt"
	"unsafe"

	"lightpath/collectives/wire"

	"golang.org/x/sys/unix"
)

// receiver holds the bytes that a connection has received and the caller has not consumed.
//
// The caller consumes the payload of the oldest frame piece by piece, in one of two ways. Peek returns a piece in buf,
// for callers that read it once while it is in the cache. Land receives a piece directly into the caller's memory; it
// reads only a few bytes beyond the frame into buf, because the caller may want to land the next frame as well.
type receiver struct {
	rxLost   error  // sticky
	readable bool   // the kernel may have data
	ended    bool   // the kernel has reported the end of the stream, which it does only once
	rxPoll   uint64 // see [poller.Set.PollOnce]

	buf        []byte
	start, end int // buf[start:end] is received and not consumed
	// If hasHeader is set, hdr describes the rest of the oldest frame, and buf[start:] begins with its payload.
	// Otherwise buf[start:] begins with a header.
	hasHeader bool
	hdr       wire.Header
	shown     wire.Header // the piece that Peek has returned; Length 0 if there is none
	last      int         // number of bytes that the last system call received
	least     int32       // the kernel reports an arrival when it has so many bytes (SO_RCVLOWAT)
	rxIov     [2]unix.Iovec
	rxMsg     unix.Msghdr
	rxTotal   uint64 // bytes of the stream that receive has returned
	prompt    bool   // the last parsed frame is prompt
}

func (r *receiver) init() {
	r.readable = true
	r.buf = make([]byte, bufferSize)
	r.least = 1
	r.rxMsg.Iov = &r.rxIov[0]
}

// parse decodes and checks the header of the oldest frame, if the whole header is in the buffer.
// Hot path: no allocation, no logging.
func (c *conn) parse(rank int) error {
	if c.hasHeader || c.end-c.start < wire.HeaderSize {
		return nil
	}
	if err := wire.Decode(c.buf[c.start:c.end], &c.hdr); err != nil {
		return c.corrupt(err)
	}
	if c.hdr.Length == 0 || c.hdr.Length > maxPayload {
		return c.corrupt(fmt.Errorf("frame of %d bytes", c.hdr.Length))
	}
	if err := c.hdr.CheckFlow(c.peer, rank, c.plane); err != nil {
		return c.corrupt(err)
	}
	c.hasHeader = true
	c.start += wire.HeaderSize
	if prompt := c.hdr.Flags&wire.Prompt != 0; prompt != c.prompt {
		if c.prompt = prompt; prompt {
			c.acknowledge()
		}
	}
	return nil
}

// choosePiece chooses the piece of the oldest frame that Peek returns: the rest of the frame, or the part that has
// arrived if it has at least minPiece bytes. It reports whether there is a piece.
func (c *conn) choosePiece() bool {
	if c.shown.Length != 0 {
		return true
	}
	if !c.hasHeader {
		return false
	}
	n := min(c.end-c.start, int(c.hdr.Length))
	if n < int(c.hdr.Length) {
		if n < minPiece {
			return false
		}
		n &^= 7
	}
	c.shown = c.hdr
	c.shown.Length = uint32(n)
	return true
}

// pieceData returns the payload of the piece.
func (c *conn) pieceData() []byte { return c.buf[c.start : c.start+int(c.shown.Length)] }

// release consumes the piece.
func (c *conn) release() {
	n := int(c.shown.Length)
	c.shown.Length = 0
	c.start += n
	c.consumed(n)
}

// consumed shortens the oldest frame by its first n bytes.
func (c *conn) consumed(n int) {
	c.hdr.Offset += uint64(n)
	c.hdr.Length -= uint32(n)
	c.hasHeader = c.hasHeader && c.hdr.Length > 0
	if c.start == c.end {
		c.start, c.end = 0, 0
	}
}

// receiveInto moves payload of the oldest frame into dst: first from the buffer, then from the kernel.
// Hot path: no allocation, no logging.
func (c *conn) receiveInto(dst []byte) (int, error) {
	dst = dst[:min(len(dst), int(c.hdr.Length))]
	c.shown.Length = 0 // a piece that Peek returned is no longer valid
	n := copy(dst, c.buf[c.start:c.end])
	c.start += n
	c.consumed(n)
	if n == len(dst) || !c.readable {
		return n, nil
	}
	got, err := c.receive(dst[n:], lookahead)
	received := min(got, len(dst)-n)
	c.consumed(received)
	c.expectLess()
	if n+received > 0 {
		err = nil // the next call returns it, because it is sticky
	}
	return n + received, err
}

// receive reads into dst, then at most ahead bytes into the buffer, whose unconsumed bytes are a part of a header or of
// a piece. It returns the number of bytes read into both.
// Hot path: no allocation, no logging.
func (c *conn) receive(dst []byte, ahead int) (int, error) {
	if c.rxLost != nil && len(c.backlog) == 0 {
		return 0, c.rxLost
	}
	if len(c.buf)-c.end < ahead {
		c.end = copy(c.buf, c.buf[c.start:c.end])
		c.start = 0
	}
	room := c.buf[c.end:]
	room = room[:min(len(room), ahead)]
	if c.down || len(c.backlog) > 0 {
		return c.receiveBacklog(dst, room), nil
	}
	for {
		n, errno := c.recvmsg(dst, room)
		switch {
		case errno == unix.EINTR:
			continue
		case errno == unix.EAGAIN:
			c.readable = false
			return 0, nil
		case errno != 0 || n == 0:
			c.rxLost = c.broken(errno)
			if c.rxLost == nil {
				n = c.receiveBacklog(dst, room)
			}
			return n, c.rxLost
		}
		c.last = n
		c.rxTotal += uint64(n)
		if c.prompt || c.guard != nil && n > wire.HeaderSize+copied {
			c.acknowledge()
		}
		c.end += max(n-len(dst), 0)
		// After a short count the kernel has no more data, and reports the next arrival as a new edge.
		c.readable = n == len(dst)+len(room) || c.ended
		return n, nil
	}
}

// expectMore makes the kernel report the next arrival only when minPiece bytes are there, or the rest of the oldest
// frame. The rank is about to sleep, and could do little with less.
// Hot path: no allocation, no logging.
func (c *conn) expectMore() { c.expect(min(c.rest(), minPiece)) }

// expectLess lowers the mark of expectMore if less than that is missing.
// Hot path: no allocation, no logging.
func (c *conn) expectLess() {
	if rest := c.rest(); int(c.least) > max(rest, 1) {
		c.expect(rest)
	}
}

// rest returns the bytes of the oldest frame that are missing, 0 if its header is.
func (c *conn) rest() int {
	if !c.hasHeader {
		return 0
	}
	return int(c.hdr.Length) - (c.end - c.start)
}

func (c *conn) expect(n int) {
	if n <= shortCall {
		n = 1
	}
	if n == int(c.least) || c.down {
		return
	}
	c.least = int32(n)
	c.setOption(unix.SOL_SOCKET, unix.SO_RCVLOWAT, c.least) // without the option, the kernel reports every arrival
}

// acknowledge makes the kernel acknowledge received bytes at once. Otherwise the kernel may wait 40 ms. The other rank
// would copy lent payload instead, and its kernel would hold short frames back.
func (c *conn) acknowledge() { c.setOption(unix.IPPROTO_TCP, unix.TCP_QUICKACK, 1) }

// setOption sets an option of the socket. Options only save time, so errors are ignored. It does not notify Go's
// scheduler, since the call does not block.
// Hot path: no allocation, no logging.
func (c *conn) setOption(level, option int, value int32) {
	_, _, _ = unix.RawSyscall6(unix.SYS_SETSOCKOPT, uintptr(c.fd), uintptr(level), uintptr(option),
		uintptr(unsafe.Pointer(&value)), unsafe.Sizeof(value), 0)
}

// expected returns the number of bytes to receive before the next header is known. If the last frames were small, it
// is a whole small frame. Otherwise it is little, because payload that arrives in the buffer is copied once more.
func (c *conn) expected() int {
	if c.last <= shortCall {
		return shortCall
	}
	return lookahead
}

// recvmsg receives into dst and then into room. If the last receive was short, it assumes that this one is short as
// well. Then it does not notify Go's scheduler, which would move this thread's work to another thread.
func (c *conn) recvmsg(dst, room []byte) (int, unix.Errno) {
	if len(dst) == 0 && c.last < shortCall {
		n, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(c.fd), uintptr(unsafe.Pointer(&room[0])),
			uintptr(len(room)), unix.MSG_DONTWAIT, 0, 0)
		return int(n), errno
	}
	count := 0
	if len(dst) > 0 {
		c.rxIov[0].Base = &dst[0]
		c.rxIov[0].SetLen(len(dst))
		count = 1
	}
	c.rxIov[count].Base = &room[0]
	c.rxIov[count].SetLen(len(room))
	c.rxMsg.SetIovlen(count + 1)
	n, _, errno := unix.Syscall(unix.SYS_RECVMSG, uintptr(c.fd), uintptr(unsafe.Pointer(&c.rxMsg)), unix.MSG_DONTWAIT)
	c.rxIov[0].Base, c.rxIov[1].Base = nil, nil
	return int(n), errno
}
