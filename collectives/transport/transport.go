package transport

import (
	"errors"
	"fmt"
	"time"
	"unsafe"

	"lightpath/collectives/wire"
)

// Errors that transports return, wrapped with rank, plane and epoch.
var (
	ErrPeerLost = errors.New("peer lost")
	ErrClosed   = errors.New("endpoint closed")
	ErrDark     = errors.New("frames lost on a dark or wrong circuit") // the circuit did not lead to the receiver
	ErrCorrupt  = errors.New("corrupt frame")
)

// NoPeer returns the error of a call that names a rank without a flow to or from this rank. Transports use it.
func NoPeer(rank, plane, peer, ranks int) error {
	return fmt.Errorf("transport: plane %d of rank %d has no peer %d (%d ranks)", plane, rank, peer, ranks)
}

// Plane is one rank's attachment to one plane.
type Plane interface {
	// TrySend sends the next bytes of the flow to h.Dst; payload[0] is byte h.Offset of the flow. It returns the
	// number of bytes that it accepted, 0 if there is no room. The caller may reuse the payload at once.
	//
	// After a short count the caller continues with the rest and an advanced h.Offset. After 0 the caller repeats
	// the call with the same arguments before it sends other bytes to h.Dst.
	//
	// TrySend sets h.Length. It cuts frames at multiples of 8 bytes from payload[0], so no element is split. An
	// empty payload makes no frame.
	TrySend(h *wire.Header, payload []byte) (int, error)

	// Peek returns the oldest unreleased frame of the flow from src to this rank, or a nil header. A plane may
	// return one frame in several pieces, each with its own header, cut at multiples of 8 bytes. The result is
	// valid until Release(src); the result of a [Forwarder] only until Peek of another source or PeekTransit.
	Peek(src int) (*wire.Header, []byte, error)
	Release(src int)

	// Drained reports whether every byte that TrySend and Forward accepted has left the wire, so that this rank
	// has no frame in flight.
	Drained() (bool, error)
}

// Lander is a Plane that can receive payload directly into its destination, without a copy in between.
type Lander interface {
	Plane
	// Head returns the header of the next frame from src as soon as the header has arrived, nil before. Offset and
	// Length describe the payload that Land has not yet received. The result is valid until the next call of Head,
	// Land, Peek or Release.
	Head(src int) (*wire.Header, error)
	// Land receives payload of that frame into dst and returns the number of bytes: all that have arrived and
	// fit. It shortens the frame by that many bytes and releases it once it is empty. The plane does not write to
	// dst before Head has returned the header, nor beyond the frame's payload. Land invalidates a result of Peek.
	Land(src int, dst []byte) (int, error)
}

// Borrower is a Plane that can send payload without a copy.
type Borrower interface {
	Plane
	// Lend is like TrySend, but the caller leaves the payload unchanged until Returned reaches the mark. The mark
	// is 0 if Lend copied the payload; the others ascend per destination, from 1.
	Lend(h *wire.Header, payload []byte) (n int, mark uint64, err error)
	// Returned returns the largest mark whose sends to dst, and all before it, are complete. After an error it
	// does not advance, and the plane may read the payloads until the endpoint is closed. urgent: the caller waits for
	// this, and a plane may copy payload in order to return it.
	Returned(dst int, urgent bool) (mark uint64, err error)
}

// Abandoner is a Borrower that can stop its use of borrowed payload before the endpoint is closed.
type Abandoner interface {
	Borrower
	// Abandon ends all flows with borrowed payload that Returned has not reached, and the use of that payload. The
	// caller calls it after an error, before it gives the payload to others.
	Abandon()
}

// Registrar is an Endpoint that can register memory, from which its planes then send without a copy.
type Registrar interface {
	Endpoint
	// Register registers memory until release is called or the endpoint is closed. The caller keeps the memory
	// mapped until then, and calls release only after all calls on the memory have ended. Both are safe for
	// concurrent use.
	Register(at unsafe.Pointer, size uintptr) (release func() error, err error)
}

// Forwarder is a Plane on which this rank forwards frames of other ranks.
type Forwarder interface {
	Plane
	// Payload returns the largest payload of a frame in bytes.
	Payload() int
	// Backlog returns the number of frames that have not left, including the frame on the wire.
	Backlog() int
	// PeekTransit returns the oldest frame that arrived here for another rank.
	PeekTransit() (*wire.Header, []byte, error)
	// Forward moves that frame to the circuit that leaves this rank, under a new epoch. It returns false if there
	// is no room. A forwarded frame needs one free slot and a new frame needs two. Without this bubble rule, a
	// ring of forwarders could deadlock.
	Forward(epoch uint32) (bool, error)
}

// Steerer is a Plane on which the kernel forwards frames of other ranks. The rank itself only sees counts.
//
// The kernel forwards a frame when it arrives, over the circuits of that moment. So a rank sends a frame only after
// every circuit of its route exists. The frame's epoch is the latest epoch of these circuits.
type Steerer interface {
	Plane
	// Transit returns the number of payload bytes of operation op of communicator comm that the kernel has
	// forwarded; Drained covers them. The caller waits for want bytes, and Wait returns at about that count.
	// Transit counts only the latest operation: an operation may begin only after all ranks have finished the
	// previous one.
	Transit(comm, op uint64, want int64) (int64, error)
}

// Endpoint is one rank's attachment to all planes of a communicator.
type Endpoint interface {
	Planes() []Plane
	// Arm begins a wait: the caller calls Arm, checks the planes once more, then calls Wait.
	Arm() uint32
	// Wait returns when a frame has arrived or Wake was called since Arm, at the latest after d.
	Wait(armed uint32, d time.Duration)
	// Wake makes a Wait return. It is safe for concurrent use.
	Wake()
	// Close releases all resources and makes a Wait in progress return. Idempotent and safe for concurrent use.
	Close() error
}

// Fault is a sign that a plane carries nothing between this rank and others.
type Fault struct {
	Plane int
	Peer  int    // the rank that does not answer on the plane; [Itself]: this rank's own interface is at fault
	Seen  string // the fault that the endpoint sees, such as "interface e1 has no carrier"
}

// Itself is the Peer of a fault at this rank's own interface.
const Itself = -1

// FaultFinder is an Endpoint that can look for faults of its planes.
type FaultFinder interface {
	Endpoint
	// Faults returns the signs of faults that this rank sees now. It sends no frames. Safe for concurrent use.
	Faults() []Fault
}

// Sharer is an Endpoint whose ranks share memory, which they can use without frames.
type Sharer interface {
	Endpoint
	// Shared returns the shared memory, aligned to 64 bytes and zero before first use. It is empty at every rank
	// if it could not be allocated. It is valid as long as the endpoint is reachable.
	Shared() []byte
	// Ring wakes all other ranks. The caller publishes its event (an atomic store) before.
	Ring()
	// Bells writes the address of each rank's doorbell ([shmring.Doorbell]) to at, for callers that ring from C.
	Bells(at []uintptr)
	// Closed reports whether a rank has closed its endpoint.
	Closed(rank int) bool
}
