package tcp

import (
	"fmt"
	"unsafe"

	"lightpath/collectives/wire"

	"golang.org/x/sys/unix"
)

// sender is the frame being sent. head[headAt:] and then owed payload bytes are still to go;
// the caller offers those bytes again, see [transport.Plane.TrySend].
type sender struct {
	txLost  error // sticky: nothing more can be sent
	head    [wire.HeaderSize]byte
	headAt  int // HeaderSize where no header is pending
	owed    int
	full    bool   // the kernel has no room; it will say when it has
	txSweep uint64 // of the endpoint, when full was last asked for
	txIov   [2]unix.Iovec
	txMsg   unix.Msghdr
}

func (s *sender) init() {
	s.headAt = wire.HeaderSize
	s.txMsg.Iov = &s.txIov[0]
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
		c.txIov[0].Base = &c.head[c.headAt]
		c.txIov[0].SetLen(wire.HeaderSize - c.headAt)
		count = 1
	}
	if len(payload) > 0 {
		c.txIov[count].Base = &payload[0]
		c.txIov[count].SetLen(len(payload))
		count++
	}
	c.txMsg.SetIovlen(count)
	const flags = unix.MSG_NOSIGNAL | unix.MSG_DONTWAIT
	var n uintptr
	var errno unix.Errno
	if len(payload) < shortCall {
		n, _, errno = unix.RawSyscall(unix.SYS_SENDMSG, uintptr(c.fd), uintptr(unsafe.Pointer(&c.txMsg)), flags)
	} else {
		n, _, errno = unix.Syscall(unix.SYS_SENDMSG, uintptr(c.fd), uintptr(unsafe.Pointer(&c.txMsg)), flags)
	}
	c.txIov[0].Base, c.txIov[1].Base = nil, nil
	return int(n), errno
}
