package controller

import (
	"errors"
	"time"

	"lightpath/ocsctl"
	"lightpath/plans/circuit"
)

// Errors beyond those of package ocsctl.
var (
	// ErrMoving: the mirrors of a [Device] have not settled.
	ErrMoving = errors.New("device is still moving")
	// ErrPortBusy: a rank is attached to this port.
	ErrPortBusy = errors.New("another rank is attached, and a port serves one process at a time")
	// ErrStopped: the controller has been closed.
	ErrStopped = errors.New("controller is stopped")
	// ErrNotLeader: another controller owns the planes; this one no longer moves them.
	ErrNotLeader = errors.New("not the controller in charge")
	// ErrHeld: a communicator uses the plane, so an operator may not change it.
	ErrHeld = errors.New("plane is in use")
	// ErrJournal: the journal has not confirmed a change in time. A restart of the controller may lose it.
	ErrJournal = errors.New("the journal does not answer")
)

// Move is one reconfiguration of a plane.
type Move struct {
	Epoch    uint32 // of the plane before the move
	From, To circuit.Permutation
	Token    uint64 // fences controllers; rises with every takeover
	// Idle: no rank uses the plane. The device may then interrupt circuits that the move keeps, to verify or
	// repair them.
	Idle bool
	// Leading is Config.Leading, nil if that is nil. A device calls it again right before it changes circuits: between
	// Switch and that moment the process may have stood still.
	Leading func() error
	// Ports are the switch's ports of the plane from this move on; nil: as before. The device first removes the circuits
	// of ports that change. If the move fails, it keeps the ports of before.
	Ports []string
}

// Device is the cross-connect of the planes. It knows the map that a plane physically has; the controller knows
// the map it asked for. The core calls it, so both methods must return promptly: a slow device starts to move in
// Switch, and Map returns ErrMoving until it has settled.
type Device interface {
	// Switch starts to move a plane. An error means that nothing moved.
	Switch(plane int, m Move) error
	// Map returns the plane's map. A remote device returns the map that it observed last.
	Map(plane int) (circuit.Permutation, error)
}

// Timed is a Device that reports when it has settled; the core then ignores the plane's reconfiguration time. The
// device calls f, from any goroutine, when a plane has settled, or when its observed map or its health has changed.
type Timed interface {
	Device
	OnSettled(f func(plane int))
}

// Verifier is a Timed device that can verify the circuits of a plane without changing them.
type Verifier interface {
	Timed
	// Verify starts to verify the circuits of a plane that no rank uses. Map returns ErrMoving until the
	// verification has ended. An error means that nothing was started.
	Verify(plane int, token uint64) error
}

// Reporter is a Device that reports the health of a plane.
type Reporter interface {
	// Report returns how the plane's current circuits were verified ("status", "light", ...). unwell is the
	// reason why ranks should not use the plane: a failed port, lost light, a switch that does not answer. It is
	// nil if there is none, and wraps a [BadPorts] if ranks at other ports may use the plane.
	Report(plane int) (verified string, unwell error)
}

// Intent is a move that ranks or an operator asked for. The core journals it when the first rank posts, so that it
// is usually durable when the last rank posts.
type Intent struct {
	Plane  int                 `json:"-"`
	Epoch  uint32              `json:"epoch"` // of the plane before the move
	To     circuit.Permutation `json:"to"`
	Epochs []uint32            `json:"epochs,omitempty"` // of the ports after the move; nil: Epoch+1 for all
}

// Recovered is the state of a plane in the journal; see [Config.Recovered]. JSON is its form there.
type Recovered struct {
	// Epoch and Epochs (by port; nil: Epoch for all) are the epochs that ranks know, so that their operations continue.
	// If the controller before may have published later epochs than the journal has, Epoch is above all of them.
	Epoch     uint32              `json:"epoch"`
	Epochs    []uint32            `json:"epochs,omitempty"`
	Map       circuit.Permutation `json:"map"`
	Intent    *Intent             `json:"intent,omitempty"`    // the last move, if the journal does not have its end
	Failed    bool                `json:"failed,omitempty"`    // the plane was out of service
	Disabled  string              `json:"disabled,omitempty"`  // why an operator disabled the plane; "": not disabled
	Jobs      []Job               `json:"jobs,omitempty"`      // that have ports on the plane
	Baselines map[int]Baseline    `json:"baselines,omitempty"` // of the power of ports
	Moved     map[int]Moved       `json:"moved,omitempty"`     // ports that an operator has moved at the switch
	Trial     *Trial              `json:"trial,omitempty"`     // a change that is to be confirmed; nil: none
	// FailedMoves are the ports that a move has failed at, and why; see [Event.FailedMove].
	FailedMoves map[int]string `json:"failed_moves,omitempty"`
}

