package onesided

import (
	"encoding/binary"
	"errors"
	"fmt"

	"lightpath/collectives/sharedmem/memfile"
)

// kind is the kind of a message of one-sided calls, from source to target.
type kind uint8

const (
	sideJoin   kind = iota // first message: window is the source's rank; answered
	sideOpen               // asks where the window is; answered once it is registered
	sidePut                // bytes of data follow, for the window at the offset
	sideSignal             // count
	numSideKinds
)

// Flags of sidePut.
const (
	sideCounts  = 1 << iota // the put also counts a signal
	sideAnswers             // the target answers when the data has arrived
	sideFlags   = sideCounts | sideAnswers
)

// message is a message of a source. Little endian: kind, flags, two zero bytes, window u32, offset u64, bytes u64.
type message struct {
	kind   kind
	flags  uint8
	window uint32
	offset uint64
	bytes  uint64
}

const sideMessageBytes = 24

func (m *message) encode(b *[sideMessageBytes]byte) {
	le := binary.LittleEndian
	*b = [sideMessageBytes]byte{byte(m.kind), m.flags}
	le.PutUint32(b[4:], m.window)
	le.PutUint64(b[8:], m.offset)
	le.PutUint64(b[16:], m.bytes)
}

var errSideMessage = errors.New("shim: malformed message of a one-sided call")

func (m *message) decode(b *[sideMessageBytes]byte) error {
	le := binary.LittleEndian
	*m = message{kind(b[0]), b[1], le.Uint32(b[4:]), le.Uint64(b[8:]), le.Uint64(b[16:])}
	switch {
	case m.kind >= numSideKinds, b[2] != 0, b[3] != 0:
		return fmt.Errorf("%w: % x", errSideMessage, b[:4])
	case m.kind != sidePut && (m.flags|uint8(min(m.offset|m.bytes, 1))) != 0, m.flags&^sideFlags != 0:
		return fmt.Errorf("%w: kind %d with flags %d, offset %d, bytes %d", errSideMessage, m.kind, m.flags, m.offset,
			m.bytes)
	}
	return nil
}

// answer is a target's answer. It says that the window is gone, or is device memory, or gives its size and place. The
// answer to a join gives those of the page of counters. Little endian: status (1 gone, 2 device memory, else 0), seven
// zero bytes, size u64, pid u32, fd u32, dev u64, ino u64, offset u64.
type answer struct {
	gone   bool
	device bool
	size   uint64
	at     memfile.Place
}

const sideAnswerBytes = 48

func (a *answer) encode(b *[sideAnswerBytes]byte) {
	le := binary.LittleEndian
	*b = [sideAnswerBytes]byte{}
	if a.gone {
		b[0] = 1
	} else if a.device {
		b[0] = 2
	}
	le.PutUint64(b[8:], a.size)
	le.PutUint32(b[16:], uint32(a.at.PID))
	le.PutUint32(b[20:], uint32(a.at.FD))
	le.PutUint64(b[24:], a.at.Dev)
	le.PutUint64(b[32:], a.at.Ino)
	le.PutUint64(b[40:], a.at.Offset)
}

func (a *answer) decode(b *[sideAnswerBytes]byte) error {
	le := binary.LittleEndian
	*a = answer{
		gone: b[0] == 1, device: b[0] == 2, size: le.Uint64(b[8:]),
		at: memfile.Place{
			PID: int32(le.Uint32(b[16:])), FD: int32(le.Uint32(b[20:])), Dev: le.Uint64(b[24:]), Ino: le.Uint64(b[32:]),
			Offset: le.Uint64(b[40:]),
		},
	}
	if b[0] > 2 || [7]byte(b[1:8]) != [7]byte{} {
		return fmt.Errorf("%w: answer % x", errSideMessage, b[:8])
	}
	return nil
}
