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
	// Packet: the operation runs on packet planes. Such a ticket names no planes.
	Packet = 1 << iota
	// Always, with Packet: all later operations of this shape run on packet planes too, and need no ticket.
	Always
	// Interim: the plan is the perstep plan, which every rank can derive.
	Interim
	// Maps: the ticket has the planes' maps, since they may have moved after this communicator left them. A rank cannot
	// read the maps itself: a switch in which it has no part may have changed a plane by then.
	Maps
	// Chained: the plan is of an iteration: it begins and ends at maps that other plans of the iteration need.
	Chained
	// Ahead: the ticket goes out before ranks ask. The signature of the call for which it is valid follows it.
	Ahead
	// Elsewhere, in the end of an operation: as far as the rank knows, the next operation at its port may be another
	// communicator's.
	Elsewhere
	allFlags = 1<<iota - 1
)

// Ticket is the leader's decision for one operation.
type Ticket struct {
	Flags   uint8
	Version uint32 // of the leader's table of plans
	Plan    planning.ID
	Use     planeset.Set // planes of the operation, granted to the communicator
	Planes  []Plane      // by plane of the fabric; zero if not in use
}

// EncodeAhead encodes a ticket that goes out ahead, for a call with that signature.
func EncodeAhead(t *Ticket, signature uint32) []byte {
	ahead := *t
	ahead.Flags |= Ahead
	return binary.LittleEndian.AppendUint32(Append(nil, &ahead), signature)
}

// IsAhead returns the signature of an encoded ticket that went out ahead.
func IsAhead(b []byte) (signature uint32, yes bool) {
	if len(b) < headerBytes+4 || b[0]&Ahead == 0 {
		return 0, false
	}
	return binary.LittleEndian.Uint32(b[len(b)-4:]), true
}

// OnPackets reports whether the operation runs on packet planes.
func (t *Ticket) OnPackets() bool { return t.Flags&Packet != 0 }

// Plane is the epoch and map of a plane.
type Plane struct {
	Epoch uint32
	Hash  uint64              // of its map, in ranks
	Maps  circuit.Permutation // the map; in tickets only with the flag Maps
}

// At returns the Plane with an epoch and a map.
func At(epoch uint32, m circuit.Permutation) Plane { return Plane{epoch, m.Digest(), m} }

// MapsOf returns the maps of some planes, in their order.
func MapsOf(planes []Plane, use planeset.Set) []circuit.Permutation {
	maps := make([]circuit.Permutation, 0, use.Len())
	for j := range use.Each() {
		maps = append(maps, planes[j].Maps)
	}
	return maps
}

// MapsHash returns a hash of the maps of some planes.
func MapsHash(planes []Plane, use planeset.Set) (h uint64) {
	for j := range use.Each() {
		h = h*0x9e3779b97f4a7c15 + planes[j].Hash
	}
	return h
}

// The encoding, little endian:
//
//	flags u8, planes u8, ranks u16 (0 without maps), version u32, plan, use u64
//	per plane in use  epoch u32, hash u64
//	per plane in use  the map, a u16 per rank
const (
	headerBytes = 16 + sha256.Size
	planeBytes  = 12
)

// Append appends the encoding of t to b.
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

// Decode reads a ticket into t, whose memory it reuses, and returns what follows it: the plan of a round.
func Decode(b []byte, t *Ticket) (rest []byte, err error) {
	le := binary.LittleEndian
	if len(b) < headerBytes || b[0]&^allFlags != 0 {
		return nil, fmt.Errorf("%w: ticket of %d bytes", control.ErrMessage, len(b))
	}
	planes, ranks := int(b[1]), int(le.Uint16(b[2:]))
	use := planeset.Set(le.Uint64(b[8+sha256.Size:]))
	switch n := use.Len(); {
	case planes > plans.MaxPlanes || use&^planeset.All(planes) != 0:
		return nil, fmt.Errorf("%w: ticket for planes %#x of %d", control.ErrMessage, uint64(use), planes)
	case (b[0]&Maps != 0) != (ranks > 0) || n == 0 && (ranks > 0 || b[0]&Packet == 0),
		len(b) < headerBytes+n*(planeBytes+2*ranks):
		return nil, fmt.Errorf("%w: ticket of %d bytes for %d planes and %d ranks", control.ErrMessage, len(b), n, ranks)
	}
	t.Flags, t.Version, t.Use = b[0], le.Uint32(b[4:]), use
	copy(t.Plan[:], b[8:])
	if len(t.Planes) != planes {
		t.Planes = make([]Plane, planes)
	}
	clear(t.Planes)
	entries := b[headerBytes:]
	maps := entries[use.Len()*planeBytes:]
	for j := range use.Each() {
		p := Plane{Epoch: le.Uint32(entries), Hash: le.Uint64(entries[4:])}
		entries = entries[planeBytes:]
		if ranks > 0 {
			p.Maps = make(circuit.Permutation, ranks)
			for r := range p.Maps {
				p.Maps[r] = int(int16(le.Uint16(maps)))
				maps = maps[2:]
			}
			if err := p.Maps.Validate(ranks); err != nil || p.Maps.Digest() != p.Hash {
				return nil, fmt.Errorf("%w: map of plane %d in a ticket", control.ErrMessage, j)
			}
		}
		t.Planes[j] = p
	}
	return maps, nil
}
