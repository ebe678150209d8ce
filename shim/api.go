// Package shim assembles the packages below it into communicators and runs calls on them. It is the API that the
// exports of cgo/core, the commands and the harness use: Init, Run, Register.
//
// Layer: above all packages of shim and collectives, below cgo/core, bench and cmd. It contains no C, and carries no
// byte itself.
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

// Gate is the lock through which C makes calls on a communicator.
type Gate = comm.Gate