// Journal makes the controller's state durable. Methods are called from the core and must
// not block.
type Journal interface {
	// Intend makes an intent durable, and calls done once, from any goroutine. The plane does not move before
	// that. An error that wraps ErrNotLeader ends the controller's rule.
	Intend(i Intent, done func(error))
	// Record adds an event to the history; events become durable later, in the order of calls. If done is not
	// nil, it is called once, from any goroutine: with nil when the event and all before it are durable, else
	// with the reason. A journal with a full queue may drop events; done then waits for the Lost event that
	// takes their place.
	Record(e Event, done func(error))
}

// EventKind says what happened.
type EventKind string

// The kinds of events.
const (
	Switched  EventKind = "switched"  // a plane has moved: Epoch, From, To, Took, Waited, Verified
	Failed    EventKind = "failed"    // a plane has gone out of service: Err
	Restored  EventKind = "restored"  // a plane is back in service
	Granted   EventKind = "granted"   // the planes of Mask to Holder of Port, after it Waited
	Released  EventKind = "released"  // the planes of Mask, by the rank of Port
	Attached  EventKind = "attached"  // a rank to Port
	Detached  EventKind = "detached"  // the rank of Port; Err: why, unless it detached itself
	Began     EventKind = "began"     // Job, on Plane
	Ended     EventKind = "ended"     // Job, on Plane
	Commanded EventKind = "commanded" // an operator (Who) changed a plane; Err: why it is disabled
	TookOver  EventKind = "took-over" // this controller took over
	Settled   EventKind = "settled"   // the grace time for ranks of earlier controllers has ended
	Lost      EventKind = "lost"      // the journal dropped events; Err: how many
	// Power: see Baseline.
	Measured   EventKind = "measured"   // ports of Plane have Baselines; Who: of the operator who set them
	Dimmed     EventKind = "dimmed"     // Port receives less than its baseline by its drop; Err: how much
	Brightened EventKind = "brightened" // Port is not dim any more
	Remapped   EventKind = "remapped"   // an operator (Who) has Moved Port to another port of the switch
	Excluded   EventKind = "excluded"   // Port is out of service, on a plane that serves others; Err: why
	Included   EventKind = "included"   // Port is back in service
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
	Took     time.Duration       `json:"took,omitempty"`   // by the device, for the move
	Waited   time.Duration       `json:"waited,omitempty"` // from the first post to the last, or for planes
	Verified string              `json:"verified,omitempty"`
	Port     int                 `json:"port"` // -1: none
	Holder   uint64              `json:"holder,omitempty"`
	Mask     uint64              `json:"mask,omitempty"`
	Who      string              `json:"who,omitempty"` // operator, or a rank's front end and address
	Token    uint64              `json:"token,omitempty"`
	Err      string              `json:"error,omitempty"`
	Job      *Job                `json:"job,omitempty"`
	Moved    *Moved              `json:"moved,omitempty"`
	Trial    *Trial              `json:"trial,omitempty"` // of Commanded
	// Baselines are the changed baselines, by port.
	Baselines map[int]Baseline `json:"baselines,omitempty"`
	// Epochs, of Switched, are those of the ports after the event; nil: Epoch for all. Clients do not get them.
	Epochs []uint32 `json:"-"`
	// Of Failed; clients do not get them. Desired is the map at which the plane may return.
	Cause   Cause               `json:"-"`
	Desired circuit.Permutation `json:"-"`
	// FailedMove, of Excluded: the port waits until an operator's order has verified its circuits. Clients do not get it.
	FailedMove bool `json:"-"`
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

// Snapshot is the state of a controller at one moment.
type Snapshot struct {
	Time   time.Time       `json:"time"`
	Name   string          `json:"name"` // of the controller
	Leader bool            `json:"leader"`
	Token  uint64          `json:"token"`
	Planes []PlaneSnapshot `json:"planes"`
	Ports  []PortSnapshot  `json:"ports"`
	Queue  []LeaseSnapshot `json:"queue"` // requests for planes, in order
	Jobs   []JobSnapshot   `json:"jobs,omitempty"`
}

// PlaneSnapshot is a plane's part of a [Snapshot].
type PlaneSnapshot struct {
	Name     string              `json:"name"`
	State    PlaneState          `json:"state"`
	Reason   string              `json:"reason,omitempty"`  // of Down
	Cause    Cause               `json:"-"`                 // of Down, the class of Reason; clients do not get it
	Epoch    uint32              `json:"epoch"`             // counts its moves; no port has a later one
	Map      circuit.Permutation `json:"map"`               // of a failed plane: that of its device now; nil: unknown
	Desired  circuit.Permutation `json:"desired,omitempty"` // nil: the same as Map
	Target   circuit.Permutation `json:"target,omitempty"`  // while Waiting or Moving
	Posted   []int               `json:"posted,omitempty"`  // ports
	Missing  []int               `json:"missing,omitempty"`
	Waiting  string              `json:"-"`                  // see Controller.Waiting; clients do not get it
	Unlit    []int               `json:"unlit,omitempty"`    // ports whose circuit receives no light
	Dim      []int               `json:"dim,omitempty"`      // ports that receive less than their baseline; see Baseline
	Out      []PortOut           `json:"out,omitempty"`      // ports out of service, while the plane serves others
	Holders  []LeaseSnapshot     `json:"holders,omitempty"`  // of disjoint ports
	Trial    *Trial              `json:"trial,omitempty"`    // a change that is to be confirmed
	Verified string              `json:"verified,omitempty"` // how the circuits were verified; "": they are not as desired
	Switches uint64              `json:"switches"`
	Failures uint64              `json:"failures"`
	Posts    uint64              `json:"posts"`   // of ranks
	Refused  uint64              `json:"refused"` // refused posts
}

// PortSnapshot is a port's part of a [Snapshot].
type PortSnapshot struct {
	Port     int       `json:"port"`
	Attached bool      `json:"attached"`
	Who      string    `json:"who,omitempty"`
	Since    time.Time `json:"since,omitzero"`
}

// LeaseSnapshot is a lease of planes, granted or requested.
type LeaseSnapshot struct {
	Port   int       `json:"port"`
	Holder uint64    `json:"holder"`
	Mask   uint64    `json:"mask"`
	Since  time.Time `json:"since"`
	Job    string    `json:"job,omitempty"` // the job of the port, on one of these planes
}

// Sink receives the news of one attachment. The core calls its methods; they must not block. The map is shared and
// read-only.
type Sink interface {
	// Changed: a plane's epochs (by port), map or fault (nil: none) have changed, the fault as the sink's port sees it. A
	// sink without a port gets a *[BadPorts] as the fault if it is one of those ports only. epochs is read-only, too.
	Changed(plane int, epochs []uint32, m circuit.Permutation, fault error)
	// Refused: a post of this port for a holder was refused. why wraps ocsctl.ErrStaleEpoch if the epoch is past,
	// ocsctl.ErrNotHolder if another holder has the plane, and ocsctl.ErrPinned if only operators may move it.
	Refused(plane int, holder uint64, why error)
	// Granted answers the Acquire with that id. mask holds those of the requested planes that are in service; if
	// none is, err says why.
	Granted(id, mask uint64, err error)
	// Wanted: another request waits for planes of a lease of this port, or an operator has disabled some of them. The
	// holder gives the planes back when it does not use them. Once per lease.
	Wanted(holder, mask uint64)
	// Closed: the controller has ended the attachment. It has stopped or is not the leader any more.
	Closed(err error)
}

// AttachOptions describe the rank that attaches.
type AttachOptions struct {
	Port int    // -1: none; the core calls such a sink before those of ports
	Who  string // for operators: "local pid 4711", "grpc 10.0.0.7:5123 CN=node7"
	// Held lists the leases that the controller before this one had granted to the rank. During the grace time
	// after a takeover the rank gets them back. Attach fails with ErrHeld if another rank has claimed one of the
	// planes, and at any other time: the leases have ended.
	Held []ocsctl.Lease
	// Known lists, by plane, the newest epoch of the port that an earlier controller has published; nil: none has. A
	// plane that gives the port a lower one goes out of service, since the journal has lost changes. Without a journal,
	// Known is ignored.
	Known []uint32
	// Data is passed to the core's [DataPath], to share with the port; nil: nothing.
	Data any
}

// Attachment connects a rank to the controller. Methods may be called from any goroutine and return at once;
// answers come through the [Sink].
type Attachment interface {
	// Post agrees, for the plane's holder, to move plane from epoch to target. The port must be drained.
	Post(plane int, epoch uint32, holder uint64, target circuit.Permutation) error
	// Acquire asks for the planes of a lease. [Sink.Granted] answers with the same id. Planes that the holder still has
	// are given back first, since their Release may have been lost with a connection. l belongs to the core.
	Acquire(id uint64, l ocsctl.Lease) error
	// Release gives planes of holder's lease back.
	Release(mask, holder uint64) error
	// Detach ends the attachment and releases its planes. Unless clean, the rank has died: its posts are void,
	// and barriers that need them fail.
	Detach(clean bool)
}

// Controller is the interface of the core to front ends and operators. All methods may be called from any
// goroutine.
type Controller interface {
	// Attach connects a rank to its port, or an observer without a port. It calls the sink's Changed once per plane
	// before it returns.
	Attach(s Sink, o AttachOptions) (Attachment, error)
	Snapshot() (Snapshot, error)
	// Watch calls f with every later event, in order, from one goroutine. If f falls 4096 events behind, it misses
	// the oldest.
	Watch(f func(Event)) (cancel func())
	// Waiting returns a text for operators: the ports or times for which the next switch of a plane waits.
	Waiting(plane int) string
	// Change sets planes for an operator, from the maps that their device has, as one change. A plane with a holder is
	// refused (ErrHeld). If one plane may not be set, Change sets none. If one fails, the others get their maps of before,
	// and the error wraps ErrUndone. The device verifies all circuits, including the ones that the move keeps. Afterwards
	// the planes are in service, unless they are disabled.
	Change(c Change, who string) error
	// Set is a Change of one plane.
	Set(plane int, target circuit.Permutation, who string) error
	// Confirm keeps a change that the controller would undo otherwise. plane is one of its planes.
	Confirm(plane int, who string) error
	// Remap moves a port of a free plane to the switch's port with the label to, and makes the plane's circuits there. It
	// must be a spare port of the plane that no other port uses, or the port that the fabric file names.
	Remap(plane, port int, to, who string) error
	// Disable takes a plane out of service: later requests are not granted it. Enable puts it back if its device
	// has the desired map and verifies all circuits again; otherwise it returns why not.
	//
	// Change, Confirm, Remap, Disable and Enable return when their change is in the journal, or with ErrJournal.
	Disable(plane int, reason, who string) error
	Enable(plane int, who string) error
	// Ports returns the state of a plane's ports at its switch; nil if the device does not report it.
	Ports(plane int) ([]PortState, error)
	// SetBaseline makes the present power of ports their baseline, and returns when that is in the journal. Without ports,
	// it does so for all ports whose power is measured. drop is the loss in dB that makes them dim; 0: Config.PowerDrop.
	// The error wraps ErrNoPower if a port is not measured.
	SetBaseline(plane int, ports []int, drop float64, who string) error
	// BeginJob reserves the job's ports on its planes, and sets their circuits as soon as no communicator uses the plane.
	// maps[j] is the map of the job's ranks on plane j (nil: dark), and no rank moves these circuits until the job ends.
	// If maps is nil, the ports go dark, and only ranks at these ports move circuits to or from them.
	//
	// BeginJob returns when all of this is done and in the journal; after an error, the job has ended. It does not wait
	// for planes out of service: these get their circuits when they are back, unless a takeover comes first. It returns
	// ErrJob if another job has a port or the id; the same job may begin again.
	BeginJob(j Job, maps []circuit.Permutation) error
	// EndJob gives the ports back, and returns when that is in the journal. It moves no circuit. A job that has ended
	// already is no error.
	EndJob(id, who string) error
}
