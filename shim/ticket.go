package shim

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"lightpath/plans"
	"lightpath/plans/circuit"
	"lightpath/shim/control"
	"lightpath/shim/planeset"
	"lightpath/shim/planning"
)

// Flags of a ticket.
const (
	// ticketPacket: the operation runs on the packet planes. Without it at least one plane is in
	// use.
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
	plan    planning.ID
	use     planeset.Set  // the planes that the communicator has been granted
	start   int64         // of the operation, nanoseconds since 1970, where planes move by time; else 0
	planes  []planeTicket // by plane of the fabric; zero where not in use
}

// planeTicket is where a plane stands when the operation begins.
type planeTicket struct {
	epoch uint32
	hash  uint64              // of its map, in ranks
	maps  circuit.Permutation // the map, with ticketMaps
}

// The encoding, little endian: flags u8, planes u8, ranks u16 (0 without ticketMaps), version
// u32, plan, use u64, start u64, then per plane in use epoch u32 and hash u64, then per plane in use the
// map, a u16 per rank.
const (
	ticketHeader = 24 + sha256.Size
	ticketPlane  = 12
)

func appendTicket(b []byte, t *ticket) []byte {
	le := binary.LittleEndian
	ranks := 0
	if t.flags&ticketMaps != 0 {
		for j := range t.use.Each() {
			ranks = len(t.planes[j].maps)
		}
	}
	b = append(b, t.flags, byte(len(t.planes)), byte(ranks), byte(ranks>>8))
	b = le.AppendUint32(b, t.version)
	b = append(b, t.plan[:]...)
	b = le.AppendUint64(b, uint64(t.use))
	b = le.AppendUint64(b, uint64(t.start))
	for j := range t.use.Each() {
		b = le.AppendUint32(b, t.planes[j].epoch)
		b = le.AppendUint64(b, t.planes[j].hash)
	}
	if ranks == 0 {
		return b
	}
	for j := range t.use.Each() {
		for _, to := range t.planes[j].maps {
			b = le.AppendUint16(b, uint16(to)) // Dark is 0xffff
		}
	}
	return b
}

// decodeTicket reads a ticket into t, whose memory it reuses.
func decodeTicket(b []byte, t *ticket) error {
	le := binary.LittleEndian
	if len(b) < ticketHeader || b[0] > allTicketFlags {
		return fmt.Errorf("%w: ticket of %d bytes", control.ErrMessage, len(b))
	}
	planes, ranks := int(b[1]), int(le.Uint16(b[2:]))
	use := planeset.Set(le.Uint64(b[8+sha256.Size:]))
	switch n := use.Len(); {
	case planes > plans.MaxPlanes || use&^planeset.All(planes) != 0:
		return fmt.Errorf("%w: ticket for planes %#x of %d", control.ErrMessage, uint64(use), planes)
	case (b[0]&ticketMaps != 0) != (ranks > 0) || len(b) != ticketHeader+n*(ticketPlane+2*ranks) || n == 0 && (ranks > 0 || b[0]&ticketPacket == 0):
		return fmt.Errorf("%w: ticket of %d bytes for %d planes and %d ranks", control.ErrMessage, len(b), n, ranks)
	}
	t.flags, t.version, t.use, t.start = b[0], le.Uint32(b[4:]), use, int64(le.Uint64(b[16+sha256.Size:]))
	copy(t.plan[:], b[8:])
	if len(t.planes) != planes {
		t.planes = make([]planeTicket, planes)
	}
	clear(t.planes)
	entries := b[ticketHeader:]
	maps := entries[use.Len()*ticketPlane:]
	for j := range use.Each() {
		p := planeTicket{epoch: le.Uint32(entries), hash: le.Uint64(entries[4:])}
		entries = entries[ticketPlane:]
		if ranks > 0 {
			p.maps = make(circuit.Permutation, ranks)
			for r := range p.maps {
				p.maps[r] = int(int16(le.Uint16(maps)))
				maps = maps[2:]
			}
			if err := p.maps.Validate(ranks); err != nil || p.maps.Digest() != p.hash {
				return fmt.Errorf("%w: map of plane %d in a ticket", control.ErrMessage, j)
			}
		}
		t.planes[j] = p
	}
	return nil
}
