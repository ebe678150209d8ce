package calls

import (
	"errors"

	"lightpath/plans"
	"lightpath/shim/comm"
	"lightpath/shim/planeset"
)

// Facts are what the ranks of a communicator agreed on when they met, as far as checks and routes of calls need it.
type Facts struct {
	Circuits    bool              // the communicator has planes with circuits
	Planes      planeset.Set      // that a call may name: those with circuits, else the packet planes
	CircuitKind plans.CircuitKind // of planes with circuits
	Cut         int64             // bytes of a buffer that a call moves in one piece; 0: any
	Launches    Launches          // who puts calls on streams that need no CPU there
	Foreign     bool              // another libnccl executes collectives on streams
	NoDevice    error             // why this rank, unlike others perhaps, has no device; nil: it has one
}

// Launches says how calls are put on streams that need no CPU once they are there.
type Launches uint8

// The ways. With ByPortsOverCircuits only collectives that have a script go there.
const (
	NoLaunches          Launches = iota // calls on streams are staged
	ByPeers                             // ranks reach the memory of each other's devices
	ByPorts                             // RDMA ports reach the memory of devices, over packet planes
	ByPortsOverCircuits                 // and over planes with circuits
)

var factsSlot = comm.NewSlot[Facts]()

// FactsOf returns the facts of a communicator.
func FactsOf(c *comm.Core) *Facts { return factsSlot.Of(c) }

// Setup prepares a communicator for calls.
func Setup(c *comm.Core) {
	factsSlot.Set(c, &Facts{CircuitKind: plans.Simplex, NoDevice: errNoDevice})
	operatorsSlot.Set(c, &operators{})
}

var errNoDevice = errors.New("no device was looked for")
