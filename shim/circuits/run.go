package circuits

import (
	"errors"
	"fmt"
	"sync/atomic"
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

// Grant names the planes and the plan that an operation may use. It is valid until the operation ends.
type Grant struct {
	ticket.Ticket
	Seq  uint64
	Plan []byte // of a round
}

// Executor runs one operation between settle and done.
type Executor interface {
	// Bind prepares the operation for a grant. It returns how the operation moves the planes, nil for a grant on
	// packet planes.
	Bind(g *Grant) (Movement, error)
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

// Uses counts what operations of a rank have waited for.
type Uses struct {
	Ahead    uint64        // operations whose ticket was here before the call
	Asked    uint64        // operations whose ticket the rank had to ask for
	Declined uint64        // tickets that were here, for other calls
	Hidden   time.Duration // of switching between operations, while the job computed
	Exposed  time.Duration // of switching between operations, for which calls have waited
}

// uses is the state behind [Uses]. Calls write it, reports read it.
type uses struct {
	ahead, asked, declined atomic.Uint64
	hidden, exposed        atomic.Int64
	moving                 time.Time // when the last operation left planes that were still moving; zero: it has not
}

// Uses returns what the rank's operations have waited for.
func (p *Planes) Uses() Uses {
	u := &p.uses
	return Uses{u.ahead.Load(), u.asked.Load(), u.declined.Load(), time.Duration(u.hidden.Load()),
		time.Duration(u.exposed.Load())}
}

// left notes whether an operation leaves planes that still move to where the next operation begins.
func (p *Planes) left() {
	p.uses.moving = time.Time{}
	for j := range p.grant.Use.Each() {
		if reached, err := p.Reached(j); err == nil && !reached {
			p.uses.moving = time.Now()
			return
		}
	}
}

// settled counts the switching since the last operation. Of this, a call has waited from began on.
func (p *Planes) settled(began time.Time) {
	u := &p.uses
	if u.moving.IsZero() {
		return
	}
	waited := time.Since(began)
	whole := time.Duration(p.Template.ReconfigUS * float64(time.Microsecond))
	u.hidden.Add(int64(min(began.Sub(u.moving), max(whole-waited, 0))))
	u.exposed.Add(int64(waited))
	u.moving = time.Time{}
}

// Run runs an operation: acquire -> settle -> execute -> done. A failure in any stage fails the communicator. The
// caller holds the communicator's turn.
func (p *Planes) Run(op *Operation, x Executor) error {
	g, err := p.acquire(op)
	if err != nil {
		return p.c.Fail(err)
	}
	began := time.Now()
	if err := p.settle(); err != nil {
		return p.c.Fail(fmt.Errorf("shim: rank %d operation %d: %w", p.c.Rank, op.Seq, err))
	}
	if !g.OnPackets() {
		p.settled(began)
	}
	moves, err := x.Bind(g)
	if err == nil && !g.OnPackets() {
		err = p.Missed(moves)
	}
	if err != nil {
		return p.c.Fail(err)
	}
	if err := x.Drive(); err != nil {
		return err
	}
	if g.OnPackets() {
		p.Ended()
		return nil
	}
	done := p.Done(moves)
	if err := p.c.Star.ToLeader(&done); err != nil {
		return p.c.Fail(err)
	}
	p.left()
	return nil
}

// acquire requests an operation and waits for its ticket.
func (p *Planes) acquire(op *Operation) (*Grant, error) {
	flight := recorder.Of(p.c)
	flight.Asked(op.Flight, false)
	p.cfg.Timeout = p.c.Cfg.Timeout // tests change it
	g, declined, seq, err := p.Enter(time.Now(), op)
	if declined {
		p.uses.declined.Add(1)
		err = p.decline(seq)
	}
	switch {
	case err != nil:
	case g != nil:
		p.uses.ahead.Add(1)
	default:
		p.uses.asked.Add(1)
		request := p.Ask(time.Now(), op)
		if err = p.c.Star.ToLeader(&request); err == nil {
			g, err = p.await(op)
		}
	}
	if err != nil {
		p.answered() // other communicators do not wait for this one
		return nil, err
	}
	flight.Asked(op.Flight, true)
	return g, nil
}

// await waits for the grant of an operation.
func (p *Planes) await(op *Operation) (*Grant, error) {
	for {
		answer, err := p.awaitTicket(op)
		if err != nil {
			return nil, err
		}
		if _, ahead := ticket.IsAhead(answer.Body); !ahead {
			return p.Take(time.Now(), answer.Body)
		}
		g, declined, err := p.Claim(time.Now())
		if declined {
			err = p.decline(op.Seq)
		}
		if g != nil || err != nil {
			return g, err
		}
	}
}

// awaitTicket waits for the ticket of an operation. Like a stalled operation, it tells the leader each
// [comm.Core.StallInterval] in which call it waits. So the leader finds mismatched calls and missing ranks.
func (p *Planes) awaitTicket(op *Operation) (*control.Message, error) {
	c := p.c
	for {
		m, err := c.AwaitFor(control.MsgTicket, op.Seq, min(c.StallInterval(), time.Until(p.deadline)))
		if err == nil || !errors.Is(err, comm.ErrNothing) {
			return m, err
		}
		late := p.Overdue(time.Now(), op)
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

// settle waits until the planes are in the states of the ticket.
func (p *Planes) settle() error {
	for {
		if settled, err := p.Settle(time.Now()); settled || err != nil {
			return err
		}
		if err := p.c.AsyncError(); err != nil {
			return err
		}
		time.Sleep(50 * time.Microsecond)
	}
}
