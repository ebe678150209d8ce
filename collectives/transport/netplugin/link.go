package netplugin

import (
	"encoding/binary"
	"errors"
	"unsafe"

	"lightpath/collectives/wire"
)

// link is one end of a connection with its ring of slots. Messages are numbered from 0, and message i uses slot i mod
// slots. After an error, only the functions that close the link are called on it.
type link struct {
	conn       Conn
	ring       []byte
	memory     Memory
	registered bool
	slot       int // size of a slot in bytes
	requests   []Request
	sizes      []int  // of the messages
	posted     uint64 // messages given to the plugin
	done       uint64 // messages that are complete
	err        error
}

// open registers the ring of a connection. The link closes the connection, also after an error.
func (l *link) open(conn Conn, ring []byte, slots int) (err error) {
	*l = link{conn: conn, ring: ring, slot: len(ring) / slots, requests: make([]Request, slots), sizes: make([]int, slots)}
	l.memory, err = conn.Register(ring)
	l.registered = err == nil
	return err
}

func (l *link) index(number uint64) int { return int(number % uint64(len(l.requests))) }

// at returns the slot of a message.
func (l *link) at(number uint64) []byte { return l.ring[l.index(number)*l.slot:][:l.slot] }

// close closes the connection. Its requests need not be complete.
func (l *link) close() (err error) {
	if l.conn == nil {
		return nil
	}
	if l.registered {
		err = l.conn.Deregister(l.memory)
	}
	err = errors.Join(err, l.conn.Close())
	l.conn = nil
	return err
}

// sender is the sending end of a connection.
type sender struct {
	link
	built     uint64 // messages in slots
	trying    int    // payload bytes of an unfinished TrySend
	farewells int
}

// room returns the number of free slots.
func (s *sender) room() int { return len(s.requests) - int(s.built-s.done) }

// build puts a frame into the next slot.
// Hot path: no allocation, no logging.
func (s *sender) build(h *wire.Header, payload []byte) {
	b := s.add(wire.HeaderSize + len(payload))
	wire.Encode(h, b)
	copy(b[wire.HeaderSize:], payload)
}

// add returns the next slot, for a message of n bytes.
func (s *sender) add(n int) []byte {
	b := s.at(s.built)[:n]
	s.sizes[s.index(s.built)] = n
	s.built++
	return b
}

// buildFarewell puts a farewell into the next slot.
func (s *sender) buildFarewell() {
	binary.LittleEndian.PutUint64(s.add(farewellSize), farewell)
	s.farewells++
}

// progress posts the messages in slots, and reports whether messages have become complete or the link has failed.
// Hot path: no allocation, no logging.
func (s *sender) progress() (some bool) {
	if s.err != nil {
		return false
	}
	for s.err == nil && s.posted < s.built {
		i := s.index(s.posted)
		var r Request
		if r, s.err = s.conn.Send(unsafe.Pointer(&s.ring[i*s.slot]), s.sizes[i], s.memory); r == 0 {
			break
		}
		s.requests[i] = r
		s.posted++
	}
	for s.err == nil && s.done < s.posted {
		var done bool
		if _, done, s.err = s.conn.Test(s.requests[s.index(s.done)]); !done {
			break
		}
		s.done++
		some = true
	}
	return some || s.err != nil
}

// leave sends farewells, and reports whether no request is left.
func (s *sender) leave() bool {
	if s.conn == nil || s.err != nil {
		return true
	}
	for s.farewells < slots && s.room() > 0 {
		s.buildFarewell()
	}
	s.progress()
	return s.err != nil || s.done == s.built && s.farewells == slots
}

// receiver is the receiving end of a connection. link.done counts the messages that have arrived.
type receiver struct {
	link
	released uint64 // messages whose slots are free
	gone     bool   // the peer has said farewell
	refused  error  // of a receive that could not be posted; messages that have arrived come before it
	decoded  bool   // hdr and data are the oldest frame
	hdr      wire.Header
	data     []byte
}

// progress posts receives for free slots, and takes the next message if there is no unreleased one. It reports whether
// a message has arrived or the link has failed.
// Hot path: no allocation, no logging.
func (r *receiver) progress() bool {
	if r.err != nil || r.gone {
		return false
	}
	r.post()
	if r.done != r.released {
		return false
	}
	if r.take() {
		return true
	}
	r.err = r.refused
	return r.err != nil
}

// post posts receives for free slots, and reports whether all free slots have one.
// Hot path: no allocation, no logging.
func (r *receiver) post() bool {
	for r.refused == nil && r.posted < r.released+uint64(len(r.requests)) {
		i := r.index(r.posted)
		var q Request
		if q, r.refused = r.conn.Receive(unsafe.Pointer(&r.ring[i*r.slot]), r.slot, r.memory); q == 0 {
			return false
		}
		r.requests[i] = q
		r.posted++
	}
	return r.refused == nil
}

// message returns the bytes of the oldest message.
func (r *receiver) message() []byte {
	return r.at(r.released)[:min(max(r.sizes[r.index(r.released)], 0), r.slot)]
}

// take takes the next message, if it has arrived, and sets its size. It returns true after an error, too.
// Hot path: no allocation, no logging.
func (r *receiver) take() bool {
	if r.done == r.posted {
		return false
	}
	i := r.index(r.done)
	size, done, err := r.conn.Test(r.requests[i])
	if r.err = err; !done {
		return err != nil
	}
	r.sizes[i] = size
	r.done++
	return true
}

// leave takes the messages of the peer, and reports whether no request is left.
func (r *receiver) leave() bool {
	if r.conn == nil || r.err != nil {
		return true
	}
	posted := r.post() || r.refused != nil
	for r.take() && r.err == nil {
	}
	return r.err != nil || posted && r.done == r.posted
}

// farewell is the message of a rank that closes: shorter than a frame.
const (
	farewell     = 0x657962646f6f6721
	farewellSize = 8
)

func isFarewell(message []byte) bool {
	return len(message) == farewellSize && binary.LittleEndian.Uint64(message) == farewell
}
