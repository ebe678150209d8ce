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
	NoDevice    error             // why this rank, unlike others perhaps, has no device; nil: it has one
}

var factsSlot = comm.NewSlot[Facts]()

// FactsOf returns the facts of a communicator.
func FactsOf(c *comm.Core) *Facts { return factsSlot.Of(c) }

// Setup prepares a communicator for calls.
func Setup(c *comm.Core) {
	factsSlot.Set(c, &Facts{CircuitKind: plans.Simplex, NoDevice: errNoDevice})
	operatorsSlot.Set(c, &operators{})
}

var errNoDevice = errors.New("no device was looked for")
