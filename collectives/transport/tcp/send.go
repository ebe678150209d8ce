package tcp

import (
	"fmt"
	"unsafe"

	"lightpath/collectives/wire"

	"golang.org/x/sys/unix"
)

// sender holds the frame that is being sent. The kernel has not accepted head[headAt:] and then unsent payload bytes;
// the caller passes those bytes again (see [transport.Plane.TrySend]).
type sender struct {
	txLost error                         // sticky
	head   [wire.HeaderSize + joint]byte // the header, and behind it the payload of a short frame
	headAt int                           // HeaderSize if the whole header is sent
	unsent int
	full   bool   // the kernel has no room and will report an event when it has
	txPoll uint64 // see [poller.Set.PollOnce]
	txIov  [2]unix.Iovec
	txMsg  unix.Msghdr
	sent   journal // if the endpoint has a guard
	asked  int     // urgent calls of Returned since lent payload was returned
	bundle bundle
}

// copied is the size up to which Lend copies payload. For larger payload the copy takes longer than the system call.
const copied = shortCall

// joint is the largest payload of a short frame. It is copied behind its header: the kernel takes 0.1 us less for one
// piece of memory (sendto) than for a list of pieces (sendmsg).
const joint = 1 << 10

// maxSpans is the number of spans of a journal at which send asks the kernel how many bytes the peer has received.
const maxSpans = 64

func (s *sender) init() {
	s.headAt = wire.HeaderSize
	s.txMsg.Iov = &s.txIov[0]
}

// send continues the current frame, or begins one with payload[0]. It writes as much as the socket accepts and returns
// the number of payload bytes. lend: the journal refers to the payload instead of copying it.
// Hot path: no allocation, no logging.
func (c *conn) send(h *wire.Header, payload []byte, lend bool) (int, error) {
	if c.txLost != nil {
		return 0, c.txLost
	}
	if c.headAt == wire.HeaderSize && c.unsent == 0 {
		frame := *h
		c.unsent = min(len(payload), maxPayload)
		frame.Length = uint32(c.unsent)
		frame.Flags |= c.join(c.unsent)
		wire.Encode(&frame, c.head[:])
		c.headAt = 0
	}
	if c.unsent > len(payload) {
		return 0, fmt.Errorf("tcp: rank %d, plane %d: payload of %d bytes, the current frame needs %d more",
			c.peer, c.plane, len(payload), c.unsent)
	}
	header := wire.HeaderSize - c.headAt
	n, errno := c.write(payload[:c.unsent])
	switch errno {
	case 0:
	case unix.EAGAIN:
		c.full = true
		return 0, nil
	case unix.EINTR, unix.ENOBUFS:
		return 0, nil
	default:
		c.txLost = c.broken(errno)
		return 0, c.txLost
	}
	if c.guard != nil {
		c.record(payload[:max(n-header, 0)], min(n, header), lend)
	}
	if n < header {
		c.headAt += n
		return 0, nil
	}
	c.headAt = wire.HeaderSize
	c.unsent -= n - header
	return n - header, nil
}

// record adds bytes of the header and of the payload, which the kernel has accepted, to the journal.
// Hot path: no allocation, no logging.
func (c *conn) record(payload []byte, header int, lend bool) {
	j, copies := &c.sent, header
	if !lend {
		copies += len(payload)
	}
	if len(j.spans)-j.first >= maxSpans || len(j.now.mem)-j.now.used < copies {
		j.trim(c.received())
	}
	j.add(c.head[c.headAt:c.headAt+header], false)
	j.add(payload, lend)
}

// flags of all sends. Without MSG_NOSIGNAL, as in writev, a broken connection would raise SIGPIPE in the host process.
const flags = unix.MSG_NOSIGNAL | unix.MSG_DONTWAIT

// write passes the rest of the header and payload to the kernel. It returns the number of bytes of both.
func (c *conn) write(payload []byte) (int, unix.Errno) {
	if c.headAt > 0 || len(payload) > joint {
		return c.sendmsg(payload)
	}
	size := wire.HeaderSize + copy(c.head[wire.HeaderSize:], payload)
	n, _, errno := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(c.fd), uintptr(unsafe.Pointer(&c.head[0])), uintptr(size),
		flags, 0, 0)
	return int(n), errno
}

// sendmsg is write for frames whose payload is elsewhere.
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
