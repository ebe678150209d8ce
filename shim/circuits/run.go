package circuits

import (
	"errors"
	"fmt"
	"time"

	"lightpath/collectives/exec"
	"lightpath/ocsctl"
	"lightpath/plans/circuit"
	"lightpath/shim/calls"
	"lightpath/shim/comm"
	"lightpath/shim/control"
	"lightpath/shim/errdefs"
	"lightpath/shim/planeset"
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

// Run runs an operation: acquire -> settle -> execute -> done. A failure in any stage fails the communicator. The
// caller holds the communicator's turn.
func (p *Planes) Run(op *Operation, x Executor) error {
	g, err := p.acquire(op)
	if err != nil {
		return p.c.Fail(err)
	}
	if err := p.settle(g); err != nil {
		return p.c.Fail(fmt.Errorf("shim: rank %d operation %d: %w", p.c.Rank, op.Seq, err))
	}
	moves, err := x.Bind(g)
	if err == nil {
		err = p.releaseOutside(g, moves)
	}
	if err != nil {
		return p.c.Fail(err)
	}
	if err := x.Drive(); err != nil || g.OnPackets() {
		return err
	}
	if err := p.done(g, moves); err != nil {
		return p.c.Fail(err)
	}
	return nil
}

// acquire requests an operation and waits for its ticket.
func (p *Planes) acquire(op *Operation) (*Grant, error) {
	m := &control.Message{Kind: op.Kind, Seq: op.Seq}
	if op.Shape != nil {
		m.Arg, p.request = uint64(op.Shape.Signature()), calls.AppendShape(p.request[:0], op.Shape)
	} else {
		p.request = ticket.AppendRow(p.request[:0], op.Row)
	}
	m.Body = p.request
	flight := recorder.Of(p.c)
	flight.Asked(op.Flight, false)
	if err := p.c.Star.ToLeader(m); err != nil {
		return nil, err
	}
	answer, err := p.await(op)
	if err != nil {
		return nil, err
	}
	flight.Asked(op.Flight, true)
	g := &p.grant
	g.Seq = op.Seq
	if g.Plan, err = ticket.Decode(answer.Body, &g.Ticket); err != nil {
		return nil, err
	}
	bad := len(g.Planes) != len(p.now)
	for j := range g.Use.Each() {
		bad = bad || g.Flags&ticket.Maps != 0 && len(g.Planes[j].Maps) != p.Ranks
	}
	if bad {
		return nil, fmt.Errorf("%w: ticket for %d planes of %d, or other ranks", control.ErrMessage,
			len(g.Planes), len(p.now))
	}
	return g, nil
}

// await waits for the ticket of an operation. Each [stall.Interval] it tells the leader in which call it waits, like a
// stalled operation. So the leader finds mismatched calls and missing ranks.
func (p *Planes) await(op *Operation) (*control.Message, error) {
	c := p.c
	deadline := time.Now().Add(c.Cfg.Timeout)
	own := !op.Deadline.IsZero() && op.Deadline.Before(deadline)
	if own {
		deadline = op.Deadline
	}
	for {
		m, err := c.AwaitFor(control.MsgTicket, op.Seq, min(stall.Interval(c.Cfg.Timeout), time.Until(deadline)))
		switch {
		case err == nil || !errors.Is(err, comm.ErrNothing):
			return m, err
		case time.Now().Before(deadline):
			if op.Shape != nil {
				stall.ReportShape(c, op.Seq, op.Shape)
				if op.Sent == nil {
					continue
				}
				if err := stall.Unsent(c, op.Seq, op.Shape.String(), op.Sent); err != nil {
					return nil, err
				}
			} else { // sends and receives have no number to compare between ranks
				stall.ReportFaults(c)
			}
		case own:
			return nil, fmt.Errorf("shim: rank %d operation %d: no ticket by the call's deadline: %w", c.Rank,
				op.Seq, exec.ErrDeadline)
		case op.Shape == nil:
			return nil, fmt.Errorf("shim: rank %d: no word from rank 0 on a group of sends and receives in %v: %w",
				c.Rank, c.Cfg.Timeout, errdefs.ErrTimeout)
		default:
			stall.GiveUp(c, op.Seq, op.Shape.Signature(), op.Shape.String(), nil)
			if _, err := c.AwaitFor(control.MsgTicket, op.Seq, time.Second); err != nil && !errors.Is(err, comm.ErrNothing) {
				return nil, err
			}
			return nil, fmt.Errorf("shim: rank %d operation %d: no ticket in %v: %w", c.Rank, op.Seq,
				c.Cfg.Timeout, errdefs.ErrTimeout)
		}
	}
}

// failureGrace is how long a rank may still see the failure of a plane that the leader has already been granted again.
// The controller informs each rank separately.
const failureGrace = time.Second

// settle adopts the planes' states in the ticket, and waits until the planes reach them. A plane may already be
// further on, by a switch of this operation in which the rank takes no part.
func (p *Planes) settle(g *Grant) error {
	began := time.Now()
	for j := range g.Use.Each() {
		want := &g.Planes[j]
		if g.Flags&ticket.Maps != 0 {
			p.now[j] = *want
		}
		if n := &p.now[j]; n.Epoch != want.Epoch || n.Hash != want.Hash {
			return fmt.Errorf("plane %d was left at epoch %d, the ticket says %d, or another map: %w",
				j, n.Epoch, want.Epoch, ocsctl.ErrUnknownMap)
		}
		for {
			there, err := p.there(j, want)
			if err != nil && (g.Flags&ticket.Maps == 0 || time.Since(began) > failureGrace) {
				return err
			}
			if there && err == nil {
				break
			}
			if err := p.c.AsyncError(); err != nil {
				return err
			}
			if time.Since(began) > p.c.Cfg.Timeout {
				return fmt.Errorf("plane %d is at epoch %d, the ticket says %d: %w",
					j, p.Controller.State(j).Epoch, want.Epoch, errdefs.ErrTimeout)
			}
			time.Sleep(50 * time.Microsecond)
		}
		p.base[j] = want.Epoch
	}
	return nil
}

// there reports whether a plane has reached the ticket's state or a later one.
func (p *Planes) there(plane int, want *ticket.Plane) (bool, error) {
	st := p.Controller.State(plane)
	if _, err := p.switches.Poll(plane); err != nil {
		return false, err
	}
	if st.Epoch == want.Epoch && RankMap(st.Map, p.Ports, p.member).Digest() != want.Hash {
		return false, fmt.Errorf("plane %d at epoch %d holds another map than the ticket's: %w", plane, st.Epoch,
			ocsctl.ErrUnknownMap)
	}
	return int32(st.Epoch-want.Epoch) >= 0, nil
}

// releaseOutside agrees for this rank's port to some switches that the program does not know. They are the first
// switch of each plane that takes a circuit to a port outside the communicator from this port. In maps of ranks the
// port is dark before and after such a switch. No data is in flight on this circuit: no call of this communicator has
// used it, and its last user has given the plane back.
func (p *Planes) releaseOutside(g *Grant, moves Movement) error {
	if g.OnPackets() {
		return nil
	}
	for j := range g.Use.Each() {
		if moves.Switches(j) == 0 || moves.Target(j, 1)[p.c.Rank] != circuit.Dark {
			continue
		}
		if to := p.Controller.State(j).Map[p.Controller.Port()]; to == circuit.Dark || p.member[to] >= 0 {
			continue
		}
		if err := p.switches.Post(j, p.base[j], moves.Target(j, 1)); err != nil {
			return fmt.Errorf("shim: rank %d: plane %d epoch %d: %w", p.c.Rank, j, p.base[j], err)
		}
	}
	return nil
}

// done records where the operation leaves the planes, and tells the leader.
func (p *Planes) done(g *Grant, moves Movement) error {
	for j := range g.Use.Each() {
		if n := moves.Switches(j); n > 0 {
			p.now[j] = ticket.At(p.now[j].Epoch+n, moves.Target(j, n))
		}
	}
	p.request = ticket.Append(p.request[:0], p.standing(g.Use))
	return p.c.Star.ToLeader(&control.Message{Kind: control.MsgDone, Seq: g.Seq, Body: p.request})
}

// standing returns the states of some planes. Rank 0 adds their maps, which the leader gets only there.
func (p *Planes) standing(use planeset.Set) *ticket.Ticket {
	t := &ticket.Ticket{Use: use, Planes: p.now}
	if p.c.Rank == 0 {
		t.Flags = ticket.Maps
	}
	return t
}
