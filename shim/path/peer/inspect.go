package peer

// This file exports internals to the tests of whole communicators in package shim.

type (
	// Region is registered memory.
	Region = region
	// Operation is a collective of a launch.
	Operation = operation
)

// Limits.
const (
	MaxRegions = maxRegions
	LendBytes  = lendBytes
	SaidBytes  = saidBytes
	SaidWords  = saidWords
	NumSlots   = numSlots
	WordSend   = wordSend
)

// Functions of a path.
var (
	Of             = slot.Of
	IsOpen         = (*Path).isOpen
	IsClosed       = (*Path).closedByAll
	Lendable       = (*Path).lendable
	LendableTo     = (*Path).lendableTo
	AutoRegistered = (*Path).autoregisteredAt
	Said           = (*Path).said
	Tag            = (*operation).tag
	OpenedBy       = func(x *Path, rank, region, by int) *regionOpened { return &x.recordOf(rank, region).opened[by] }
	ShutGates      = (*Path).shutGates
	PeerFailed     = (*Path).peerFailed
)

// ForgetExchange drops the memory that is kept for the next communicator.
func ForgetExchange() {
	spare.mu.Lock()
	defer spare.mu.Unlock()
	spare.free = nil
}
