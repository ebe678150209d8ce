// Package membership creates communicators: by an id, or from another communicator by split, shrink or grow.
//
// Ranks with an id meet at its rendezvous. For a split or grow every rank of the parent sends a request to the parent's
// leader, which answers when all have asked. The ranks of a shrink meet at the rendezvous of their first, since the
// leader may be gone.
//
// Layer 6: it may import the rooms of circuits, since a shrink of a failed communicator gives back its ports. It
// knows no path.
package membership

import (
	"context"

	"lightpath/shim/bootstrap"
	"lightpath/shim/comm"
	"lightpath/shim/control"
	"lightpath/shim/settings"
)

// State is how one communicator is created, and the requests for its children.
type State struct {
	Args       Args
	requests   requests
	leader     leader // at the leader
	rendezvous *bootstrap.Rendezvous
	unwanted   bool
	number     uint64          // of the request at the parent
	before     <-chan struct{} // closed when this shrink has its turn; nil: at once
	over       func()          // ends this shrink's turn; nil without one
	meeting    <-chan struct{} // of this shrink, at its first rank: closed when all ranks have an answer; nil: not begun
	heard      bool            // other ranks know of this rank, or of its end
}

var slot = comm.NewSlot[State]()

// Of returns the membership of a communicator.
func Of(c *comm.Core) *State { return slot.Of(c) }

// New returns a communicator that has not begun to meet.
func New(args Args, cfg *settings.Config) *comm.Core {
	args.resolve()
	c := comm.New(comm.Identity{
		Rank: args.Rank, Ranks: args.Ranks, Name: args.Name, Device: args.Device, NonBlocking: args.NonBlocking, Cfg: cfg,
	})
	st := &State{Args: args, leader: leader{c: c}}
	if o := args.From; o != nil {
		st.unwanted = o.How == BySplit && o.Color == NoColor
	}
	slot.Set(c, st)
	c.HandleAtLeader(control.MsgMembership, st.leader.handle)
	c.Handle(control.MsgMembershipAnswer, st.requests.deliver)
	c.AddHooks(comm.Hooks{Closed: func() { st.rendezvous.Close() }})
	return c
}

// Parent returns the communicator that this one comes from, nil if there is none or this one has been made.
func (st *State) Parent() *comm.Core {
	if st.Args.From == nil {
		return nil
	}
	return st.Args.From.Parent
}

// Wanted reports whether this rank gets a communicator. A rank without a color takes part in a split and gets none.
func (st *State) Wanted() bool { return !st.unwanted }

// Begin counts the communicator among the children of its parent. The caller calls Begin in the order of calls.
func (st *State) Begin() {
	o := st.Args.From
	if o == nil {
		return
	}
	if st.Args.NonBlocking {
		o.Parent.Occupy()
	}
	q := &Of(o.Parent).requests
	if o.How == ByShrink {
		st.number, st.before, st.over = q.turn()
	} else {
		st.number = q.next()
	}
}

// Await waits for the turn of a communicator that has begun.
func (st *State) Await(ctx context.Context) error { return wait(ctx, st.before) }

// wait waits until a channel is closed; a nil channel is not waited for.
func wait(ctx context.Context, closed <-chan struct{}) error {
	if closed == nil {
		return nil
	}
	select {
	case <-closed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// EndTurn lets the next communicator begin.
func (st *State) EndTurn() {
	if st.over != nil {
		st.over()
	}
}

// End ends the work of [State.Begin]. It drops the parent, which otherwise would stay in memory after its end.
func (st *State) End() {
	if p := st.Parent(); p != nil && st.Args.NonBlocking {
		p.Vacate()
	}
	st.Args.From = nil
}

// Roles reports whether this rank may become the leader, and whether it may be the only rank. Before its ranks have
// met, a split knows neither.
func (st *State) Roles(c *comm.Core) (leader, alone bool) {
	if o := st.Args.From; o != nil && o.How == BySplit {
		return o.Color != NoColor, o.Color == NoColor || o.Parent.Ranks == 1
	}
	return c.Rank == 0, c.Ranks == 1
}

// OpenRendezvous opens the rendezvous at which ranks can meet this rank again, unless it will be the only rank.
func (st *State) OpenRendezvous(c *comm.Core) (rendezvous *bootstrap.Rendezvous, err error) {
	alone := c.Ranks == 1
	if o := st.Args.From; o != nil && o.How == BySplit {
		alone = o.Parent.Ranks == 1
	}
	if !alone {
		st.rendezvous, err = bootstrap.OpenRendezvous(c.Cfg)
	}
	return st.rendezvous, err
}
