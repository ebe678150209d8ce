package circuits

import (
	"errors"
	"fmt"
	"time"

	"lightpath/plans/circuit"
	"lightpath/shim/calls"
	"lightpath/shim/comm"
	"lightpath/shim/control"
	"lightpath/shim/errdefs"
	"lightpath/shim/recorder"
	"lightpath/shim/stall"
	"lightpath/shim/ticket"
)

// Operation is one operation on planes with circuits, as this rank asks for it.
type Operation struct {
	Kind     control.Kind // MsgWant: a collective or script; MsgRow: a round
	Seq      uint64       // number of the collective or round
	Shape    *calls.Shape // of a collective; nil for a round
	Row      *ticket.Row  // of a round; nil for a collective
	Flight   uint64       // its number in the flight recorder
	Deadline time.Time    // of the group; zero: no deadline
	// Sent returns the number of sends to a rank that this rank has called; nil: not known.
	Sent func(rank int) uint64
}

// Ticket is the leader's decision for an operation of this rank. It is valid until the operation ends.
type Ticket struct {
	ticket.Ticket
	Seq   uint64 // number of the collective or round
	Holds []byte // the plan of a round, encoded
}

// Executor runs one operation between settle and done.
type Executor interface {
	// Bind prepares the operation for its ticket. It returns how the operation moves the planes, nil if the ticket sends
	// the operation to packet planes.
	Bind(t *Ticket) (Movement, error)
	// Drive runs the operation until it ends. If it returns an error, it has failed the communicator.
	Drive() error
}

// Movement says how an operation moves each plane: how often, and to which maps.
type Movement interface {
	Switches(plane int) uint32
	// Target returns the map after a move. The first move is 1.
	Target(plane int, move uint32) circuit.Permutation
}

// ListedMaps lists each plane's maps in order. The first is in force when the operation begins.
type ListedMaps [][]circuit.Permutation

// Switches implements [Movement].
func (l ListedMaps) Switches(plane int) uint32 { return uint32(max(1, len(l[plane])) - 1) }

// Target implements [Movement].
func (l ListedMaps) Target(plane int, move uint32) circuit.Permutation { return l[plane][move] }

// Run runs an operation: acquire -> settle -> execute -> done. A failure in any stage fails the communicator. The
// caller holds the communicator's turn.
func (p *Planes) Run(op *Operation, x Executor) error {
	t, err := p.acquire(op)
	if err != nil {
		return p.c.Fail(err)
	}
	began := time.Now()
	if err := p.awaitPlanes(); err != nil {
		return p.c.Fail(fmt.Errorf("shim: rank %d operation %d: %w", p.c.Rank, op.Seq, err))
	}
	if !t.OnPackets() {
		p.countSwitching(began)
	}
	moves, err := x.Bind(t)
	if err == nil && !t.OnPackets() {
		err = p.Machine.CheckMoves(moves)
	}
	if err != nil {
		return p.c.Fail(err)
	}
	if err := x.Drive(); err != nil {
		return err
	}
	if t.OnPackets() {
		p.Machine.Ended()
		return nil
	}
	done := p.Machine.Done(moves)
	if err := p.c.Star.ToLeader(&done); err != nil {
		return p.c.Fail(err)
	}
	p.noteMoving()
	return nil
}

// acquire requests an operation and waits for its ticket.
func (p *Planes) acquire(op *Operation) (*Ticket, error) {
	flight := recorder.Of(p.c)
	flight.Asked(op.Flight, false)
	p.Machine.cfg.Timeout = p.c.Cfg.Timeout // tests change it
	t, declined, seq, err := p.Machine.Begin(time.Now(), op)
	if declined {
		p.uses.declined.Add(1)
		err = p.decline(seq)
	}
	switch {
	case err != nil:
	case t != nil:
		p.uses.ahead.Add(1)
	default:
		p.uses.asked.Add(1)
		request := p.Machine.Ask(time.Now(), op)
		if err = p.c.Star.ToLeader(&request); err == nil {
			t, err = p.awaitTicket(op)
		}
	}
	if err != nil {
		p.Machine.answered() // other communicators do not wait for this one
		return nil, err
	}
	flight.Asked(op.Flight, true)
	return t, nil
}

// awaitTicket waits for the ticket of an operation, which the rank has asked for.
func (p *Planes) awaitTicket(op *Operation) (*Ticket, error) {
	for {
		answer, err := p.awaitAnswer(op)
		if err != nil {
			return nil, err
		}
		if _, ahead := ticket.IsAhead(answer.Body); !ahead {
			return p.Machine.Take(time.Now(), answer.Body)
		}
		t, declined, err := p.Machine.Claim(time.Now())
		if declined {
			err = p.decline(op.Seq)
		}
		if t != nil || err != nil {
			return t, err
		}
	}
}

// awaitAnswer waits for the leader's answer, or for a ticket ahead. Like a stalled operation, it tells the leader each
// [comm.Core.StallInterval] in which call it waits. So the leader finds mismatched calls and missing ranks.
func (p *Planes) awaitAnswer(op *Operation) (*control.Message, error) {
	c := p.c
	for {
		m, err := c.AwaitFor(control.MsgTicket, op.Seq, min(c.StallInterval(), time.Until(p.Machine.deadline)))
		if err == nil || !errors.Is(err, comm.ErrNothing) {
			return m, err
		}
		late := p.Machine.Overdue(time.Now(), op)
		switch {
		case late == nil && op.Shape == nil: // sends and receives have no number to compare between ranks
			stall.ReportFaults(c)
		case late == nil:
			stall.ReportShape(c, op.Seq, op.Shape)
			if op.Sent == nil {
				continue
			}
			if err := stall.Unsent(c, op.Seq, op.Shape.String(), op.Sent); err != nil {
				return nil, err
			}
		case op.Shape != nil && errors.Is(late, errdefs.ErrTimeout):
			stall.GiveUp(c, op.Seq, op.Shape.Signature(), op.Shape.String(), nil)
			if _, err := c.AwaitFor(control.MsgTicket, op.Seq, time.Second); err != nil && !errors.Is(err, comm.ErrNothing) {
				return nil, err
			}
			return nil, late
		default:
			return nil, late
		}
	}
}

// awaitPlanes waits until the planes are in the states of the ticket.
func (p *Planes) awaitPlanes() error {
	for {
		if settled, err := p.Machine.Settle(time.Now()); settled || err != nil {
			return err
		}
		if err := p.c.AsyncError(); err != nil {
			return err
		}
		time.Sleep(50 * time.Microsecond)
	}
}
