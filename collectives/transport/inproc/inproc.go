package inproc

import (
	"fmt"
	"unsafe"

	"lightpath/collectives/transport"
	"lightpath/collectives/transport/internal/mesh"
)

// Options of [NewGroup]. A zero field has a default that depends on the number of ranks.
type Options struct {
	Slots   int // of the ring between two ranks on one plane
	Payload int // largest payload of a frame in bytes, a multiple of 8
}

// NewGroup returns the endpoints of n ranks, which reach each other on every plane. The goroutine of rank r uses
// endpoints[r].
func NewGroup(n, planes int, o Options) ([]transport.Endpoint, error) {
	g := mesh.Fit(min(max(n, 1), mesh.MaxRanks), min(max(planes, 1), mesh.MaxPlanes), max(n, 1)*mesh.BudgetPerRank)
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
