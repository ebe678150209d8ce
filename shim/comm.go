package shim

import (
	"lightpath/shim/bootstrap"
	"lightpath/shim/comm"
)

// InitArgs asks for one communicator of this process.
type InitArgs struct {
	ID          UniqueID
	More        []UniqueID // the other ids where ranks meet at several places ([Scatter])
	Ranks, Rank int
	// Device is the number of a device, negative for that of the calling thread's context.
	Device int
	// From is set where the communicator comes from another one. Its device is then the
	// parent's; ID, More, Ranks and Rank are not read.
	From *Origin
	// NonBlocking: calls that would wait return [errdefs.ErrInProgress], go on in the background, and
	// [comm.Core.State] tells when they have ended.
	NonBlocking bool
	Name        string // for logs
}

// Comm is one rank of a communicator.
type Comm = comm.Core

// Gate is how C gets hold of a communicator.
type Gate = comm.Gate

// birthState is how a communicator comes to be, and what comes from it.
type birthState struct {
	args     InitArgs
	asked    asked
	kin      kinship
	births   births // at the leader
	unwanted bool   // this rank takes part in a split, and gets nothing
	door     *bootstrap.Door
}

var (
	birthSlot  = comm.NewSlot[birthState]()
	probesSlot = comm.NewSlot[probes]()
)

func birthOf(c *Comm) *birthState { return birthSlot.Of(c) }
func probesOf(c *Comm) *probes    { return probesSlot.Of(c) }
