// Package controller owns the planes of a fabric: who may use them, where their circuits
// go, and when they move. One goroutine, the core, decides everything; front ends (package
// local: shared memory on one host; package rpc: gRPC) bring it the ranks, devices are what
// it moves (package switches: real switches through their drivers; package emulator: circuits
// that carry frames in memory; package kernel: circuits in the kernel), and a journal makes
// what it does outlive it.
//
// Layer: ocsctl. It knows ports, permutations and epochs, never plans or collectives.
package controller

import (
	"errors"
	"time"

	"lightpath/plans/circuit"
)

// Errors beyond those of package ocsctl.
var (
	// ErrMoving is what a [Device] answers while its mirrors have not settled.
	ErrMoving = errors.New("device is still moving")
	// ErrPortBusy: a rank is attached to this port.
	ErrPortBusy = errors.New("another rank is attached")
	// ErrStopped: the controller has been closed.
	ErrStopped = errors.New("controller is stopped")
	// ErrNotLeader: another controller owns the planes; this one has stopped to move them.
	ErrNotLeader = errors.New("not the controller in charge")
	// ErrHeld: an operator's change of a plane that a communicator uses.
	ErrHeld = errors.New("plane is in use")
	// ErrJournal: the journal has not confirmed a change in time. A restart of the controller may lose it.
	ErrJournal = errors.New("the journal does not answer")
)

// Move is one reconfiguration of a plane.
type Move struct {
	Epoch    uint32 // that it ends
	From, To circuit.Permutation
	Token    uint64 // fences controllers; rises with every takeover
	// Idle: no rank uses the plane. A device may disturb circuits that the move keeps, to verify or mend
	// them.
	Idle bool
}

// Device is the cross-connect behind the planes: what the maps physically are, as opposed to
// what was asked for. It is called from the core, so both methods must return promptly; a slow
// device starts to move in Switch and reports ErrMoving from Map.
type Device interface {
	// Switch starts to move a plane. An error means that nothing moved.
	Switch(plane int, m Move) error
	// Map reads the plane's map back: what was last observed, for a device that is far away.
	Map(plane int) (circuit.Permutation, error)
}

// Timed is a Device that takes its own time: the core does not wait for the plane's
// reconfiguration time but until the device calls f, from any goroutine, because a plane has
// settled or its observed map or its health has changed.
type Timed interface {
	Device
	OnSettled(f func(plane int))
}

// Verifier is a Timed device that can verify the circuits of a plane without a change.
type Verifier interface {
	Timed
	// Verify starts to verify the circuits that a plane has; it is for planes that no rank uses. Map
	// returns ErrMoving until it is over. An error means that nothing was started.
	Verify(plane int, token uint64) error
}

// Reporter is a Device that can say more of a plane.
type Reporter interface {
	// Report says how far the circuits that the plane has now are verified ("status", "light", ...)
	// and, where the plane should not be used though nothing moves (a failed port, lost light, a
	// switch that does not answer), why: nil while all is well.
	Report(plane int) (verified string, unwell error)
}

// LightMeter is a Device that measures the light of circuits.
type LightMeter interface {
	// Unlit returns the ports of a plane, in order, whose circuit receives no light; nil where all do, or where
	// the light is not known.
	Unlit(plane int) []int
}

// Intent is a move that has been asked for: it is journaled when the first rank posts, so that
// it is durable, as a rule, when the last one has.
type Intent struct {
	Plane int
	Epoch uint32
	To    circuit.Permutation
}

// Recovered is where a journal says that a plane is; see [Config.Recovered].
type Recovered struct {
	// Epoch is the one that ranks know, so that their operations go on; where a later one may
	// have been published it is above all that were.
	Epoch    uint32
	Map      circuit.Permutation
	Intent   *Intent // a move that was asked for and is not known to have ended
	Failed   bool    // it was out of service
	Disabled string  // why an operator took it out of service; "" where nobody did
}

