package onesided

import (
	"errors"
	"fmt"
	"io"
	"net"
	"time"
	"unsafe"

	"lightpath/collectives/sharedmem/memfile"
	"lightpath/shim/control"
	"lightpath/shim/errdefs"
	"lightpath/shim/log"
	"lightpath/shim/memory"
)

// serve handles a source's messages on a connection, until source or target ends.
func (s *State) serve(conn net.Conn) {
	defer conn.Close()
	if !s.enter(conn) {
		return
	}
	defer s.serving.Done()
	defer s.forget(conn)
	err := s.attend(conn)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
		// The control network reports a lost source, with its rank.
		s.c.Log.Info(log.Net, "rank %d: one-sided calls: %v", s.c.Rank, err)
	}
}

// enter is track for a connection that serve handles. End waits for it.
func (s *State) enter(conn net.Conn) bool {
	if !s.track(conn) {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return false
	}
	s.serving.Add(1)
	return true
}

func (s *State) attend(conn net.Conn) error {
	_ = conn.SetReadDeadline(time.Now().Add(control.HandshakeTime))
	m, err := readSideMessage(conn)
	if err == nil && (m.kind != sideJoin || m.window >= uint32(s.c.Ranks)) {
		err = fmt.Errorf("%w: kind %d, window %d at first", errSideMessage, m.kind, m.window)
	}
	if err != nil {
		return err
	}
	_ = conn.SetReadDeadline(time.Time{})
	source := int(m.window)
	page, err := s.signals()
	if err != nil || page == nil {
		return err
	}
	if err := answerSide(conn, &answer{size: uint64(len(page.Mem)), at: memfile.Find(page.FD, 0)}); err != nil {
		return err
	}
	for {
		if m, err = readSideMessage(conn); err != nil {
			return err
		}
		if err := s.perform(conn, source, &m); err != nil {
			return err
		}
	}
}

func (s *State) perform(conn net.Conn, source int, m *message) error {
	switch m.kind {
	case sideOpen:
		a, err := s.describe(int(m.window))
		if err != nil {
			return err
		}
		return answerSide(conn, &a)
	case sidePut:
		a := answer{}
		err := s.receive(conn, m)
		switch {
		case errors.Is(err, errWindowGone) && m.flags&sideAnswers != 0:
			a.gone = true
		case err != nil:
			return err
		case m.flags&sideCounts != 0:
			if err := s.count(source); err != nil {
				return err
			}
		}
		if m.flags&sideAnswers != 0 {
			return answerSide(conn, &a)
		}
		return nil
	case sideSignal:
		return s.count(source)
	}
	return fmt.Errorf("%w: a second join", errSideMessage)
}

// windowAt returns a window. It waits until the window is registered.
func (s *State) windowAt(number int) (*ownWindow, error) {
	for {
		s.mu.Lock()
		more, ended := s.more, s.ended
		if number < len(s.windows) && !ended {
			w := s.windows[number]
			s.mu.Unlock()
			return w, nil
		}
		s.mu.Unlock()
		if ended {
			return nil, net.ErrClosed
		}
		select {
		case <-more:
		case <-s.c.FailedChan():
			return nil, net.ErrClosed
		}
	}
}

// describe returns where a window is.
func (s *State) describe(number int) (a answer, err error) {
	w, err := s.windowAt(number)
	if err != nil {
		return a, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.gone {
		return answer{gone: true}, nil
	}
	if w.device {
		return answer{device: true}, nil
	}
	a = answer{size: uint64(w.size), at: memfile.Place{FD: -1}}
	if r, offset, ok := memory.Find(w.at, w.size); ok {
		a.at = memfile.Find(r.FD, offset)
	}
	return a, nil
}

// windowOnDevice returns the error of a put to a window in device memory.
func windowOnDevice(rank, number int) error {
	return fmt.Errorf("shim: PutSignal: rank %d's window number %d is device memory: puts go to host memory: %w", rank,
		number, errdefs.ErrInvalidUsage)
}

var errWindowGone = errors.New("shim: the window has been deregistered")

// hold returns a part of a window and keeps it from being freed until drop.
func (s *State) hold(number int, offset, n uint64) (w *ownWindow, part []byte, err error) {
	if w, err = s.windowAt(number); err != nil {
		return nil, nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case w.gone:
		return nil, nil, errWindowGone
	case w.device:
		return nil, nil, windowOnDevice(s.c.Rank, number)
	case offset > uint64(w.size) || n > uint64(w.size)-offset:
		return nil, nil, fmt.Errorf("%w: %d bytes at %d of a window of %d", errSideMessage, n, offset, w.size)
	}
	w.writers++
	return w, unsafe.Slice((*byte)(unsafe.Add(w.at, offset)), n), nil
}

func (s *State) drop(w *ownWindow) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.writers--
	s.idle.Broadcast()
}

// receive reads the data of a put into its window. If the window is gone and the source does not wait for an answer,
// receive fails the communicator: a peer may be waiting for the signal.
func (s *State) receive(conn net.Conn, m *message) error {
	w, part, err := s.hold(int(m.window), m.offset, m.bytes)
	if errors.Is(err, errWindowGone) {
		if m.flags&sideAnswers == 0 {
			s.c.Spread(fmt.Errorf("shim: rank %d has deregistered window number %d, to which another still writes: %w", s.c.Rank,
				m.window, errdefs.ErrInvalidUsage))
			return err
		}
		if _, copyErr := io.CopyN(io.Discard, conn, int64(m.bytes)); copyErr != nil {
			return copyErr
		}
		return err
	}
	if err != nil {
		return err
	}
	defer s.drop(w)
	_, err = io.ReadFull(conn, part)
	return err
}

// write is a put to one of this rank's own windows.
func (s *State) write(number int, offset int64, data []byte) error {
	w, part, err := s.hold(number, uint64(offset), uint64(len(data)))
	if err != nil {
		return err
	}
	defer s.drop(w)
	copy(part, data)
	return nil
}

func readSideMessage(conn net.Conn) (m message, err error) {
	var b [sideMessageBytes]byte
	if _, err = io.ReadFull(conn, b[:]); err != nil {
		return m, err
	}
	return m, m.decode(&b)
}

func answerSide(conn net.Conn, a *answer) error {
	var b [sideAnswerBytes]byte
	a.encode(&b)
	_, err := conn.Write(b[:])
	return err
}
