package rdma

import (
	"errors"
	"fmt"

	"lightpath/collectives/transport"
)

// ErrDevice is wrapped by failures of a device, a port or a queue of this host.
var ErrDevice = errors.New("RDMA device error")

// QPError is the end of a queue pair, told by the completion of a request. It is a
// [transport.ErrPeerLost] where the peer did not answer, else an [ErrDevice].
type QPError struct {
	Rank, Peer, Plane int
	Epoch             uint32 // of the last frame sent on it
	QPN               uint32
	Status            Status
	Vendor            uint32
	Note              string // what is known of the port besides
}

// reasons are what statuses come of, as a rule.
var reasons = map[Status]string{
	FlushErr:     "the queue pair is closed",
	RemInvReqErr: "the peer's device refuses the request: no room in its receive, or a request that it does not take",
	AccessErr:    "the peer's device refuses the memory that was written to: its key or bounds are not those",
	RemOpErr:     "the peer's device could not complete the request",
	RetryExc:     "no acknowledgement: the peer is gone, or the way to it or back is",
	RNRExc:       "the peer posts no receives",
}

// Error names ranks, plane, epoch, queue pair and status.
func (e *QPError) Error() string {
	s := fmt.Sprintf("transport: rank %d, plane %d, epoch %d: QP %#x to rank %d: %s", e.Rank, e.Plane, e.Epoch, e.QPN, e.Peer, e.Status)
	if e.Vendor != 0 {
		s += fmt.Sprintf(" (vendor %#x)", e.Vendor)
	}
	if why := reasons[e.Status]; why != "" {
		s += ": " + why
	}
	if e.Note != "" {
		s += "; " + e.Note
	}
	return s
}

// Unwrap makes a peer that does not answer a lost one.
func (e *QPError) Unwrap() error {
	switch e.Status {
	case RetryExc, RNRExc, FlushErr:
		return transport.ErrPeerLost
	}
	return ErrDevice
}