// Journal makes the controller's state durable. Methods are called from the core and must
// not block.
type Journal interface {
	// Intend makes an intent durable; done is called once, from any goroutine. A plane does not
	// move before. An error that wraps ErrNotLeader ends the controller's rule.
	Intend(i Intent, done func(error))
	// Record notes what happened; it is durable in the order of calls, some time later. done, where it
	// is not nil, is called once, from any goroutine, when the event and all before it are durable, or
	// with the reason why they are not.
	Record(e Event, done func(error))
}

// EventKind says what happened.
type EventKind string

// The kinds of events.
const (
	Switched  EventKind = "switched"  // a plane has moved: Epoch, From, To, Took, Waited, Verified
	Failed    EventKind = "failed"    // a plane has gone out of service: Err
	Restored  EventKind = "restored"  // and is back
	Granted   EventKind = "granted"   // Mask to Holder of Port, which Waited for it
	Released  EventKind = "released"  //
	Attached  EventKind = "attached"  // a rank to Port
	Detached  EventKind = "detached"  // Err: why, where it did not say goodbye
	Commanded EventKind = "commanded" // an operator (Who) changed a plane; Err: why it is disabled
	TookOver  EventKind = "took-over" // this controller is in charge from now on
	Settled   EventKind = "settled"   // and waits no more for ranks of the controllers before it
	Lost      EventKind = "lost"      // events of the history, that came faster than they could be written: Err
)

// Event is an entry of the history.
type Event struct {
	Seq      uint64              `json:"seq"`
	Time     time.Time           `json:"time"`
	Kind     EventKind           `json:"kind"`
	Plane    int                 `json:"plane"` // -1: none
	Epoch    uint32              `json:"epoch"` // of the plane, after the event
	From     circuit.Permutation `json:"from,omitempty"`
	To       circuit.Permutation `json:"to,omitempty"`
	Took     time.Duration       `json:"took,omitempty"`   // the device's part of a switch
	Waited   time.Duration       `json:"waited,omitempty"` // from the first post to the last, or for planes
	Verified string              `json:"verified,omitempty"`
	Port     int                 `json:"port"` // -1: none
	Holder   uint64              `json:"holder,omitempty"`
	Mask     uint64              `json:"mask,omitempty"`
	Who      string              `json:"who,omitempty"` // operator, or a rank's front end and address
	Token    uint64              `json:"token,omitempty"`
	Err      string              `json:"error,omitempty"`
}

// PlaneState says what a plane is doing.
type PlaneState string

// The states of a plane.
const (
	Resident PlaneState = "resident" // its map is in force
	Waiting  PlaneState = "waiting"  // some ports have posted
	Moving   PlaneState = "moving"   // the device moves
	Down     PlaneState = "down"     // out of service: Reason
)

// Snapshot is the whole state of a controller at one moment.
type Snapshot struct {
	Time   time.Time       `json:"time"`
	Name   string          `json:"name"` // of the controller
	Leader bool            `json:"leader"`
	Token  uint64          `json:"token"`
	Planes []PlaneSnapshot `json:"planes"`
	Ports  []PortSnapshot  `json:"ports"`
	Queue  []LeaseSnapshot `json:"queue"` // who waits for planes, in order
}

// PlaneSnapshot is a plane's part of a [Snapshot].
type PlaneSnapshot struct {
	Name     string              `json:"name"`
	State    PlaneState          `json:"state"`
	Reason   string              `json:"reason,omitempty"` // of Down
	Epoch    uint32              `json:"epoch"`
	Map      circuit.Permutation `json:"map"`
	Desired  circuit.Permutation `json:"desired,omitempty"` // where it is not the map
	Target   circuit.Permutation `json:"target,omitempty"`  // while Waiting or Moving
	Posted   []int               `json:"posted,omitempty"`  // ports
	Missing  []int               `json:"missing,omitempty"`
	Unlit    []int               `json:"unlit,omitempty"` // ports whose circuit receives no light
	Holder   *LeaseSnapshot      `json:"holder,omitempty"`
	Verified string              `json:"verified,omitempty"` // how far the circuits are verified; "" where they are not as desired
	Switches uint64              `json:"switches"`
	Failures uint64              `json:"failures"`
	Posts    uint64              `json:"posts"`   // of ranks
	Refused  uint64              `json:"refused"` // posts that were
}

