package ocsctl

import (
	"errors"
	"fmt"
	"maps"
	"math/bits"
	"sync"
	"sync/atomic"

	"lightpath/plans/circuit"
)

// Errors of the control path. Implementations wrap them with plane and epoch.
var (
	ErrStaleEpoch   = errors.New("stale epoch")
	ErrConflict     = errors.New("ranks asked for different maps")
	ErrReconfFailed = errors.New("reconfiguration failed")
	ErrUnknownMap   = errors.New("map of the plane is unknown")
	ErrControlLost  = errors.New("connection to the OCS controller lost")
	ErrFramesLost   = errors.New("frames lost on a dark or wrong circuit")
	ErrPortLost     = errors.New("a port lost its rank")
	ErrPlaneDown    = errors.New("plane is out of service")
	ErrNotHolder    = errors.New("not the plane's holder")
	ErrPinned       = errors.New("only an operator moves its circuits")
)

// PlaneState is a plane as a port sees it.
type PlaneState struct {
	// Epoch counts the moves that concern the port. While a holder has the port, these are its moves; all its ports are at
	// one epoch. Otherwise they are the moves that change the port's circuit.
	Epoch uint32
	Map   circuit.Permutation // of ports
}

// Lease is a holder's use of planes, or its request for them.
type Lease struct {
	Mask   uint64 `json:"mask"` // bit j: plane j
	Holder uint64 `json:"holder"`
	// Ports are those of the holder's ranks; none: all ports. Only on circuits between them does the holder send, so a
	// move of the holder waits for their posts only, and only for those of such circuits. Holders of disjoint ports have
	// a plane at the same time.
	Ports []int `json:"ports,omitempty"`
	// Circuits, only of a lease with ports: the controller makes these circuits before it grants the planes. It has
	// a map of the holder's ranks for each plane of the mask; none: the circuits stay as they are. The holder checks the
	// maps after the grant, since a plane may have owners that forbid the move.
	Circuits []circuit.Permutation `json:"circuits,omitempty"`
}

// CheckMask returns an error if a mask names no plane, or one that is not there.
func CheckMask(mask uint64, planes int) error {
	if mask == 0 || planes < 64 && mask>>planes != 0 {
		return fmt.Errorf("mask %#x of %d planes", mask, planes)
	}
	return nil
}

// MaxCircuits bounds the entries of all maps of Lease.Circuits together.
const MaxCircuits = 1 << 13

// Check returns an error if the lease cannot be one of planes with so many ports.
func (l *Lease) Check(ports, planes int) error {
	if err := CheckMask(l.Mask, planes); err != nil {
		return err
	}
	if err := circuit.CheckPorts(l.Ports, ports); err != nil {
		return err
	}
	switch n := len(l.Circuits); {
	case n == 0:
		return nil
	case len(l.Ports) == 0:
		return errors.New("circuits for a lease that names no ports")
	case n != bits.OnesCount64(l.Mask) || n*len(l.Ports) > MaxCircuits:
		return fmt.Errorf("circuits of %d planes and %d ports, for %d planes", n, len(l.Ports), bits.OnesCount64(l.Mask))
	}
	for i, m := range l.Circuits {
		if err := m.Validate(len(l.Ports)); err != nil {
			return fmt.Errorf("circuits of plane %d of the lease: map %w", i, err)
		}
	}
	return nil
}

// Client is one port's connection to the controller of its planes. Safe for concurrent
// use. The methods marked "poll" never block and never allocate in the steady state, so
// that a rank's progress loop can call them.
//
// The barrier (one plane, one epoch), as each rank whose transmit circuit changes sees it:
//
//	drain    every byte sent or forwarded on the old circuit has left the wire
//	request  Post(plane, epoch, target): this port is drained and agrees to target
//	switch   the controller has every changing port's Post, all with one target, and moves
//	verify   the observed map is read back and compared with the target
//	resume   Poll(plane) reports epoch+1
type Client interface {
	// Port is this client's port number, the same on every plane.
	Port() int
	// State returns the last known state of a plane (poll; the Map is shared, read-only).
	State(plane int) PlaneState
	// Post asks to move plane from epoch to target, which it copies, for the holder that has been granted the plane:
	// a rank of the holder's communicator knows its number. Of target, only the circuits between ports of the holder
	// count, and the others are dark. It returns at once; posting twice is harmless. If a holder's ports post different
	// targets for one epoch, or a rank whose post is needed has died, all its ports are refused. The controller refuses a
	// post for another holder, and tells only this port: see Refused.
	Post(plane int, epoch uint32, holder uint64, target circuit.Permutation) error
	// Poll returns the plane's epoch and, after a failure, its error (poll): a failed or unverified switch, lost frames of
	// this port.
	Poll(plane int) (epoch uint32, err error)
	// Refused returns why a post of this port for a holder was refused, nil if none was (poll). The result does not
	// change back, because the holder's ranks and the controller disagree on the plane's state.
	Refused(plane int, holder uint64) error
	// Acquire obtains the planes of a lease, all at once and in one global order among holders; it blocks until granted.
	// It grants the planes of the mask that are in service; if none is, the error wraps ErrPlaneDown. Release gives planes
	// back. A holder has at most one Acquire outstanding, and several holders may wait.
	Acquire(l Lease) (granted uint64, err error)
	Release(mask uint64, holder uint64) error
	// OnChange registers a function that the client's goroutine calls after any change of state. It must not block.
	OnChange(func())
	// OnWanted registers a function that the client's goroutine calls when another request waits for planes of a holder's
	// lease, or an operator has disabled some of them. The holder gives planes back that it does not use. The function
	// must not block.
	OnWanted(func(holder, mask uint64))
	Close() error
}

// HolderName formats the number of a holder for errors, logs and commands.
func HolderName(holder uint64) string { return fmt.Sprintf("%#x", holder) }

// Refusals keeps, by holder, the first refusal of a post. The zero value is ready for use, from any
// goroutine.
type Refusals struct {
	mu  sync.Mutex // of writers
	all atomic.Pointer[map[uint64]error]
}

// Get returns why a holder's post was refused; nil: none was.
// Hot path: no allocation, no locks, no logging.
func (r *Refusals) Get(holder uint64) error {
	all := r.all.Load()
	if all == nil {
		return nil
	}
	return (*all)[holder]
}

// maxRefusals bounds the number of holders. More are unlikely, because ranks whose posts are refused fail.
const maxRefusals = 1024

// Add records why a holder's post was refused. It keeps the first reason.
func (r *Refusals) Add(holder uint64, why error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	next := map[uint64]error{}
	if all := r.all.Load(); all != nil {
		next = maps.Clone(*all)
	}
	if next[holder] == nil && len(next) < maxRefusals {
		next[holder] = why
		r.all.Store(&next)
	}
}
