package circuits

import (
	"fmt"
	"time"

	"lightpath/collectives/exec"
	"lightpath/ocsctl"
	"lightpath/plans/circuit"
	"lightpath/shim/calls"
	"lightpath/shim/control"
	"lightpath/shim/errdefs"
	"lightpath/shim/planeset"
	"lightpath/shim/ticket"
)

// View is a rank's latest knowledge of planes. Its methods do not block.
type View interface {
	// State returns a plane's epoch and map of ports, and the error if this rank can no longer use the plane. The caller
	// must not change the map.
	State(plane int) (epoch uint32, ports circuit.Permutation, err error)
}

// Config is the fixed input of a [Machine].
type Config struct {
	Rank    int
	Holder  uint64 // number of the communicator
	Places  *circuit.Placement
	Planes  int
	Timeout time.Duration // of tickets and planes
	Port    *Port         // nil: it has no other communicators
	// Declined tells the leader that the rank gives up a ticket ahead, since it waits for one of another communicator.
	// It must not block, nor call the machine.
	Declined func(seq uint64)
	// Contested tells the leader that planes for which the rank waits may be held by ranks that wait for this one. It
	// must not block, nor call the machine.
	Contested func()
}

// Machine decides a rank's side of operations on planes with circuits, in this order for each operation:
//
//	Begin, or Ask -> Take; Settle until the planes have reached the ticket's states -> Ports for each move -> Done
//
// It has no clock, socket or goroutine: callers tell the time, send its messages and posts, and wait. [Planes] does
// this in a job; a simulator does it in simulated time. In a loop of equal operations it does not allocate.
//
// Not safe for concurrent use, except for Offer, Recall, ReadMove, NextUser and OnNext.
type Machine struct {
	cfg  Config
	view View

	standing []ticket.Plane // epoch and map in which this communicator's operations leave each plane
	base     []uint32       // each plane's epoch when the operation in progress began
	last     []uint32       // each plane's epoch at the end of that operation, if it uses the plane

	ticket   Ticket       // of the operation in progress, or of the last one
	deadline time.Time    // of its ticket
	taken    time.Time    // when the ticket arrived
	unknown  planeset.Set // planes that have not been seen in the ticket's states

	port  *Port
	ahead ahead  // guarded by the port
	next  func() // likewise; see OnNext

	request []byte              // reused
	ranks   circuit.Permutation // reused: a map of ranks
	ports   circuit.Permutation // reused: a map of ports
}

// NewMachine returns a machine that has not used a plane yet.
func NewMachine(cfg Config, v View) *Machine {
	m := &Machine{cfg: cfg, view: v, standing: make([]ticket.Plane, cfg.Planes),
		base: make([]uint32, cfg.Planes), last: make([]uint32, cfg.Planes), port: cfg.Port}
	if m.port == nil {
		m.port = NewPort(0)
	}
	m.port.join(m)
	return m
}

// Base returns each plane's epoch at the beginning of the operation in progress.
func (m *Machine) Base() []uint32 { return m.base }

// Standing returns where operations of this communicator leave each plane. A plane may still be switching, since
// operations do not wait for the last reconfiguration of a plan. The caller must not change the result.
func (m *Machine) Standing() []ticket.Plane { return m.standing }

// Ticket returns the ticket of the operation in progress, or of the last one.
func (m *Machine) Ticket() *Ticket { return &m.ticket }

// Reached reports whether a plane has reached the state in which operations leave it, or a later one.
func (m *Machine) Reached(plane int) (bool, error) {
	epoch, _, err := m.view.State(plane)
	return int32(epoch-m.standing[plane].Epoch) >= 0, err
}

// Ask returns the request for a ticket, whose body is valid until Done.
func (m *Machine) Ask(at time.Time, op *Operation) control.Message {
	m.ticket.Seq, m.deadline = op.Seq, at.Add(m.cfg.Timeout)
	if !op.Deadline.IsZero() && op.Deadline.Before(m.deadline) {
		m.deadline = op.Deadline
	}
	q := control.Message{Kind: op.Kind, Seq: op.Seq}
	if op.Shape != nil {
		q.Arg, m.request = uint64(op.Shape.Signature()), calls.AppendShape(m.request[:0], op.Shape)
	} else {
		m.request = ticket.AppendRow(m.request[:0], op.Row)
	}
	q.Body = m.request
	return q
}

// Overdue returns the error of a rank that has waited too long for its ticket; nil: it continues to wait.
func (m *Machine) Overdue(at time.Time, op *Operation) error {
	rank := m.cfg.Rank
	switch {
	case at.Before(m.deadline):
		return nil
	case m.deadline.Equal(op.Deadline):
		return fmt.Errorf("shim: rank %d operation %d: no ticket by the call's deadline: %w", rank, op.Seq,
			exec.ErrDeadline)
	case op.Shape == nil:
		return fmt.Errorf("shim: rank %d: no word from rank 0 on a group of sends and receives in %v: %w", rank,
			m.cfg.Timeout, errdefs.ErrTimeout)
	}
	return fmt.Errorf("shim: rank %d operation %d: no ticket in %v: %w", rank, op.Seq, m.cfg.Timeout, errdefs.ErrTimeout)
}

// Take reads and checks the ticket of the operation in progress.
func (m *Machine) Take(at time.Time, body []byte) (*Ticket, error) {
	m.answered()
	return m.decode(at, body)
}

