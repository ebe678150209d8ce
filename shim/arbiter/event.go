package arbiter

import (
	"time"

	"lightpath/plans"
	"lightpath/plans/circuit"
	"lightpath/shim/calls"
	"lightpath/shim/planeset"
	"lightpath/shim/planning"
	"lightpath/shim/ticket"
)

// EventKind is what has happened.
type EventKind uint8

// The events. Rank is the rank that sent a message.
const (
	Want      EventKind = iota // a rank wants the ticket of collective Seq, of Shape
	Done                       // a rank has ended the operation of ticket Seq; Standing says where it left the planes
	Row                        // a rank posts Row as round Seq
	PlanLack                   // a rank lacks plan Plan, for Seq
	Granted                    // the controller has granted Planes, or Err
	Reached                    // Plane has reached the epoch of an Await, or Err
	Vacated                    // ranks have been told to release circuits on Plane (OK), or could not be
	Scheduled                  // moves have been scheduled from Start on, or Err
	Expired                    // Timer has expired
)

// Event is something that has happened. Fields that its kind does not name are zero.
type Event struct {
	Kind     EventKind
	Rank     int
	Seq      uint64
	Shape    calls.Shape
	Row      *ticket.Row
	Plan     planning.ID
	Standing *ticket.Ticket
	Planes   planeset.Set
	Plane    int
	OK       bool
	Start    int64
	Timer    Timer
	Err      error
}

// Timer is one of the machine's timers.
type Timer uint8

// The timers.
const (
	IdleTimer  Timer = iota // planes are given back
	RoundTimer              // an open round is not waited for any longer
	NumTimers
)

// ActionKind is what is to be done.
type ActionKind uint8

// The actions. Rank -1 stands for all ranks.
const (
	SendTicket ActionKind = iota // Body to Rank as the ticket of Seq
	SendPlan                     // Body to Rank as the plan that it lacks for Seq
	Acquire                      // Planes from the controller; Granted follows
	Release                      // Planes to the controller
	Await                        // until Plane has reached Epoch; Reached follows
	Vacate                       // Ports must release their circuits: Plane moves from Epoch to Target; Vacated follows
	Schedule                     // the moves of Agreed for Shape on Planes, which stand at Standing; Scheduled follows
	SetTimer                     // Timer expires after After
	StopTimer                    // Timer does not expire
	Fail                         // the communicator, with Err
	Inform                       // the log of Text
	Warn                         // the log of Text
)

// Action is something to be done. Fields that its kind does not name are zero.
type Action struct {
	Kind     ActionKind
	Rank     int
	Seq      uint64
	Body     []byte
	Planes   planeset.Set
	Plane    int
	Epoch    uint32
	Target   circuit.Permutation // of ports
	Ports    []int
	Agreed   *planning.Agreed
	Shape    calls.Shape
	Standing []ticket.Plane
	Timer    Timer
	After    time.Duration
	Err      error
	Text     string
}

// View is what the leader has last heard of planes. Its methods answer at once.
type View interface {
	// State returns a plane's epoch and map of ports, and why it is out of service.
	State(plane int) (epoch uint32, ports circuit.Permutation, err error)
	// Waiting says what the next switch of a plane waits for.
	Waiting(plane int) string
}

// Book is the plans that the leader knows; [planning.Book] is one.
type Book interface {
	Version() uint32
	Row(s calls.Shape, use planeset.Set, maps []circuit.Permutation) (planning.Row, error)
	Demand(d *planning.Demand, maps []circuit.Permutation) (*plans.Plan, error)
	Encoded(id planning.ID) ([]byte, error)
}
