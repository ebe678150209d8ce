package shim

import (
	"lightpath/shim/bootstrap"
	"lightpath/shim/comm"
	"lightpath/shim/membership"
)

// Version is Lightpath's. Ranks of different versions refuse to form a communicator.
const Version = bootstrap.Version

// UniqueID names a communicator that is being made; it is ncclUniqueId's 128 bytes.
type UniqueID = bootstrap.UniqueID

// UniqueIDSize is NCCL_UNIQUE_ID_BYTES.
const UniqueIDSize = bootstrap.UniqueIDSize

// NewUniqueID makes an id and starts its rendezvous in this process; see [bootstrap.NewUniqueID].
func NewUniqueID() (UniqueID, error) { return bootstrap.NewUniqueID() }

// InitArgs asks for one communicator of this process.
type InitArgs = membership.Args

// Comm is one rank of a communicator.
type Comm = comm.Core