func (m *Machine) decode(at time.Time, body []byte) (t *Ticket, err error) {
	t = &m.ticket
	if t.Holds, err = ticket.Decode(body, &t.Ticket); err != nil {
		return nil, err
	}
	bad := len(t.Planes) != len(m.standing)
	for j := range t.Use.Each() {
		bad = bad || t.Flags&ticket.Maps != 0 && len(t.Planes[j].Maps) != len(m.cfg.Places.Ports())
	}
	if bad {
		return nil, fmt.Errorf("%w: ticket for %d planes of %d, or other ranks", control.ErrMessage,
			len(t.Planes), len(m.standing))
	}
	m.taken, m.unknown = at, t.Use
	return t, nil
}

// failureGrace is how long a rank may still see the failure of a plane that the leader has already been granted again.
// The controller informs each rank separately.
const failureGrace = time.Second

// Settle adopts the planes' states in the ticket, and reports whether the planes have reached them; false: they may
// still do so. A plane may already be further on, by a switch of this operation in which the rank takes no part.
func (m *Machine) Settle(at time.Time) (bool, error) {
	moved, waited := m.ticket.Flags&ticket.Maps != 0, at.Sub(m.taken)
	for j := range m.unknown.Each() {
		want := &m.ticket.Planes[j]
		if moved {
			m.standing[j] = *want
		}
		if n := &m.standing[j]; n.Epoch != want.Epoch || n.Hash != want.Hash {
			return false, fmt.Errorf("plane %d was left at epoch %d, the ticket says %d, or another map: %w",
				j, n.Epoch, want.Epoch, ocsctl.ErrUnknownMap)
		}
		epoch, err := m.check(j, want)
		switch {
		case err != nil && (!moved || waited > failureGrace):
			return false, err
		case err == nil && int32(epoch-want.Epoch) >= 0:
			m.base[j] = want.Epoch
			m.unknown = m.unknown.Without(j)
		case waited > m.cfg.Timeout:
			return false, fmt.Errorf("plane %d is at epoch %d, the ticket says %d: %w", j, epoch, want.Epoch,
				errdefs.ErrTimeout)
		default:
			return false, nil
		}
	}
	return true, nil
}

// check returns a plane's epoch. At the ticket's epoch the plane must hold the ticket's map.
func (m *Machine) check(plane int, want *ticket.Plane) (epoch uint32, err error) {
	epoch, ports, err := m.view.State(plane)
	if err == nil && epoch == want.Epoch && !m.holds(ports, want) {
		err = fmt.Errorf("plane %d at epoch %d holds another map than the ticket's: %w", plane, epoch,
			ocsctl.ErrUnknownMap)
	}
	return epoch, err
}

// holds reports whether a plane's map of ports has the circuits of a ticket.
func (m *Machine) holds(ports circuit.Permutation, want *ticket.Plane) bool {
	m.ranks = m.cfg.Places.Restrict(m.ranks[:0], ports)
	return m.ranks.Digest() == want.Hash
}

// CheckMoves returns an error if a plane has made more moves for the port than this operation makes. A rank that has
// not reached a controller for a while may have lost its planes to others. It must not take their moves for its own.
// The operation asks again with each epoch; see [Machine.CheckEpoch].
func (m *Machine) CheckMoves(moves Movement) error {
	for j := range m.ticket.Use.Each() {
		m.last[j] = m.base[j] + moves.Switches(j)
		epoch, _, _ := m.view.State(j)
		if int32(epoch-m.last[j]) > 0 {
			return m.moved(j, epoch)
		}
	}
	return nil
}

// CheckEpoch returns an error if a plane has an epoch that the operation in progress does not reach.
// Hot path: no allocation, no locks, no logging.
func (m *Machine) CheckEpoch(plane int, epoch uint32) error {
	if int32(epoch-m.last[plane]) <= 0 || !m.ticket.Use.Has(plane) {
		return nil
	}
	return m.moved(plane, epoch)
}

func (m *Machine) moved(plane int, epoch uint32) error {
	return fmt.Errorf("shim: rank %d: plane %d is at epoch %d, the operation moves it from epoch %d to %d: %w",
		m.cfg.Rank, plane, epoch, m.base[plane], m.last[plane], ocsctl.ErrUnknownMap)
}

// Ports turns a map of ranks into the map of ports to post, valid until the next call.
func (m *Machine) Ports(target circuit.Permutation) circuit.Permutation {
	m.ports = m.cfg.Places.Expand(m.ports[:0], target)
	return m.ports
}

// Done records where the operation leaves the planes, and that it has ended at the port. It returns the message to the
// leader, whose body is valid until the next Ask. Rank 0 adds the planes' maps, which the leader gets only there.
func (m *Machine) Done(moves Movement) control.Message {
	m.Ended()
	t := ticket.Ticket{Use: m.ticket.Use, Planes: m.standing}
	for j := range t.Use.Each() {
		if n := moves.Switches(j); n > 0 {
			m.standing[j] = ticket.At(m.standing[j].Epoch+n, moves.Target(j, n))
		}
	}
	if m.cfg.Rank == 0 {
		t.Flags = ticket.Maps
	}
	if next := m.NextUser(); next == Unknown || next == Theirs {
		t.Flags |= ticket.Elsewhere
	}
	m.request = ticket.Append(m.request[:0], &t)
	return control.Message{Kind: control.MsgDone, Seq: m.ticket.Seq, Body: m.request}
}
