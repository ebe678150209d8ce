// Package inproc is the packet transport between ranks that are goroutines of one process.
//
// Layer: inside collectives/transport. It is the shared-memory data path over heap memory;
// it must not start goroutines or touch files.
package inproc

import (
	"fmt"
	"unsafe"

	"lightpath/collectives/transport"
	"lightpath/collectives/transport/internal/mesh"
)

// budgetPerRank bounds the rings of a rank; only what is used of it is ever touched.
const budgetPerRank = 8 << 20

// Options of [NewGroup]; zero fields have defaults that fit the number of ranks.
type Options struct {
	Slots   int // of the ring between two ranks on one plane
	Payload int // most data bytes of a frame, a multiple of 8
}

// NewGroup returns the endpoints of n ranks that reach each other on planes planes.
// endpoints[r] belongs to the goroutine that is rank r.
func NewGroup(n, planes int, o Options) ([]transport.Endpoint, error) {
	g := mesh.Fit(min(max(n, 1), mesh.MaxRanks), min(max(planes, 1), mesh.MaxPlanes), max(n, 1)*budgetPerRank)
	g.Ranks, g.Planes = n, planes
	if o.Slots != 0 {
		g.Slots = o.Slots
	}
	if o.Payload != 0 {
		g.Payload = o.Payload
	}
	if err := g.Check(); err != nil {
		return nil, fmt.Errorf("inproc: %w", err)
	}
	const line = 64
	mem := make([]byte, g.Size()+line)
	mem = mem[-uintptr(unsafe.Pointer(&mem[0]))%line:]
	endpoints := make([]transport.Endpoint, n)
	for r := range endpoints {
		e, err := mesh.Attach(mem, g, r, nil)
		if err != nil {
			return nil, fmt.Errorf("inproc: %w", err)
		}
		endpoints[r] = e
	}
	return endpoints, nil
}