// PortSnapshot is a port's part of a [Snapshot].
type PortSnapshot struct {
	Port     int       `json:"port"`
	Attached bool      `json:"attached"`
	Who      string    `json:"who,omitempty"`
	Since    time.Time `json:"since,omitzero"`
}

// LeaseSnapshot is a use of planes, granted or asked for.
type LeaseSnapshot struct {
	Port   int       `json:"port"`
	Holder uint64    `json:"holder"`
	Mask   uint64    `json:"mask"`
	Since  time.Time `json:"since"`
}

// Sink is how a front end hears of what concerns a port. Methods are called from the core and
// must not block. The map is shared and read-only.
type Sink interface {
	// Changed: a plane has another epoch, map or fault (nil: none).
	Changed(plane int, epoch uint32, m circuit.Permutation, fault error)
	// Refused: a post of this port for a holder was refused. why wraps ocsctl.ErrStaleEpoch where the
	// epoch is past, ocsctl.ErrNotHolder where another holds the plane, and ocsctl.ErrPinned where ranks
	// do not move it.
	Refused(plane int, holder uint64, why error)
	// Granted answers the Acquire of that id: the planes of its mask that are in service, never
	// none; or an error where none is.
	Granted(id, mask uint64, err error)
	// Closed: the controller has ended the attachment (it stopped, or is not the leader any more).
	Closed(err error)
}

// AttachOptions describe the rank that attaches.
type AttachOptions struct {
	Port int    // -1: none; the sink hears of every plane, before those that have a port
	Who  string // for operators: "local pid 4711", "grpc 10.0.0.7:5123 CN=node7"
	// Held are uses of planes that the rank had been granted by the controller before this one:
	// they are given back to it; Attach fails with ErrHeld where somebody else claimed one.
	// Ignored unless the controller has just taken over.
	Held []LeaseSnapshot
	// Data is what the port shares with the core's [DataPath]; nil: nothing.
	Data any
}

// Attachment is a rank's place at the controller. Methods may be called from any goroutine and
// return at once; answers come through the [Sink].
type Attachment interface {
	// Post agrees, for the plane's holder, to move plane from epoch to target: the port is drained.
	Post(plane int, epoch uint32, holder uint64, target circuit.Permutation) error
	// Schedule moves a plane at a time instead of when its ports have posted: the time-based
	// barrier. Only the holder of the plane may. Moves that are due while an earlier one is under
	// way fail the plane.
	Schedule(plane int, epoch uint32, target circuit.Permutation, at time.Time) error
	Acquire(id, mask, holder uint64) error
	Release(mask, holder uint64) error
	// Detach ends the attachment. Unless clean, the rank has died: its planes are released, its
	// posts are void, and barriers that need it fail.
	Detach(clean bool)
}

// Controller is what front ends and operators' interfaces use of the core. All methods may be
// called from any goroutine.
type Controller interface {
	// Attach connects a rank to its port, or an onlooker. The sink's Changed is called once per
	// plane before it returns.
	Attach(s Sink, o AttachOptions) (Attachment, error)
	Snapshot() (Snapshot, error)
	// Watch has f called with every event from now on, from one goroutine, in order. A watcher
	// that falls 4096 events behind loses the oldest.
	Watch(f func(Event)) (cancel func())
	// Waiting says in words what the next switch of a plane waits for.
	Waiting(plane int) string
	// Set is an operator's change: the plane must be free (ErrHeld), and is moved from the map that
	// the device really has. All of its circuits are verified, those that it keeps too. Afterwards it is
	// in service, unless it is disabled.
	Set(plane int, target circuit.Permutation, who string) error
	// Disable takes a plane out of service for new grants. Enable puts it back, if its device has the
	// desired map and verifies all circuits anew; else that is the error.
	//
	// Set, Disable and Enable return when the journal has what they have changed, or with ErrJournal.
	Disable(plane int, reason, who string) error
	Enable(plane int, who string) error
}
