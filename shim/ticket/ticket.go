package ticket

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
	// Packet: the operation runs on the packet planes. Without it at least one plane is in
	// use.
	Packet = 1 << iota
	// Always, with ticketPacket: and so do all later ones of its shape, which need
	// no ticket.
	Always
	// Interim: the plan is the perstep plan that every rank can derive.
	Interim
	// Maps: the planes may stand elsewhere than this communicator left them (they
	// were granted anew), and the ticket says where. A rank cannot look for itself: a
	// switch in which it has no part may have moved a plane on by then.
	Maps
	allTicketFlags = 1<<iota - 1
)

// Ticket is the leader's decision for one operation.
type Ticket struct {
	Flags   uint8
	Version uint32 // of the leader's table of plans
	Plan    planning.ID
	Use     planeset.Set // the planes that the communicator has been granted
	Start   int64        // of the operation, nanoseconds since 1970, where planes move by time; else 0
	Planes  []Plane      // by plane of the fabric; zero where not in use
}

// Plane is where a plane stands when the operation begins.
type Plane struct {
	Epoch uint32
	Hash  uint64              // of its map, in ranks
	Maps  circuit.Permutation // the map, with ticketMaps
}

// The encoding, little endian: flags u8, planes u8, ranks u16 (0 without ticketMaps), version
// u32, plan, use u64, start u64, then per plane in use epoch u32 and hash u64, then per plane in use the
// map, a u16 per rank.
const (
	ticketHeader = 24 + sha256.Size
	ticketPlane  = 12
)

func Append(b []byte, t *Ticket) []byte {
	le := binary.LittleEndian
	ranks := 0
	if t.Flags&Maps != 0 {
		for j := range t.Use.Each() {
			ranks = len(t.Planes[j].Maps)
		}
	}
	b = append(b, t.Flags, byte(len(t.Planes)), byte(ranks), byte(ranks>>8))
	b = le.AppendUint32(b, t.Version)
	b = append(b, t.Plan[:]...)
	b = le.AppendUint64(b, uint64(t.Use))
	b = le.AppendUint64(b, uint64(t.Start))
	for j := range t.Use.Each() {
		b = le.AppendUint32(b, t.Planes[j].Epoch)
		b = le.AppendUint64(b, t.Planes[j].Hash)
	}
	if ranks == 0 {
		return b
	}
	for j := range t.Use.Each() {
		for _, to := range t.Planes[j].Maps {
			b = le.AppendUint16(b, uint16(to)) // Dark is 0xffff
		}
	}
	return b
}

// Decode reads a ticket into t, whose memory it reuses.
func Decode(b []byte, t *Ticket) error {
	le := binary.LittleEndian
	if len(b) < ticketHeader || b[0] > allTicketFlags {
		return fmt.Errorf("%w: ticket of %d bytes", control.ErrMessage, len(b))
	}
	planes, ranks := int(b[1]), int(le.Uint16(b[2:]))
	use := planeset.Set(le.Uint64(b[8+sha256.Size:]))
	switch n := use.Len(); {
	case planes > plans.MaxPlanes || use&^planeset.All(planes) != 0:
		return fmt.Errorf("%w: ticket for planes %#x of %d", control.ErrMessage, uint64(use), planes)
	case (b[0]&Maps != 0) != (ranks > 0) || len(b) != ticketHeader+n*(ticketPlane+2*ranks) || n == 0 && (ranks > 0 || b[0]&Packet == 0):
		return fmt.Errorf("%w: ticket of %d bytes for %d planes and %d ranks", control.ErrMessage, len(b), n, ranks)
	}
	t.Flags, t.Version, t.Use, t.Start = b[0], le.Uint32(b[4:]), use, int64(le.Uint64(b[16+sha256.Size:]))
	copy(t.Plan[:], b[8:])
	if len(t.Planes) != planes {
		t.Planes = make([]Plane, planes)
	}
	clear(t.Planes)
	entries := b[ticketHeader:]
	maps := entries[use.Len()*ticketPlane:]
	for j := range use.Each() {
		p := Plane{Epoch: le.Uint32(entries), Hash: le.Uint64(entries[4:])}
		entries = entries[ticketPlane:]
		if ranks > 0 {
			p.Maps = make(circuit.Permutation, ranks)
			for r := range p.Maps {
				p.Maps[r] = int(int16(le.Uint16(maps)))
				maps = maps[2:]
			}
			if err := p.Maps.Validate(ranks); err != nil || p.Maps.Digest() != p.Hash {
				return fmt.Errorf("%w: map of plane %d in a ticket", control.ErrMessage, j)
			}
		}
		t.Planes[j] = p
	}
	return nil
}
