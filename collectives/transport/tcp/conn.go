package tcp

import (
	"fmt"
	"unsafe"

	"lightpath/collectives/transport"
	"lightpath/collectives/wire"

	"golang.org/x/sys/unix"
)

// conn is one connection: the frame being sent, and what has been received.
type conn struct {
	fd          int
	plane, peer int
	txLost      error // sticky: nothing more can be sent
	rxLost      error // sticky: nothing more will arrive

	// The frame being sent. head[headAt:] and then owed payload bytes are still to go; the
	// caller offers those bytes again, see [transport.Plane.TrySend].
	head    [wire.HeaderSize]byte
	headAt  int // HeaderSize where no header is pending
	owed    int
	full    bool   // the kernel has no room; it will say when it has
	txSweep uint64 // of the endpoint, when full was last asked for
	iov     [2]unix.Iovec
	msg     unix.Msghdr

	// What has been received and not released: buf[start:end].
	buf        []byte
	start, end int
	readable   bool
	rxSweep    uint64 // of the endpoint, when readable was last asked for
	have       bool   // hdr and the frame at start are valid
	hdr        wire.Header
}

func newConn(fd, plane, peer int) *conn {
	c := &conn{fd: fd, plane: plane, peer: peer, headAt: wire.HeaderSize, readable: true}
	c.buf = make([]byte, bufferSize)
	c.msg.Iov = &c.iov[0]
	return c
}

// send writes as much as the socket takes of one frame that begins with payload[0], or
// of the frame that is under way, and returns the payload bytes taken.
// Hot path: no allocation, no logging.
func (c *conn) send(h *wire.Header, payload []byte) (int, error) {
	if c.txLost != nil {
		return 0, c.txLost
	}
	if c.headAt == wire.HeaderSize && c.owed == 0 {
		frame := *h
		c.owed = min(len(payload), maxPayload)
		frame.Length = uint32(c.owed)
		wire.Encode(&frame, c.head[:])
		c.headAt = 0
	}
	if c.owed > len(payload) {
		return 0, fmt.Errorf("tcp: rank %d, plane %d: %d bytes of a frame are owed, %d offered", c.peer, c.plane, c.owed, len(payload))
	}
	header := wire.HeaderSize - c.headAt
	n, errno := c.sendmsg(payload[:c.owed])
	switch errno {
	case 0:
	case unix.EAGAIN:
		c.full = true
		return 0, nil
	case unix.EINTR, unix.ENOBUFS:
		return 0, nil
	default:
		c.txLost = c.loss(errno)
		return 0, c.txLost
	}
	if n < header {
		c.headAt += n
		return 0, nil
	}
	c.headAt = wire.HeaderSize
	c.owed -= n - header
	return n - header, nil
}

// sendmsg offers the rest of the header and payload to the kernel. (writev would raise
// SIGPIPE, which a host process may not expect.)
func (c *conn) sendmsg(payload []byte) (int, unix.Errno) {
	count := 0
	if c.headAt < wire.HeaderSize {
		c.iov[0].Base = &c.head[c.headAt]
		c.iov[0].SetLen(wire.HeaderSize - c.headAt)
		count = 1
	}
	if len(payload) > 0 {
		c.iov[count].Base = &payload[0]
		c.iov[count].SetLen(len(payload))
		count++
	}
	c.msg.SetIovlen(count)
	n, _, errno := unix.Syscall(unix.SYS_SENDMSG, uintptr(c.fd), uintptr(unsafe.Pointer(&c.msg)),
		unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT)
	c.iov[0].Base, c.iov[1].Base = nil, nil
	return int(n), errno
}

// peek parses the frame at the head of the buffer; have says whether it is whole.
func (c *conn) peek(rank int) error {
	if c.have || c.end-c.start < wire.HeaderSize {
		return nil
	}
	if err := wire.Decode(c.buf[c.start:c.end], &c.hdr); err != nil {
		return c.corrupt(err)
	}
	if c.hdr.Length == 0 || c.hdr.Length > maxPayload {
		return c.corrupt(fmt.Errorf("frame of %d bytes", c.hdr.Length))
	}
	if int(c.hdr.Src) != c.peer || int(c.hdr.Dst) != rank || int(c.hdr.Plane) != c.plane {
		return c.corrupt(fmt.Errorf("frame of flow %d to %d on plane %d", c.hdr.Src, c.hdr.Dst, c.hdr.Plane))
	}
	c.have = c.end-c.start >= c.frame()
	return nil
}

// frame is the size of the frame whose header is in hdr.
func (c *conn) frame() int { return wire.HeaderSize + int(c.hdr.Length) }

func (c *conn) data() []byte {
	return c.buf[c.start+wire.HeaderSize : c.start+c.frame()]
}

// release drops the head frame. An empty buffer begins anew.
func (c *conn) release() {
	if !c.have {
		return
	}
	c.have = false
	if c.start += c.frame(); c.start == c.end {
		c.start, c.end = 0, 0
	}
}

// receive reads what fits. It is called only where no whole frame is in the buffer, so
// what moves to the front is a part of one.
// Hot path: no allocation, no logging.
func (c *conn) receive() error {
	if len(c.buf)-c.start < wire.HeaderSize+maxPayload {
		c.end = copy(c.buf, c.buf[c.start:c.end])
		c.start = 0
	}
	room := c.buf[c.end:]
	for {
		n, _, errno := unix.Syscall6(unix.SYS_RECVFROM, uintptr(c.fd), uintptr(unsafe.Pointer(&room[0])),
			uintptr(len(room)), unix.MSG_DONTWAIT, 0, 0)
		switch {
		case errno == unix.EINTR:
			continue
		case errno == unix.EAGAIN:
			c.readable = false
			return nil
		case errno != 0 || n == 0:
			c.rxLost = c.loss(errno)
			return c.rxLost
		}
		c.end += int(n)
		return nil
	}
}

// loss is the error of a connection that ended; errno 0 is an orderly end.
func (c *conn) loss(errno unix.Errno) error {
	if errno == 0 {
		return fmt.Errorf("%w: rank %d has closed plane %d", transport.ErrPeerLost, c.peer, c.plane)
	}
	return fmt.Errorf("%w: rank %d, plane %d: %w", transport.ErrPeerLost, c.peer, c.plane, errno)
}

func (c *conn) corrupt(err error) error {
	return fmt.Errorf("%w: rank %d, plane %d: %w", transport.ErrCorrupt, c.peer, c.plane, err)
}

// unsent asks the kernel how many bytes the peer has not acknowledged (SIOCOUTQ).
func (c *conn) unsent() (int, error) {
	var n int32
	_, _, errno := unix.RawSyscall(unix.SYS_IOCTL, uintptr(c.fd), unix.SIOCOUTQ, uintptr(unsafe.Pointer(&n)))
	if errno != 0 {
		return 0, c.loss(errno)
	}
	return int(n), nil
}
