package shim

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"lightpath/plans/circuit"
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
	// ticketMaps: the planes may stand elsewhere than this communicator left them (they
	// were granted anew), and the ticket says where. A rank cannot look for itself: a
	// switch in which it has no part may have moved a plane on by then.
	ticketMaps
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
	hash  uint64              // of its map, in ranks
	maps  circuit.Permutation // the map, with ticketMaps
}

// The encoding, little endian: flags u8, planes u8, ranks u16 (0 without ticketMaps), version
// u32, plan, then per plane epoch u32 and hash u64, then per plane the map, a u16 per rank.
const (
	ticketHeader = 8 + sha256.Size
	ticketPlane  = 12
)

func appendTicket(b []byte, t *ticket) []byte {
	le := binary.LittleEndian
	ranks := 0
	if t.flags&ticketMaps != 0 && len(t.planes) > 0 {
		ranks = len(t.planes[0].maps)
	}
	b = append(b, t.flags, byte(len(t.planes)), byte(ranks), byte(ranks>>8))
	b = le.AppendUint32(b, t.version)
	b = append(b, t.plan[:]...)
	for _, p := range t.planes {
		b = le.AppendUint32(b, p.epoch)
		b = le.AppendUint64(b, p.hash)
	}
	for _, p := range t.planes[:min(ranks, 1)*len(t.planes)] {
		for _, to := range p.maps {
			b = le.AppendUint16(b, uint16(to)) // Dark is 0xffff
		}
	}
	return b
}

// decodeTicket reads a ticket into t, whose memory it reuses.
func decodeTicket(b []byte, t *ticket) error {
	le := binary.LittleEndian
	if len(b) < ticketHeader || b[0] > allTicketFlags {
		return fmt.Errorf("%w: ticket of %d bytes", errMessage, len(b))
	}
	planes, ranks := int(b[1]), int(le.Uint16(b[2:]))
	if (b[0]&ticketMaps != 0) != (ranks > 0) || len(b) != ticketHeader+planes*(ticketPlane+2*ranks) || planes == 0 && ranks > 0 {
		return fmt.Errorf("%w: ticket of %d bytes for %d planes and %d ranks", errMessage, len(b), planes, ranks)
	}
	t.flags, t.version, t.planes = b[0], le.Uint32(b[4:]), t.planes[:0]
	copy(t.plan[:], b[8:])
	entries, maps := b[ticketHeader:], b[ticketHeader+planes*ticketPlane:]
	for j := range planes {
		e := entries[j*ticketPlane:]
		p := planeTicket{epoch: le.Uint32(e), hash: le.Uint64(e[4:])}
		if ranks > 0 {
			p.maps = make(circuit.Permutation, ranks)
			for r := range p.maps {
				p.maps[r] = int(int16(le.Uint16(maps[2*(j*ranks+r):])))
			}
			if err := p.maps.Validate(ranks); err != nil || p.maps.Digest() != p.hash {
				return fmt.Errorf("%w: map of plane %d in a ticket", errMessage, j)
			}
		}
		t.planes = append(t.planes, p)
	}
	return nil
}
