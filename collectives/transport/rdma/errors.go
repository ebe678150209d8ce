package rdma

import (
	"errors"
	"fmt"

	"lightpath/collectives/transport"
)

// ErrDevice is the error of a failed device, port or queue of this host.
var ErrDevice = errors.New("RDMA device error")

// QPError is the error of a queue pair that failed with a request. It wraps [transport.ErrPeerLost] if the peer did not
// answer, and [ErrDevice] otherwise.
type QPError struct {
	Rank, Peer, Plane int
	Epoch             uint32 // of the last frame sent on it
	QPN               uint32
	Status            Status
	Vendor            uint32
	Note              string // state of the port, if known
}

// reasons are the usual causes of a status.
var reasons = map[Status]string{
	FlushErr:     "the queue pair is closed",
	RemInvReqErr: "the peer's device rejected the request: its receive is too small, or it does not support the request",
	AccessErr:    "the peer's device rejected the memory address: wrong key or bounds",
	RemOpErr:     "the peer's device could not complete the request",
	RetryExc:     "no acknowledgement: the peer is lost, or the path to it or back is down",
	RNRExc:       "the peer posts no receives",
}

// Error returns a text with the ranks, plane, epoch, queue pair and status.
func (e *QPError) Error() string {
	s := fmt.Sprintf("transport: rank %d, plane %d, epoch %d: QP %#x to rank %d: %s",
		e.Rank, e.Plane, e.Epoch, e.QPN, e.Peer, e.Status)
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

// Unwrap returns [transport.ErrPeerLost] or [ErrDevice].
func (e *QPError) Unwrap() error {
	switch e.Status {
	case RetryExc, RNRExc, FlushErr:
		return transport.ErrPeerLost
	}
	return ErrDevice
}
