// Package shim is what stands behind the NCCL ABI: communicators, groups, dispatch from
// a call to a program, tickets. What of it can stand alone is in the packages below it:
// bootstrap, control connections, settings, log, devices, status.
//
// Layer: above collectives, below cgo/core, bench and cmd. It contains no C
// and works on host memory.
package shim

import (
	"lightpath/shim/bootstrap"
)

// UniqueID names a communicator that is being made; it is ncclUniqueId's 128 bytes.
type UniqueID = bootstrap.UniqueID

// UniqueIDSize is NCCL_UNIQUE_ID_BYTES.
const UniqueIDSize = bootstrap.UniqueIDSize

// NewUniqueID makes an id and starts its rendezvous in this process; see [bootstrap.NewUniqueID].
func NewUniqueID() (UniqueID, error) { return bootstrap.NewUniqueID() }
