package peer

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"lightpath/shim/device"
	"lightpath/shim/errdefs"
)

// The pieces of mapped memory have descriptors. Peers ask for them over a Unix socket of the owner: a message of the
// region's serial, answered by one of the pieces' sizes, with the descriptors. Only processes of the same user get an
// answer.

// pieceTime limits each step of an exchange.
const pieceTime = time.Second

// pieceServer answers for the mapped regions of a rank.
type pieceServer struct {
	mu       sync.Mutex
	listener *net.UnixListener // nil until the first mapped region
	of       map[uint64][]piece
}

// exportPieces makes a region of memory that the program has mapped: pieces one behind the other. Its first piece is
// set.
func (x *Path) exportPieces(r *region) error {
	end := r.at + r.size
	for i := 0; ; i++ {
		p := &r.pieces[i]
		handle, err := x.driver.RetainPiece(*(*unsafe.Pointer)(unsafe.Pointer(&p.base)))
		if err != nil {
			return err
		}
		p.handle = handle
		fd, err := x.driver.ExportPiece(handle)
		if err != nil {
			return err
		}
		_ = unix.Close(fd) // it can be exported: peers get descriptors when they ask
		if p.base+p.size >= end {
			r.mapped = true
			return nil
		}
		if i+1 == maxPieces {
			return fmt.Errorf("it has more than %d pieces: %w", maxPieces, errdefs.ErrInvalidArgument)
		}
		next := p.base + p.size
		id := x.numberAt(next)
		base, size, err := x.driver.Allocation(*(*unsafe.Pointer)(unsafe.Pointer(&next)))
		if err != nil {
			return err
		}
		if uintptr(base) != next || id == 0 {
			return fmt.Errorf("it has a gap at %#x: %w", next, errdefs.ErrInvalidArgument)
		}
		r.pieces = append(r.pieces, piece{base: next, size: uintptr(size), id: id})
	}
}

// offerPieces lets peers ask for the pieces of a region.
func (x *Path) offerPieces(serial uint64, pieces []piece) error {
	s := &x.server
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listener == nil {
		var name [pieceName / 2]byte
		_, _ = rand.Read(name[:]) // cannot fail
		at := fmt.Sprintf("%x", name)
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: "@" + at, Net: "unix"})
		if err != nil {
			return err
		}
		copy(x.page.rank(x.me).server[:], at)
		s.listener, s.of = l, map[uint64][]piece{}
		go x.servePieces(l)
	}
	s.of[serial] = pieces
	return nil
}

// forgetPieces ends the answers for a region, and gives its pieces back to the driver.
func (x *Path) forgetPieces(r *region) {
	x.server.mu.Lock()
	defer x.server.mu.Unlock()
	delete(x.server.of, r.serial)
	x.releasePieces(r)
}

// releasePieces gives the pieces of a region, which may be nil, back to the driver.
func (x *Path) releasePieces(r *region) {
	for i := 0; r != nil && i < len(r.pieces); i++ {
		if p := &r.pieces[i]; p.handle != 0 {
			_ = x.driver.ReleasePiece(p.handle)
			p.handle = 0
		}
	}
}

// stopPieces ends all answers. No call follows.
func (x *Path) stopPieces() {
	x.server.mu.Lock()
	defer x.server.mu.Unlock()
	if x.server.listener == nil {
		return
	}
	_ = x.server.listener.Close()
	x.server.of = nil
	for _, r := range x.regions {
		x.releasePieces(r)
	}
}

func (x *Path) servePieces(l *net.UnixListener) {
	for {
		c, err := l.AcceptUnix()
		if err != nil {
			return // closed
		}
		_ = c.SetDeadline(time.Now().Add(pieceTime))
		if sameUser(c) {
			x.answerPieces(c)
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

// answerPieces answers one question. Without an answer, the peer uses slots.
func (x *Path) answerPieces(c *net.UnixConn) {
	var question [8]byte
	if _, err := c.Read(question[:]); err != nil {
		return
	}
	fds, sizes := x.descriptors(binary.NativeEndian.Uint64(question[:]))
	if len(fds) > 0 {
		_, _, _ = c.WriteMsgUnix(sizes, unix.UnixRights(fds...), nil)
	}
	closeAll(fds)
}

// descriptors returns descriptors of a region's pieces, and their sizes as an answer has them. It returns none if one
// cannot be exported. The caller closes them.
func (x *Path) descriptors(serial uint64) (fds []int, sizes []byte) {
	x.server.mu.Lock() // the pieces stay retained
	defer x.server.mu.Unlock()
	if x.driver.EnterContext(x.ctx) != nil {
		return nil, nil
	}
	defer x.driver.Leave()
	for _, p := range x.server.of[serial] {
		fd, err := x.driver.ExportPiece(p.handle)
		if err != nil {
			closeAll(fds)
			return nil, nil
		}
		fds, sizes = append(fds, fd), binary.NativeEndian.AppendUint64(sizes, uint64(p.size))
	}
	return fds, sizes
}

func closeAll(fds []int) {
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
}

// importPieces maps the pieces of a peer's region.
func (x *Path) importPieces(owner int, serial uint64, size int64) (unsafe.Pointer, error) {
	pieces, err := askPieces(string(x.page.rank(owner).server[:]), serial)
	defer func() {
		for _, p := range pieces {
			_ = unix.Close(p.FD)
		}
	}()
	if err != nil {
		return nil, err
	}
	sum := int64(0)
	for _, p := range pieces {
		sum += p.Size
	}
	if sum != size {
		return nil, fmt.Errorf("%d bytes of pieces, want %d: %w", sum, size, errdefs.ErrInvalidArgument)
	}
	return x.driver.ImportPieces(pieces)
}

var errNoPieces = errors.New("its rank sends no descriptors")

// askPieces asks a server for the pieces of a region. The caller closes the descriptors, also after an error.
func askPieces(server string, serial uint64) (pieces []device.Piece, err error) {
	d := net.Dialer{Timeout: pieceTime}
	conn, err := d.Dial("unix", "@"+server)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	c := conn.(*net.UnixConn)
	_ = c.SetDeadline(time.Now().Add(pieceTime))
	if _, err := c.Write(binary.NativeEndian.AppendUint64(nil, serial)); err != nil {
		return nil, err
	}
	sizes, oob := make([]byte, 8*maxPieces), make([]byte, unix.CmsgSpace(4*maxPieces))
	n, oobn, _, _, err := c.ReadMsgUnix(sizes, oob)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNoPieces, err)
	}
	messages, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil {
		return nil, err
	}
	for i := range messages {
		fds, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			return pieces, err
		}
		for _, fd := range fds {
			unix.CloseOnExec(fd)
			pieces = append(pieces, device.Piece{FD: fd})
		}
	}
	if len(pieces) == 0 || n != 8*len(pieces) {
		return pieces, errNoPieces
	}
	for i := range pieces {
		pieces[i].Size = int64(binary.NativeEndian.Uint64(sizes[8*i:]))
	}
	return pieces, nil
}
