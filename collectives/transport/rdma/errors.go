package rdma

import (
	"fmt"

	"lightpath/collectives/transport"
)

// QPError is the end of a queue pair, told by the completion of a request. It is a
// [transport.ErrPeerLost] where the peer did not answer.
type QPError struct {
	Rank, Peer, Plane int
	Epoch             uint32 // of the last frame sent on it
	QPN               uint32
	Status            Status
	Vendor            uint32
}

// Error names ranks, plane, epoch, queue pair and status.
func (e *QPError) Error() string {
	s := fmt.Sprintf("transport: rank %d, plane %d, epoch %d: QP %#x to rank %d: %s", e.Rank, e.Plane, e.Epoch, e.QPN, e.Peer, e.Status)
	if e.Vendor != 0 {
		s += fmt.Sprintf(" (vendor %#x)", e.Vendor)
	}
	switch e.Status {
	case RetryExc:
		s += ": no acknowledgement: the peer is gone, or the way to it or back is"
	case RNRExc:
		s += ": the peer posts no receives"
	}
	return s
}

// Unwrap makes a peer that does not answer a lost one.
func (e *QPError) Unwrap() error {
	switch e.Status {
	case RetryExc, RNRExc, FlushErr:
		return transport.ErrPeerLost
	}
	return nil
}
