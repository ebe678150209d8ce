package onesided

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"time"
	"unsafe"

	"lightpath/collectives/sharedmem/memfile"
	"lightpath/shim/comm"
	"lightpath/shim/control"
	"lightpath/shim/errdefs"
	"lightpath/shim/settings"
)

// link is a source's connection to one target. The communicator's turn guards it.
type link struct {
	s       *State
	peer    int
	conn    net.Conn
	counter *uint64 // this source's counter in the target's page; nil: signals are messages
	page    []byte
	Windows map[int]*peerWindow
	buf     [sideMessageBytes]byte
}

// peerWindow is a window of the target.
type peerWindow struct {
	size int64
	Mem  []byte // nil: puts are messages
}

// link returns the link to a rank. The first time it connects.
func (s *State) link(peer int) (*link, error) {
	if l := s.Links[peer]; l != nil {
		return l, nil
	}
	l := &link{s: s, peer: peer, Windows: map[int]*peerWindow{}}
	if peer == s.c.Rank {
		page, err := s.signals()
		if err != nil {
			return nil, err
		}
		l.counter = page.Counter(peer)
	} else if err := l.connect(); err != nil {
		l.close()
		return nil, l.failed(err)
	}
	s.Links[peer] = l
	return l, nil
}

// mayShareMemory reports whether the settings and the hosts of both ranks allow mapping the target's memory.
func (l *link) mayShareMemory() bool {
	me, it := &l.s.c.Table[l.s.c.Rank], &l.s.c.Table[l.peer]
	switch l.s.c.Cfg.Transport {
	case "auto", "shm", "inproc", settings.TransportEBPF:
		return me.Host == it.Host && me.PIDs == it.PIDs && l.s.c.Cfg.NCCL.NoShared == ""
	}
	return false
}

func (l *link) connect() error {
	c := l.s.c
	addr, err := netip.ParseAddrPort(c.Table[l.peer].Rendezvous)
	if err != nil {
		return fmt.Errorf("rendezvous %q: %w", c.Table[l.peer].Rendezvous, control.ErrMessage)
	}
	if l.conn, err = control.Dial(c.Context(), addr, l.s.secret(l.peer), time.Now().Add(c.Cfg.Timeout),
		false); err != nil {
		return err
	}
	if !l.s.track(l.conn) {
		return net.ErrClosed
	}
	var a answer
	if err := l.ask(&message{kind: sideJoin, window: uint32(c.Rank)}, nil, &a); err != nil {
		return err
	}
	if l.mayShareMemory() {
		if l.page, _ = memfile.Map(a.at, int64(a.size), true); len(l.page) >= 8*c.Ranks {
			l.counter = (*uint64)(unsafe.Pointer(&l.page[8*c.Rank]))
		}
	}
	return nil
}

// sendPiece is how many bytes of data a target reads within LIGHTPATH_TIMEOUT at least.
const sendPiece = 1 << 20

// send sends a message with its data. It waits as long as the target goes on reading them.
func (l *link) send(m *message, data []byte) error {
	m.encode(&l.buf)
	for head := l.buf[:]; ; head = nil {
		n := min(len(data), sendPiece)
		both := net.Buffers{head, data[:n]}
		_ = l.conn.SetWriteDeadline(time.Now().Add(l.s.c.Cfg.Timeout))
		if _, err := both.WriteTo(l.conn); err != nil {
			return err
		}
		if data = data[n:]; len(data) == 0 {
			return nil
		}
	}
}

func (l *link) ask(m *message, data []byte, a *answer) error {
	if err := l.send(m, data); err != nil {
		return err
	}
	_ = l.conn.SetReadDeadline(time.Now().Add(l.s.c.Cfg.Timeout))
	var b [sideAnswerBytes]byte
	if _, err := io.ReadFull(l.conn, b[:]); err != nil {
		return err
	}
	return a.decode(&b)
}

// window returns a window of the target. The first time it waits until the target has registered the window.
func (l *link) window(number int) (*peerWindow, error) {
	if w := l.Windows[number]; w != nil {
		return w, nil
	}
	var a answer
	if err := l.ask(&message{kind: sideOpen, window: uint32(number)}, nil, &a); err != nil {
		return nil, l.failed(fmt.Errorf("window number %d: %w", number, err))
	}
	if a.device {
		return nil, windowOnDevice(l.peer, number)
	}
	if a.gone {
		return nil, l.gone(number)
	}
	w := &peerWindow{size: int64(a.size)}
	if l.counter != nil && l.mayShareMemory() {
		w.Mem, _ = memfile.Map(a.at, w.size, true) // nil: puts are messages
	}
	l.Windows[number] = w
	return w, nil
}

func (l *link) gone(number int) error {
	return fmt.Errorf("shim: PutSignal: rank %d has deregistered its window number %d: %w", l.peer, number,
		errdefs.ErrInvalidUsage)
}

// put writes to a window of the target and counts a signal. The caller may reuse data when put returns.
func (l *link) put(number int, offset int64, data []byte) error {
	if l.conn == nil {
		if err := l.s.write(number, offset, data); err != nil {
			return err
		}
		return l.signal()
	}
	w, err := l.window(number)
	if err != nil {
		return err
	}
	if offset+int64(len(data)) > w.size {
		return fmt.Errorf("shim: PutSignal: %d bytes at %d end beyond rank %d's window, of %d bytes: %w", len(data), offset,
			l.peer, w.size, errdefs.ErrInvalidUsage)
	}
	if w.Mem != nil {
		copy(w.Mem[offset:], data)
		return l.signal()
	}
	m := message{kind: sidePut, flags: sideCounts, window: uint32(number), offset: uint64(offset),
		bytes: uint64(len(data))}
	if l.counter == nil {
		return l.failed(l.send(&m, data))
	}
	// Wait for the answer: later signals go through shared memory and must not overtake this one.
	m.flags |= sideAnswers
	var a answer
	if err := l.ask(&m, data, &a); err != nil {
		return l.failed(err)
	}
	if a.gone {
		return l.gone(number)
	}
	return nil
}

// signal counts a signal at the target, after everything that was put there.
func (l *link) signal() error {
	if l.counter != nil {
		atomic.AddUint64(l.counter, 1)
		return nil
	}
	return l.failed(l.send(&message{kind: sideSignal}, nil))
}

// failed adds the target to the error of a connection. nil stays nil.
func (l *link) failed(err error) error {
	if err == nil {
		return nil
	}
	if comm.IsEcho(err) {
		l.s.c.AwaitCause() // the target may have failed and closed the connection because of a third rank
	}
	class := errdefs.ErrRemote
	if errors.Is(err, os.ErrDeadlineExceeded) {
		class = errdefs.ErrTimeout
	}
	return fmt.Errorf("shim: rank %d: one-sided calls to %s: %w: %w", l.s.c.Rank, l.s.c.Table[l.peer].Where(), err,
		class)
}

func (l *link) close() {
	if l == nil {
		return
	}
	if l.conn != nil {
		l.s.forget(l.conn)
		_ = l.conn.Close()
	}
	for _, w := range l.Windows {
		memfile.Unmap(w.Mem)
	}
	memfile.Unmap(l.page)
}
