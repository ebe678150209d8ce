// Package transport defines what the executor needs of a data path: an [Endpoint] with
// one [Plane] per plane. Implementations are the subpackages inproc, shm, tcp and rdma (packet
// planes: everyone reaches everyone), port (a port of an emulated optical switch) and ebpf
// (interfaces whose circuits switch).
//
// Layer: inside collectives; it imports wire only.
//
// Concurrency: an Endpoint and its Planes belong to one goroutine at a time, the one that
// drives the communicator; only Wake and Close may be called from others. No method but
// Wait and Close blocks. Steady-state calls allocate nothing.
package transport

import (
	"errors"
	"time"
	"unsafe"

	"lightpath/collectives/wire"
)

// Errors of a data path. Implementations wrap them with rank, plane and epoch.
var (
	ErrPeerLost = errors.New("peer lost")
	ErrClosed   = errors.New("endpoint closed")
	ErrDark     = errors.New("frames lost on a dark or wrong circuit")
	ErrCorrupt  = errors.New("corrupt frame")
)

// Plane is one rank's attachment to one plane.
type Plane interface {
	// TrySend offers the next bytes of the flow to h.Dst: payload[0] is byte h.Offset of
	// the flow. It returns how many were taken, 0 where there is no room. After a short
	// count the caller goes on with the rest and an advanced h.Offset; after 0 it must
	// repeat the call with the same arguments before it offers h.Dst anything else.
	// h.Length is the implementation's to fill in. The payload may be reused at once.
	// Frames are cut at multiples of 8 bytes from payload[0] of a call, so elements stay
	// whole. An empty payload makes no frame.
	TrySend(h *wire.Header, payload []byte) (int, error)

	// Peek returns the oldest frame of a flow from src to this rank that has not been
	// released, or a nil header. A plane may show a frame in several pieces, each as a frame of
	// its own, cut at multiples of 8 bytes. The views are valid until Release(src); those of a
	// [Forwarder] move when another source, or transit, is asked for before that.
	Peek(src int) (*wire.Header, []byte, error)
	Release(src int)

	// Drained reports whether every byte accepted by TrySend and Forward has left the
	// wire: nothing that this rank sent is in flight any more.
	Drained() (bool, error)
}

// Lander is a Plane that can receive payload where it is to stay, without a copy in between.
type Lander interface {
	Plane
	// Head returns the header of the next frame from src as soon as that has arrived, whatever
	// of the payload has; nil before. Offset and Length say what is left to be received of it.
	// The view moves with Land, Peek and Release, and with Head itself.
	Head(src int) (*wire.Header, error)
	// Land receives payload of that frame into dst, as much as has arrived and fits, and returns
	// how much. The frame is shorter by that then, and released when nothing of it is left. dst
	// is not touched before Head has shown the header, and not beyond the frame's payload. A view
	// that Peek gave is void.
	Land(src int, dst []byte) (int, error)
}

// Borrower is a Plane that can send payload from where it is, without a copy.
type Borrower interface {
	Plane
	// Lend is TrySend of payload that stays as it is until it is given back: until Returned shows
	// the mark. The mark is 0 where all was copied; others ascend per destination, from 1.
	Lend(h *wire.Header, payload []byte) (n int, mark uint64, err error)
	// Returned is the mark up to which all that was lent for dst is given back. After an error
	// nothing more is, and what was lent may be read until the endpoint is closed.
	Returned(dst int) (mark uint64, err error)
}

// Registrar is an Endpoint that can be told of memory, for its planes to borrow.
type Registrar interface {
	Endpoint
	// Register makes memory known until release is called, or the endpoint is closed. It has to
	// stay mapped, and the same, until then. Release not before calls on the memory have ended. Both are
	// callable from any goroutine.
	Register(at unsafe.Pointer, size uintptr) (release func() error, err error)
}

// Forwarder is a Plane that carries traffic of others through this rank.
type Forwarder interface {
	Plane
	// Payload is the most bytes of a flow that one frame carries.
	Payload() int
	// Backlog is how many frames wait to leave, the one on the wire included.
	Backlog() int
	// PeekTransit returns the oldest frame that arrived here for another rank.
	PeekTransit() (*wire.Header, []byte, error)
	// Forward moves that frame onto the circuit leaving this rank, under a new epoch. It
	// returns false where there is no room (a forwarded frame needs one free slot, a new one
	// two: the bubble rule, without which a ring of forwarders deadlocks).
	Forward(epoch uint32) (bool, error)
}

// Steerer is a Plane on which the kernel carries traffic of others through this rank: nobody
// here sees it but as a count.
//
// A frame on such a plane is steered the moment it arrives, by the circuits of that moment. So it
// may be sent only when every circuit of its route is there, and its epoch is the latest at which
// one of them was made.
type Steerer interface {
	Plane
	// Transit returns how many payload bytes of operation op of communicator comm have been
	// passed on; Drained covers them. want is how many the caller waits for, and decides how
	// soon Wait returns. Only the latest operation is counted: one may begin only when all
	// ranks have finished the one before.
	Transit(comm, op uint64, want int64) (int64, error)
}

// Endpoint is one rank's attachment to all planes of a communicator.
type Endpoint interface {
	Planes() []Plane
	// Arm, then a last look at the planes, then Wait: Wait returns at once if anything
	// arrived, or Wake was called, since Arm; at the latest after d.
	Arm() uint32
	Wait(armed uint32, d time.Duration)
	// Wake makes a Wait return; callable from any goroutine.
	Wake()
	// Close releases everything; a Wait in progress returns. Idempotent.
	Close() error
}

// Sharer is an Endpoint whose ranks have memory in common, for those that need no frames to reach
// each other.
type Sharer interface {
	Endpoint
	// Shared is that memory: the same at every rank, aligned to 64 bytes, zero before the first
	// use. It is empty where there was no room for it, then at every rank. It is valid
	// as long as the endpoint is reachable.
	Shared() []byte
	// Ring ends the waits of all other ranks; what it is rung for is stored, atomically, before.
	Ring()
	// Bells writes the addresses of the ranks' doorbells ([shmring.Doorbell]) to at, for those who ring
	// without Go.
	Bells(at []uintptr)
	// Closed reports whether a rank has closed its endpoint.
	Closed(rank int) bool
}
