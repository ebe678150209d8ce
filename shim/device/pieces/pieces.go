// Package pieces passes the pieces of mapped memory from rank to rank, as descriptors. A rank with such memory has a
// server. Peers ask it over a Unix socket: a message of the region's serial, answered by one of the pieces' sizes, with
// the descriptors. Only processes of the same user get an answer.
//
// Layer: on shim/device alone. It calls no driver: the owner exports its pieces.
package pieces

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"lightpath/shim/device"
)

// Limits.
const (
	NameBytes = 32 // of the name of a server
	Max       = 64 // pieces of a region
)

// timeLimit limits each step of an exchange, acceptAgain is the pause after a connection that could not be accepted.
const (
	timeLimit   = time.Second
	acceptAgain = 10 * time.Millisecond
)

// Server answers the questions of peers.
type Server struct {
	listener *net.UnixListener
	export   func(serial uint64) []device.Piece
}

// Serve starts a server, and returns its name, by which peers ask. export returns the pieces of a region, none if there
// are none; the server closes the descriptors. It is called by one goroutine at a time.
func Serve(export func(serial uint64) []device.Piece) (s *Server, name string, err error) {
	var random [NameBytes / 2]byte
	_, _ = rand.Read(random[:]) // cannot fail
	name = fmt.Sprintf("%x", random)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: "@" + name, Net: "unix"})
	if err != nil {
		return nil, "", err
	}
	s = &Server{l, export}
	go s.run()
	return s, name, nil
}

// Close ends the server. It does not wait for an answer that is under way.
func (s *Server) Close() { _ = s.listener.Close() }

func (s *Server) run() {
	for {
		c, err := s.listener.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // the process has no descriptor left
			time.Sleep(acceptAgain)
			continue
		}
		_ = c.SetDeadline(time.Now().Add(timeLimit))
		if sameUser(c) {
			s.answer(c)
		}
		_ = c.Close()
	}
}

// sameUser reports whether the other process belongs to this user.
func sameUser(c *net.UnixConn) (same bool) {
	raw, err := c.SyscallConn()
	if err != nil {
		return false
	}
	err = raw.Control(func(fd uintptr) {
		cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
		same = err == nil && int(cred.Uid) == os.Geteuid()
	})
	return same && err == nil
}

// answer answers one question. Without pieces it sends nothing, which is an error at the peer.
func (s *Server) answer(c *net.UnixConn) {
	var question [8]byte
	if _, err := c.Read(question[:]); err != nil {
		return
	}
	all := s.export(binary.NativeEndian.Uint64(question[:]))
	defer Close(all)
	if len(all) == 0 {
		return
	}
	var sizes []byte
	fds := make([]int, len(all))
	for i, p := range all {
		fds[i], sizes = p.FD, binary.NativeEndian.AppendUint64(sizes, uint64(p.Size))
	}
	_, _, _ = c.WriteMsgUnix(sizes, unix.UnixRights(fds...), nil)
}

// Close closes the descriptors of pieces.
func Close(all []device.Piece) {
	for _, p := range all {
		_ = unix.Close(p.FD)
	}
}

var errNone = errors.New("its rank sends no descriptors")

// Ask asks a server for the pieces of a region. It takes at most two seconds. The caller closes the pieces, also after
// an error.
func Ask(server string, serial uint64) (all []device.Piece, err error) {
	d := net.Dialer{Timeout: timeLimit}
	conn, err := d.Dial("unix", "@"+server)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	c := conn.(*net.UnixConn)
	_ = c.SetDeadline(time.Now().Add(timeLimit))
	if _, err := c.Write(binary.NativeEndian.AppendUint64(nil, serial)); err != nil {
		return nil, err
	}
	sizes, oob := make([]byte, 8*Max), make([]byte, unix.CmsgSpace(4*Max))
	n, oobn, _, _, err := c.ReadMsgUnix(sizes, oob)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNone, err)
	}
	messages, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil {
		return nil, err
	}
	for i := range messages {
		fds, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			return all, err
		}
		for _, fd := range fds { // ReadMsgUnix has set close-on-exec
			all = append(all, device.Piece{FD: fd})
		}
	}
	if len(all) == 0 || n != 8*len(all) {
		return all, errNone
	}
	for i := range all {
		all[i].Size = int64(binary.NativeEndian.Uint64(sizes[8*i:]))
	}
	return all, nil
}
