package calls

import (
	"errors"

	"lightpath/plans"
	"lightpath/shim/comm"
	"lightpath/shim/planeset"
)

// Facts are values that the ranks of a communicator agreed on when they met. Checks and paths of calls need them.
type Facts struct {
	Circuits    bool              // the communicator has planes with circuits
	Planes      planeset.Set      // planes that a call may name: those with circuits, otherwise the packet planes
	CircuitKind plans.CircuitKind // of planes with circuits
	Cut         int64             // bytes of a buffer that a call moves in one piece; 0: any
	Launches    Launches          // how calls run on streams if no CPU touches their data
	Foreign     bool              // another libnccl executes collectives on streams
	NoDevice    error             // why this rank has no device, perhaps unlike others; nil: it has one
}

// Launches is the way in which calls run on streams without a CPU touching their data.
type Launches uint8

// The ways. With ByPortsOverCircuits only collectives with a script run on streams.
const (
	NoLaunches          Launches = iota // calls on streams are staged
	ByPeers                             // ranks access the memory of each other's devices
	ByPorts                             // RDMA ports access device memory, over packet planes
	ByPortsOverCircuits                 // RDMA ports access device memory, over planes with circuits
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
