// Package mesh is the data path that the transports inproc and shm share: a ring for every
// ordered pair of ranks and plane, and a doorbell per rank, in memory that the caller
// provides.
//
// Layer: inside collectives/transport. It does not allocate, map or free that memory.
package mesh

import (
	"fmt"

	"lightpath/collectives/wire"
	"lightpath/internal/shmring"
)

// lineSize is a cache line; every part of the memory begins on one.
const lineSize = 64

// Bounds of a [Geometry]; they keep sizes far from overflow.
const (
	MaxRanks   = 4096
	MaxPlanes  = 64
	maxSlots   = 1 << 10
	maxPayload = 1 << 24
)

// Geometry is the shape of the memory of one communicator. Every rank computes the layout
// from it: the doorbells of all ranks, the states of all ranks (a line each), then the
// rings by plane, source and destination.
type Geometry struct {
	Ranks, Planes int
	Slots         int // of a ring
	Payload       int // most data bytes of a frame; a multiple of 8
}

// Fit chooses slots and payload such that the whole memory stays within budget bytes where
// that is possible; below 2 slots of 1 KiB it does not go. Eight slots of 64 KiB are
// enough for a copy into the ring and one out of it to overlap while the ring stays in a
// second-level cache.
func Fit(ranks, planes, budget int) Geometry {
	g := Geometry{Ranks: ranks, Planes: planes, Slots: 8, Payload: 64 << 10}
	for g.Size() > budget && g.Payload > 4<<10 {
		g.Payload /= 2
	}
	for g.Size() > budget && g.Slots > 2 {
		g.Slots /= 2
	}
	for g.Size() > budget && g.Payload > 1<<10 {
		g.Payload /= 2
	}
	return g
}

// Check reports a geometry outside its bounds.
func (g Geometry) Check() error {
	for _, f := range []struct {
		name        string
		v, min, max int
	}{
		{"ranks", g.Ranks, 1, MaxRanks},
		{"planes", g.Planes, 1, MaxPlanes},
		{"slots", g.Slots, 1, maxSlots},
		{"payload", g.Payload, 8, maxPayload},
	} {
		if f.v < f.min || f.v > f.max {
			return fmt.Errorf("mesh: %s = %d, want %d to %d", f.name, f.v, f.min, f.max)
		}
	}
	if g.Payload%8 != 0 {
		return fmt.Errorf("mesh: payload = %d, want a multiple of 8", g.Payload)
	}
	return nil
}

func (g Geometry) ringSize() int { return shmring.Size(g.Slots, wire.HeaderSize+g.Payload) }
func (g Geometry) rings() int    { return g.Planes * g.Ranks * (g.Ranks - 1) }
func (g Geometry) ringsAt() int  { return 2 * g.Ranks * lineSize }

// Size is the number of bytes of memory the geometry needs.
func (g Geometry) Size() int { return g.ringsAt() + g.rings()*g.ringSize() }

func (g Geometry) bell(rank int) int  { return rank * lineSize }
func (g Geometry) state(rank int) int { return (g.Ranks + rank) * lineSize }

// ring returns where the ring from src to dst on plane begins; src and dst differ.
func (g Geometry) ring(plane, src, dst int) int {
	if dst > src {
		dst--
	}
	return g.ringsAt() + ((plane*g.Ranks+src)*(g.Ranks-1)+dst)*g.ringSize()
}
