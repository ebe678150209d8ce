package tcp

import (
	"fmt"
	"unsafe"

	"lightpath/collectives/transport"

	"golang.org/x/sys/unix"
)

// conn is one connection. Its sender and receiver are independent of each other.
type conn struct {
	fd          int
	id          int // of its events
	plane, peer int
	idle        *uint32 // endpoint.idle
	sender
	receiver
	detour
}

func newConn(fd, plane, peer int, idle *uint32) *conn {
	c := &conn{fd: fd, plane: plane, peer: peer, idle: idle}
	c.via = plane
	c.sender.init()
	c.receiver.init()
	return c
}

// loss returns the error of a connection that has ended. errno 0 means that the peer closed it.
func (c *conn) loss(errno unix.Errno) error {
	if errno == 0 {
		return fmt.Errorf("%w: rank %d has closed plane %d", transport.ErrPeerLost, c.peer, c.plane)
	}
	return fmt.Errorf("%w: rank %d, plane %d: %w", transport.ErrPeerLost, c.peer, c.plane, errno)
}

// close closes the socket, if there is one. Wait and Abandon may follow, when another file may have the descriptor.
func (c *conn) close() {
	if c.fd < 0 {
		return
	}
	// A close with unread bytes resets the connection, and the peer would lose the bytes in flight. The shutdown sends
	// the end of the stream first.
	_ = unix.Shutdown(c.fd, unix.SHUT_WR)
	_ = unix.Close(c.fd)
	c.fd = -1
}

func (c *conn) corrupt(err error) error {
	return fmt.Errorf("%w: rank %d, plane %d: %w", transport.ErrCorrupt, c.peer, c.plane, err)
}

// broken handles the end of the connection, with errno 0 for the end of the stream. It returns the error of the calls
// that need the connection, or nil if another connection may continue the stream. EFAULT is the fault of a buffer of
// this rank, which no connection mends. The caller holds the endpoint's lock.
func (c *conn) broken(errno unix.Errno) error {
	if c.guard == nil || errno == unix.EFAULT {
		return c.loss(errno)
	}
	c.guard.leave(c, c.loss(errno))
	return nil
}

// drained reports whether the peer's host has received the whole stream.
func (c *conn) drained() (bool, error) {
	if c.guard != nil {
		return c.txLost == nil && !c.down && c.received() == c.sent.end, c.txLost
	}
	n, err := c.unacknowledged()
	return n == 0 && err == nil, err
}

// received returns a position up to which the peer's host has received the stream.
func (c *conn) received() uint64 {
	if c.down || c.replaying {
		return c.sent.base
	}
	n, err := c.unacknowledged()
	if err != nil || uint64(n) > c.sent.end-c.sent.base {
		return c.sent.base
	}
	return c.sent.end - uint64(n)
}

// unacknowledged returns the number of bytes that the peer's host has not acknowledged (SIOCOUTQ).
func (c *conn) unacknowledged() (int, error) {
	var n int32
	_, _, errno := unix.RawSyscall(unix.SYS_IOCTL, uintptr(c.fd), unix.SIOCOUTQ, uintptr(unsafe.Pointer(&n)))
	if errno != 0 {
		return 0, c.loss(errno)
	}
	return int(n), nil
}
