package shim

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
)

// planID names a plan: its digest.
type planID [sha256.Size]byte

// key is the plan's part of a [shape].
func (p *planID) key() uint64 { return binary.LittleEndian.Uint64(p[:]) }

// Flags of a ticket.
const (
	// ticketPacket: the operation runs on the packet planes.
	ticketPacket = 1 << iota
	// ticketAlways, with ticketPacket: and so do all later ones of its shape, which need
	// no ticket.
	ticketAlways
	// ticketInterim: the plan is the perstep plan that every rank can derive.
	ticketInterim
	allTicketFlags = 1<<iota - 1
)

// ticket is the leader's decision for one operation.
type ticket struct {
	flags   uint8
	version uint32 // of the leader's table of plans
	plan    planID
	planes  []planeTicket
}

// planeTicket is where a plane stands when the operation begins.
type planeTicket struct {
	epoch uint32
	hash  uint64 // of its map, in ranks
}

// The encoding, little endian: flags u8, planes u8, zero u16, version u32, plan, then per
// plane epoch u32 and hash u64.
const (
	ticketHeader = 8 + sha256.Size
	ticketPlane  = 12
)

func appendTicket(b []byte, t *ticket) []byte {
	le := binary.LittleEndian
	b = append(b, t.flags, byte(len(t.planes)), 0, 0)
	b = le.AppendUint32(b, t.version)
	b = append(b, t.plan[:]...)
	for _, p := range t.planes {
		b = le.AppendUint32(b, p.epoch)
		b = le.AppendUint64(b, p.hash)
	}
	return b
}

// decodeTicket reads a ticket into t, whose memory it reuses.
func decodeTicket(b []byte, t *ticket) error {
	if len(b) < ticketHeader || len(b) != ticketHeader+int(b[1])*ticketPlane || b[2] != 0 || b[3] != 0 || b[0] > allTicketFlags {
		return fmt.Errorf("%w: ticket of %d bytes", errMessage, len(b))
	}
	le := binary.LittleEndian
	t.flags, t.version, t.planes = b[0], le.Uint32(b[4:]), t.planes[:0]
	copy(t.plan[:], b[8:])
	for rest := b[ticketHeader:]; len(rest) > 0; rest = rest[ticketPlane:] {
		t.planes = append(t.planes, planeTicket{le.Uint32(rest), le.Uint64(rest[4:])})
	}
	return nil
}
