package tcp

import (
	"fmt"
	"unsafe"

	"lightpath/collectives/wire"

	"golang.org/x/sys/unix"
)

// receiver is what has been received of a connection's frames and not been taken.
//
// The payload of the head frame is taken in one of two ways, piece by piece as it comes: shown in
// buf (Peek), for whoever reads it once while it is in the cache, or received right where it is
// to stay (Land). What is read beyond it goes to buf: little, where the next may land, too.
type receiver struct {
	rxLost   error  // sticky: nothing more will arrive
	readable bool   // the kernel may have something
	ended    bool   // the kernel has said that the stream ends: it says so only once
	rxSweep  uint64 // of the endpoint, when readable was last asked for

	buf        []byte
	start, end int // buf[start:end] is received and not taken
	// headed: hdr is the head frame's, and what is left of it. What buf[start:] begins with is its
	// payload then, else its header.
	headed bool
	hdr    wire.Header
	shown  wire.Header // the piece that Peek shows, Length 0 where it shows none
	last   int         // how much the last receive gave
	rxIov  [2]unix.Iovec
	rxMsg  unix.Msghdr
}

func (r *receiver) init() {
	r.readable = true
	r.buf = make([]byte, bufferSize)
	r.rxMsg.Iov = &r.rxIov[0]
}

// parse reads the head frame's header, if it is there, and checks that the frame belongs here.
// Hot path: no allocation, no logging.
func (c *conn) parse(rank int) error {
	if c.headed || c.end-c.start < wire.HeaderSize {
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
	c.headed = true
	c.start += wire.HeaderSize
	return nil
}

// piece decides what of the head frame is shown: the rest of it, or what has come of it if
// that is worth a look of its own.
func (c *conn) piece() bool {
	if c.shown.Length != 0 {
		return true
	}
	if !c.headed {
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

// data is the payload of the piece that is shown.
func (c *conn) data() []byte { return c.buf[c.start : c.start+int(c.shown.Length)] }

// release drops the piece that is shown.
func (c *conn) release() {
	n := int(c.shown.Length)
	c.shown.Length = 0
	c.start += n
	c.took(n)
}

// took shortens the head frame by its first n bytes. An empty buffer begins anew.
func (c *conn) took(n int) {
	c.hdr.Offset += uint64(n)
	c.hdr.Length -= uint32(n)
	c.headed = c.headed && c.hdr.Length > 0
	if c.start == c.end {
		c.start, c.end = 0, 0
	}
}

// land takes payload of the head frame into dst: what is in the buffer, and what the kernel has
// then.
// Hot path: no allocation, no logging.
func (c *conn) land(dst []byte) (int, error) {
	dst = dst[:min(len(dst), int(c.hdr.Length))]
	c.shown.Length = 0 // nobody looks at it any more
	n := copy(dst, c.buf[c.start:c.end])
	c.start += n
	c.took(n)
	if n == len(dst) || !c.readable {
		return n, nil
	}
	got, err := c.receive(dst[n:], lookahead)
	landed := min(got, len(dst)-n)
	c.took(landed)
	if n+landed > 0 {
		err = nil // it is sticky
	}
	return n + landed, err
}

// receive reads into dst, then at most ahead bytes into the buffer, of which a part of a header
// or of a piece is all there is. It returns how many bytes came, those in the buffer included.
// Hot path: no allocation, no logging.
func (c *conn) receive(dst []byte, ahead int) (int, error) {
	if c.rxLost != nil {
		return 0, c.rxLost
	}
	if len(c.buf)-c.end < ahead {
		c.end = copy(c.buf, c.buf[c.start:c.end])
		c.start = 0
	}
	room := c.buf[c.end:]
	room = room[:min(len(room), ahead)]
	for {
		n, errno := c.recvmsg(dst, room)
		switch {
		case errno == unix.EINTR:
			continue
		case errno == unix.EAGAIN:
			c.readable = false
			return 0, nil
		case errno != 0 || n == 0:
			c.rxLost = c.loss(errno)
			return 0, c.rxLost
		}
		c.last = n
		c.end += max(n-len(dst), 0)
		// A short count means that nothing is left; what comes now is a new edge.
		c.readable = n == len(dst)+len(room) || c.ended
		return n, nil
	}
}

// expected is how much to receive before anything is known of the next frame: a small frame
// altogether, where the last ones were small, and else little, for what comes after the header is copied
// once more than what is received in its place.
func (c *conn) expected() int {
	if c.last <= shortCall {
		return shortCall
	}
	return lookahead
}

// recvmsg scatters over dst and room. Where nothing much has come of late nothing much is expected:
// a short call need not be announced to Go's scheduler, which would hand this thread's work to
// another.
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
