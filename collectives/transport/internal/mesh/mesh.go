package mesh

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"
	"unsafe"

	"lightpath/collectives/transport"
	"lightpath/collectives/transport/internal/sleep"
	"lightpath/internal/shmring"
)

// States of a rank, in its state line.
const (
	stateAbsent uint32 = iota
	stateAttached
	stateClosed
)

// ErrTaken reports that another endpoint has attached as the same rank.
var ErrTaken = errors.New("mesh: rank is attached already")

// Endpoint is one rank's [transport.Endpoint] over the memory of a communicator.
type Endpoint struct {
	sleeper sleep.Sleeper
	rank    int
	planes  []transport.Plane
	peers   []peer // by rank, this one included

	// armed says that the goroutine is about to sleep: from then on calls that find no
	// room ask the consumer to ring. Only the driving goroutine uses it.
	armed bool

	mapped  int
	shared  []byte
	release func()
}

type peer struct {
	state *atomic.Uint32
	bell  *shmring.Doorbell
}

// Attach makes rank's endpoint over mem, which is 64-byte aligned, g.Size() long, shared
// with the other ranks and zero before the first of them attaches. Close calls release
// once, after which no call of the endpoint waits for anything in mem; calls that are in
// progress in the driving goroutine may still touch it.
func Attach(mem []byte, g Geometry, rank int, release func()) (*Endpoint, error) {
	if err := g.Check(); err != nil {
		return nil, err
	}
	if len(mem) < g.Size() {
		return nil, fmt.Errorf("mesh: %d bytes of memory, want %d", len(mem), g.Size())
	}
	if rank < 0 || rank >= g.Ranks {
		return nil, fmt.Errorf("mesh: rank = %d of %d", rank, g.Ranks)
	}
	e := &Endpoint{rank: rank, peers: make([]peer, g.Ranks), mapped: len(mem), release: release}
	for r := range e.peers {
		bell, err := shmring.NewDoorbell(mem[g.bell(r):])
		if err != nil {
			return nil, err
		}
		e.peers[r] = peer{(*atomic.Uint32)(unsafe.Pointer(&mem[g.state(r)])), bell}
	}
	e.sleeper.Use(e.peers[rank].bell)
	for id := range g.Planes {
		p, err := newPlane(e, mem, g, id)
		if err != nil {
			return nil, err
		}
		e.planes = append(e.planes, p)
	}
	if !e.peers[rank].state.CompareAndSwap(stateAbsent, stateAttached) {
		return nil, fmt.Errorf("%w: rank %d", ErrTaken, rank)
	}
	return e, nil
}

// Planes implements [transport.Endpoint].
func (e *Endpoint) Planes() []transport.Plane { return e.planes }

// Arm implements [transport.Endpoint].
func (e *Endpoint) Arm() uint32 {
	e.armed = true
	return e.sleeper.Arm()
}

// Wait implements [transport.Endpoint].
func (e *Endpoint) Wait(armed uint32, d time.Duration) {
	e.armed = false
	e.sleeper.Wait(armed, d)
}

// Wake implements [transport.Endpoint].
func (e *Endpoint) Wake() { e.sleeper.Wake() }

// Share makes mem what Shared returns, before anything else.
func (e *Endpoint) Share(mem []byte) { e.shared = mem }

// Shared implements [transport.Sharer].
func (e *Endpoint) Shared() []byte { return e.shared }

// Mapped is the bytes of the memory that the ranks have in common, staging included.
func (e *Endpoint) Mapped() int { return e.mapped }

// Ring implements [transport.Sharer].
// Hot path: one load per rank that does not sleep.
func (e *Endpoint) Ring() {
	for r := range e.peers {
		if r != e.rank {
			e.peers[r].bell.Ring()
		}
	}
}

// Bells implements [transport.Sharer].
func (e *Endpoint) Bells(at []uintptr) {
	for r := range at {
		at[r] = e.peers[r].bell.Address()
	}
}

// Closed implements [transport.Sharer].
func (e *Endpoint) Closed(rank int) bool { return e.peers[rank].state.Load() == stateClosed }

// Close implements [transport.Endpoint]. Peers still receive what this rank has sent, then
// [transport.ErrPeerLost].
func (e *Endpoint) Close() error {
	e.sleeper.Close(func() {
		e.peers[e.rank].state.Store(stateClosed)
		for r := range e.peers {
			e.peers[r].bell.Ring()
		}
		if e.release != nil {
			e.release()
		}
	})
	return nil
}
