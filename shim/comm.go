package shim

import (
	"lightpath/shim/comm"
	"lightpath/shim/membership"
)

// InitArgs asks for one communicator of this process.
type InitArgs = membership.Args

// Comm is one rank of a communicator.
type Comm = comm.Core

// Gate is how C gets hold of a communicator.
type Gate = comm.Gate
