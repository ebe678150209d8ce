package mesh

import (
	"fmt"

	"lightpath/collectives/wire"
	"lightpath/internal/shmring"
)

// lineSize is the size of a cache line. Every part of the memory begins on one.
const lineSize = 64

// Bounds of a [Geometry], which keep its size far from overflow.
const (
	MaxRanks   = 4096
	MaxPlanes  = 64
	maxSlots   = 1 << 10
	maxPayload = 1 << 20
)

// Geometry is the layout of a communicator's memory: the doorbells of all ranks, the states of all ranks (a cache
// line each), then the rings by plane, source and destination. Every rank computes the same layout from it.
type Geometry struct {
	Ranks, Planes int
	Slots         int // per ring
	Payload       int // largest payload of a frame in bytes; a multiple of 8
}

// BudgetPerRank is the usual memory for the rings of a rank in bytes: 64 MiB for 8 ranks. The kernel provides only the
// pages that ranks use.
const BudgetPerRank = 8 << 20

// Fit returns a geometry of at most budget bytes if 2 slots of 1 KiB fit, and with 2 slots of 1 KiB otherwise.
//
// It begins with eight slots of 64 KiB. With these, a copy into the ring and a copy out of it overlap, and the ring
// stays in a second-level cache.
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

// Check returns an error that names the first field outside its bounds.
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

// Size returns the size of the memory in bytes.
func (g Geometry) Size() int { return g.ringsAt() + g.rings()*g.ringSize() }

func (g Geometry) bell(rank int) int  { return rank * lineSize }
func (g Geometry) state(rank int) int { return (g.Ranks + rank) * lineSize }

// ring returns the position of the ring from src to dst on plane; src and dst differ.
func (g Geometry) ring(plane, src, dst int) int {
	if dst > src {
		dst--
	}
	return g.ringsAt() + ((plane*g.Ranks+src)*(g.Ranks-1)+dst)*g.ringSize()
}
