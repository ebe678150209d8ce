package messages

import (
	"errors"
	"fmt"
	"time"
	"unsafe"
)

// ErrMismatch reports a message that has different sizes, or belongs to different calls, at its two ranks.
var ErrMismatch = errors.New("ranks made different calls")

// Endpoint is one rank's attachment to all planes.
//
// One goroutine at a time calls Begin, Poll, Waiting, Moves, Traffic, Arm and Wait, and stops before Close. Register,
// Region.Close and Wake are safe for concurrent use.
type Endpoint interface {
	// Register registers size bytes of a dma-buf from an offset, to which transfers refer by the address at. If fd is
	// negative, it registers the device memory at the address, without a dma-buf. The caller still owns the descriptor
	// and may close it afterwards.
	Register(fd int, offset uint64, at unsafe.Pointer, size int) (Region, error)
	// Begin begins the messages of a group. If one of them is invalid, Begin returns an error and begins none.
	Begin(g *Group) error
	// Poll makes progress and returns the groups that have completed. The result is valid until the next Poll. After an
	// error no message makes progress.
	Poll() ([]*Group, error)
	// Waiting returns the first message that is not complete; ok is false if all are complete.
	Waiting() (w Wait, ok bool)
	// Moves returns a number that rises whenever a message makes progress, Traffic the bytes sent to peers.
	Moves() uint64
	Traffic() int64
	// Arm begins a wait: the caller calls Arm, then Poll, then Wait. Wait returns when Poll may make progress, at the
	// latest after d. Wake makes a Wait return.
	Arm() uint32
	Wait(armed uint32, d time.Duration)
	Wake()
	// Close ends all messages first, so that no device writes into memory any more, and then closes the regions.
	Close() error
}

// Region is memory that is registered with an endpoint.
type Region interface {
	// Holds reports whether the region contains all bytes from at.
	Holds(at unsafe.Pointer, bytes int64) bool
	// Close deregisters the memory, which no message may use any more. Endpoint.Close closes the remaining regions.
	Close() error
}

// Span is the address range of a [Region].
type Span struct{ From, To uintptr }

// SpanOf returns the span of size bytes.
func SpanOf(at unsafe.Pointer, size int) Span { return Span{uintptr(at), uintptr(at) + uintptr(size)} }

// Holds implements [Region].
func (s Span) Holds(at unsafe.Pointer, bytes int64) bool {
	return s.From <= uintptr(at) && uintptr(at) <= s.To && uintptr(bytes) <= s.To-uintptr(at)
}

// Transfer is a message at its sender or at its receiver.
type Transfer struct {
	Plane, Peer int
	Send        bool
	At          unsafe.Pointer
	Bytes       int64
	Region      Region // that contains the bytes; may be nil if Bytes is 0
	Tag         uint32 // of the call, equal at both ranks
}

// Group is a set of messages that begin together, in the order of Transfers. The caller must not change it until Poll
// has returned it.
type Group struct {
	Transfers []Transfer
	Owner     any // for the caller

	left int // messages that are not complete
}

// Check returns an error if a message of the group is invalid at a rank.
func (g *Group) Check(rank, ranks, planes int) error {
	for i := range g.Transfers {
		t := &g.Transfers[i]
		switch {
		case t.Plane < 0 || t.Plane >= planes || t.Peer < 0 || t.Peer >= ranks || t.Peer == rank:
			return fmt.Errorf("messages: rank %d has no rank %d on plane %d", rank, t.Peer, t.Plane)
		case t.Bytes < 0 || t.Bytes > 0 && (t.Region == nil || !t.Region.Holds(t.At, t.Bytes)):
			return fmt.Errorf("messages: rank %d: %d bytes at %p are not in registered memory", rank, t.Bytes, t.At)
		}
	}
	return nil
}

// Progress is the part of an endpoint that counts what its messages have done.
type Progress struct {
	Steps               uint64 // the result of Moves
	Sent                int64  // the result of Traffic
	completed, returned []*Group
}

// Moves implements [Endpoint].
func (p *Progress) Moves() uint64 { return p.Steps }

// Traffic implements [Endpoint].
func (p *Progress) Traffic() int64 { return p.Sent }

// Begun adds a group. The group is complete after one call of Done for each message, and one more by Begin.
func (p *Progress) Begun(g *Group) { g.left = len(g.Transfers) + 1 }

// Done counts a completed message of a group.
func (p *Progress) Done(g *Group) {
	if g.left--; g.left == 0 {
		p.completed = append(p.completed, g)
	}
}

// Completed returns the groups that have completed since its last call. The result is valid until the next call.
func (p *Progress) Completed() []*Group {
	p.completed, p.returned = p.returned[:0], p.completed
	return p.returned
}

// Wait describes a message that is not complete.
type Wait struct {
	Plane, Peer int
	Send        bool
	Number      uint64
	Bytes       int64
	Offered     bool // the peer waits for a message to be sent
}

// Queue is a ring buffer. It allocates only when it grows.
type Queue[T any] struct {
	all      []T
	first, n int
}

// Len returns the number of items.
func (q *Queue[T]) Len() int { return q.n }

// At returns item i from the front.
func (q *Queue[T]) At(i int) *T { return &q.all[(q.first+i)%len(q.all)] }

// Push adds an item at the end.
func (q *Queue[T]) Push(item T) {
	if q.n == len(q.all) {
		longer := make([]T, max(2*q.n, 32))
		for i := range q.n {
			longer[i] = *q.At(i)
		}
		q.all, q.first = longer, 0
	}
	q.n++
	*q.At(q.n - 1) = item
}

// Pop removes the first item.
func (q *Queue[T]) Pop() {
	var none T
	*q.At(0) = none
	q.first = (q.first + 1) % len(q.all)
	q.n--
}
