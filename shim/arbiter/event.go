package arbiter

import (
	"fmt"
	"time"

	"lightpath/ocsctl"
	"lightpath/plans"
	"lightpath/plans/circuit"
	"lightpath/shim/calls"
	"lightpath/shim/circuits"
	"lightpath/shim/control"
	"lightpath/shim/planeset"
	"lightpath/shim/planning"
	"lightpath/shim/ticket"
)

// EventKind is the kind of an event.
type EventKind uint8

// The events. Rank is the rank that sent a message.
const (
	Want      EventKind = iota // a rank wants the ticket of collective Seq, of Shape
	Done                       // a rank has ended the operation of ticket Seq; Standing is where it left the planes
	Row                        // a rank posts Row as round Seq
	PlanLack                   // a rank lacks plan Plan, for Seq
	Granted                    // the controller has granted Planes, or failed with Err
	Reached                    // Plane has reached the epoch of an Await, or failed with Err
	Expired                    // Timer has expired
	Recalled                   // a rank does not use the ticket ahead of Seq, or does (OK)
	Left                       // a rank has left the communicator
	Wanted                     // another request waits for some of Planes, or an operator has disabled them
	Contested                  // a rank that waits for planes has declined another communicator's ticket ahead on them
	Next                       // another communicator's operation has ended at the leader's port; this one's comes next
)

// Event is the input of one step. Fields that its kind does not name are zero.
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
	Timer    Timer
	Err      error
}

// Messages are the kinds of control messages that [Decode] reads.
var Messages = []control.Kind{control.MsgWant, control.MsgDone, control.MsgRow, control.MsgPlanReq,
	control.MsgRecalled, control.MsgContested}

// Decode returns the event of a rank's message to the leader of a communicator of so many ranks.
func Decode(m *control.Message, ranks int) (Event, error) {
	e, err := Event{Rank: int(m.From), Seq: m.Seq}, error(nil)
	switch m.Kind {
	case control.MsgWant:
		e.Kind = Want
		e.Shape, err = calls.DecodeShape(m.Body, ranks)
	case control.MsgDone:
		e.Kind, e.Standing = Done, new(ticket.Ticket)
		_, err = ticket.Decode(m.Body, e.Standing)
	case control.MsgRow:
		e.Kind = Row
		e.Row, err = ticket.DecodeRow(m.Body, e.Rank, ranks)
	case control.MsgRecalled:
		e.Kind, e.OK = Recalled, m.Arg == 1
	case control.MsgContested:
		e.Kind = Contested
	default:
		e.Kind = PlanLack
		if copy(e.Plan[:], m.Body) != len(e.Plan) || len(m.Body) != len(e.Plan) {
			err = fmt.Errorf("%w: plan request of %d bytes", control.ErrMessage, len(m.Body))
		}
	}
	return e, err
}

// Timer is one of the machine's timers.
type Timer uint8

// The timers.
const (
	IdleTimer  Timer = iota // then the machine gives idle planes back
	RoundTimer              // then the machine stops waiting for an open round
	NumTimers
)

// ActionKind is the kind of an action.
type ActionKind uint8

// The actions. Rank -1 stands for all ranks.
const (
	SendTicket ActionKind = iota // send Body to Rank as the ticket of Seq
	SendRecall                   // ask Rank whether it uses the ticket ahead of Seq
	SendPlan                     // send Body to Rank as the missing plan for Seq
	Acquire                      // request Lease from the controller; Granted follows
	Release                      // give Planes back to the controller
	Await                        // wait until Plane has reached Epoch; Reached follows
	Prepare                      // make all ranks agree to move Plane from Epoch to Target
	SetTimer                     // make Timer expire after After
	StopTimer                    // stop Timer
	Fail                         // fail the communicator with Err
	Inform                       // log Text
	Warn                         // log Text as a warning, at every level
)

// Action is one output of a step. Fields that its kind does not name are zero.
type Action struct {
	Kind   ActionKind
	Rank   int
	Seq    uint64
	Body   []byte
	Planes planeset.Set
	Lease  ocsctl.Lease // without its holder
	Plane  int
	Epoch  uint32
	Target circuit.Permutation // of ports
	Timer  Timer
	After  time.Duration
	Err    error
	Text   string
}

// View is the leader's latest knowledge of planes. Its methods do not block.
type View interface {
	circuits.View
	// Waiting returns what the next switch of a plane waits for.
	Waiting(plane int) string
}

// Book is the leader's known plans; [planning.Book] implements it.
type Book interface {
	Version() uint32
	Row(s calls.Shape, use planeset.Set, maps []circuit.Permutation) (planning.Row, error)
	Iteration(id uint64, steps func() []planning.Step) *planning.Iteration
	Demand(d *planning.Demand, maps []circuit.Permutation) (*plans.Plan, error)
	Encoded(id planning.ID) ([]byte, error)
}
