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

// States of a rank, stored in the rank's state line.
const (
	stateAbsent uint32 = iota
	stateAttached
	stateClosed
)

// ErrTaken reports that another endpoint has attached as the same rank.
var ErrTaken = errors.New("mesh: rank is attached already")

// Endpoint is one rank's [transport.Sharer] over the memory of a communicator.
type Endpoint struct {
	sleeper sleep.Sleeper
	rank    int
	planes  []transport.Plane
	peers   []peer // by rank, including this rank

	// armed is set between Arm and Wait. A call that finds a ring full then asks the consumer to ring. Only the
	// driving goroutine uses it.
	armed bool

	mapped  int
	shared  []byte
	release func()
}

type peer struct {
	state *atomic.Uint32
	bell  *shmring.Doorbell
}

// Attach returns the endpoint of a rank over mem, which all ranks of the communicator share. mem is 64-byte aligned,
// g.Size() bytes long, and zero before the first rank attaches.
//
// Close calls release once, when no goroutine waits in mem. A call in progress in the driving goroutine may still
// access mem.
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

// Share sets the memory that Shared returns. The caller calls it before it passes the endpoint on.
func (e *Endpoint) Share(mem []byte) { e.shared = mem }

// Shared implements [transport.Sharer].
func (e *Endpoint) Shared() []byte { return e.shared }

// Mapped returns the size of the memory that the ranks share in bytes, including the memory of Shared.
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

// Close implements [transport.Endpoint]. Peers still receive the frames that this rank has sent, then
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
