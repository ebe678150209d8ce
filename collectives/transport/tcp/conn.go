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
	plane, peer int
	sender
	receiver
}

func newConn(fd, plane, peer int) *conn {
	c := &conn{fd: fd, plane: plane, peer: peer}
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

func (c *conn) corrupt(err error) error {
	return fmt.Errorf("%w: rank %d, plane %d: %w", transport.ErrCorrupt, c.peer, c.plane, err)
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
