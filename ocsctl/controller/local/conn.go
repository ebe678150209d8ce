package local

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// maxSocketPath is the size of a path in sockaddr_un without the terminating zero.
const maxSocketPath = 107

// maxFiles is the largest number of received descriptors that have not been taken.
const maxFiles = 4

// conn frames control messages on a Unix socket and collects the descriptors that come with them. One goroutine
// receives. send is safe for concurrent use.
type conn struct {
	*net.UnixConn
	buf   []byte // received and not yet parsed
	files []int  // received and not yet taken
	// plain: the greeting has ended, and the peer sends no more descriptors. The kernel closes descriptors that it
	// sends nevertheless.
	plain bool
}

// greeted ends the greeting and its deadline.
func (c *conn) greeted() error {
	c.plain = true
	return c.SetDeadline(time.Time{})
}

// recv returns the next message. It returns io.EOF if the peer has closed between messages.
func (c *conn) recv() (*message, error) {
	for {
		if len(c.buf) >= 4 {
			n := binary.BigEndian.Uint32(c.buf)
			if n > maxMessage {
				return nil, fmt.Errorf("%w: %d bytes", ErrProtocol, n)
			}
			if end := 4 + int(n); len(c.buf) >= end {
				m, err := decodeMessage(c.buf[4:end])
				c.buf = append(c.buf[:0], c.buf[end:]...)
				return m, err
			}
		}
		if err := c.fill(); err != nil {
			if errors.Is(err, io.EOF) && len(c.buf) > 0 {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
	}
}

// fill reads once. For the race detector, a plain read orders goroutines, but a read that takes descriptors does not.
// The order is needed: a rank's use of a plane comes before its release, and the release before the next holder's use.
func (c *conn) fill() error {
	var data [8192]byte
	if c.plain {
		n, err := c.Read(data[:])
		c.buf = append(c.buf, data[:n]...)
		return err
	}
	oob := make([]byte, unix.CmsgSpace(4*maxFiles))
	n, oobn, _, _, err := c.ReadMsgUnix(data[:], oob)
	if oobn > 0 {
		if e := c.takeFiles(oob[:oobn]); e != nil {
			return e
		}
	}
	if err != nil {
		return err
	}
	if n == 0 {
		return io.EOF
	}
	c.buf = append(c.buf, data[:n]...)
	return nil
}

func (c *conn) takeFiles(oob []byte) error {
	parts, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrProtocol, err)
	}
	for i := range parts {
		if fds, err := unix.ParseUnixRights(&parts[i]); err == nil {
			c.files = append(c.files, fds...)
		}
	}
	if len(c.files) > maxFiles {
		return fmt.Errorf("%w: %d descriptors", ErrProtocol, len(c.files))
	}
	return nil
}

// file returns the oldest received descriptor, which the caller then owns.
func (c *conn) file() (int, error) {
	if len(c.files) == 0 {
		return -1, fmt.Errorf("%w: a descriptor is missing", ErrProtocol)
	}
	fd := c.files[0]
	c.files = c.files[1:]
	return fd, nil
}

// send writes a message with descriptors, which the caller still owns.
func (c *conn) send(m *message, fds ...int) error {
	b, err := m.encode()
	if err != nil {
		return err
	}
	if len(fds) == 0 {
		_, err = c.Write(b)
		return err
	}
	n, _, err := c.WriteMsgUnix(b, unix.UnixRights(fds...), nil)
	if err == nil && n < len(b) {
		_, err = c.Write(b[n:])
	}
	return err
}

// shut closes only the socket. Another goroutine may be receiving.
func (c *conn) shut() { _ = c.Close() }

// close closes the socket and the received descriptors that were not taken.
func (c *conn) close() {
	c.shut()
	for _, fd := range c.files {
		_ = unix.Close(fd)
	}
	c.files = nil
}
