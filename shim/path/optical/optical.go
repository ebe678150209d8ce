// Package optical runs calls on host memory over planes with circuits: each collective, and each group of sends and
// receives, under a ticket of the leader.
//
// Layer: a path, above session, circuits and arbiter/live. It decides nothing that only the leader may decide.
package optical

import (
	"lightpath/shim/calls"
	"lightpath/shim/circuits"
	"lightpath/shim/comm"
	"lightpath/shim/session"
)

// Path is a rank's state of calls over circuits, a [session.Carrier]. The communicator's turn guards it.
type Path struct {
	c          *comm.Core
	planes     *circuits.Planes
	session    *session.State
	Packet     map[calls.Shape]bool // shapes that no planner has a plan for
	collective collective           // in progress
	round      round                // in progress
}

var slot = comm.NewSlot[Path]()

// Of returns the path of a communicator, nil without circuits.
func Of(c *comm.Core) *Path { return slot.Of(c) }

// Attach has calls on host memory go over the circuits of the communicator, if it has some.
func Attach(c *comm.Core) {
	planes := circuits.Of(c)
	if planes == nil {
		return
	}
	o := &Path{c: c, planes: planes, session: session.Of(c), Packet: map[calls.Shape]bool{}}
	slot.Set(c, o)
	o.session.Carrier = o
}

// Run implements [session.Carrier]: it runs the calls of one communicator in their order, each under its ticket.
func (o *Path) Run(s *session.Session) error {
	for i := range s.Calls {
		if call := &s.Calls[i]; call.Comm != o.c || call.Kind.P2P() {
			continue
		}
		s.Restart(o.c)
		if err := o.runCollective(s, i); err != nil {
			return err
		}
	}
	s.Restart(o.c)
	first, err := s.Gather(o.c)
	switch {
	case err != nil || first < 0:
		return err
	case o.postsRounds():
		return o.runRound(s, first)
	}
	if err := s.BindMessages(o.c, first); err != nil {
		return err
	}
	return s.Drive()
}
