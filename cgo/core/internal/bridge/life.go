package bridge

import (
	"errors"
	"fmt"
	"sync/atomic"

	"lightpath/shim"
	"lightpath/shim/comm"
	"lightpath/shim/errdefs"
	"lightpath/shim/membership"
	"lightpath/shim/path/foreign"
	"lightpath/shim/path/host"
)

// InitArgs describes a communicator to make, as struct lp_init does, with the parent's handle.
type InitArgs struct {
	shim.InitArgs
	How        membership.How // 0: from no other communicator
	Parent     uint64
	Color, Key int
	Exclude    []int
	Abort      bool
	HasID      bool
}

// resolve finds the parent.
func (a *InitArgs) resolve() (shim.InitArgs, error) {
	args := a.InitArgs
	if a.How == 0 {
		return args, nil
	}
	parent, err := lookup(a.Parent)
	if err != nil {
		return args, err
	}
	args.From = &membership.Origin{
		Parent: parent, How: a.How, Color: a.Color, Key: a.Key, Exclude: a.Exclude, Abort: a.Abort, Ranks: a.Ranks,
	}
	if a.HasID {
		args.From.ID = &a.ID
	}
	if args.Name == "" {
		args.Name = parent.Name
	}
	return args, nil
}

// Init makes communicators, all or none, and returns their handles: 0 for a rank that gets none from a split. With
// [errdefs.ErrInProgress] the handles are good, and the communicators are being made.
func Init(args []InitArgs) ([]uint64, error) {
	resolved := make([]shim.InitArgs, len(args))
	for i := range args {
		var err error
		if resolved[i], err = args[i].resolve(); err != nil {
			return nil, err
		}
	}
	made, result := shim.Init(resolved)
	if result != nil && !errors.Is(result, errdefs.ErrInProgress) {
		return nil, result
	}
	handles := make([]uint64, len(made))
	for i, c := range made {
		if c == nil {
			continue
		}
		var err error
		if handles[i], err = comms.Add(c); err == nil {
			if result == nil {
				open(handles[i], c)
			}
			continue
		}
		for _, h := range handles[:i] {
			comms.Remove(h)
		}
		for _, c := range made {
			if c != nil {
				err = errors.Join(err, c.Abort())
			}
		}
		return nil, err
	}
	return handles, result
}

// Interpose makes another library execute the collectives on streams of communicators.
func Interpose(handles []uint64, lib foreign.Library) error {
	made := make([]*shim.Comm, len(handles))
	for i, h := range handles {
		var err error
		if made[i], err = lookup(h); err != nil {
			return err
		}
	}
	return foreign.Attach(made, lib)
}

// gates are the front's gates, by the last bits of handles; none without a front. gated are the communicators that have
// them.
var (
	gates []comm.Gate
	gated []atomic.Pointer[shim.Comm]
)

// UseGates sets the gates. It must be called before any communicator is made.
func UseGates(g []comm.Gate) { gates, gated = g, make([]atomic.Pointer[shim.Comm], len(g)) }

// open opens a gate for c, if one is free and c can use it, so that C can make short calls.
func open(h uint64, c *shim.Comm) {
	if len(gates) == 0 {
		return
	}
	if i := h % uint64(len(gates)); host.UseGate(c, &gates[i], h) {
		gated[i].Store(c)
	}
}

// Action is something to do to a communicator.
type Action int

// The actions.
const (
	Finalize Action = iota // end it; its handle stays good until Destroy
	Destroy                // free it and its handle, unless something is still in progress
	Abort                  // end the calls in progress, and free it and its handle
	Revoke                 // end the calls in progress
	Suspend                // give back its memory
	Resume                 // end a suspension
)

// Act does an action.
func Act(h uint64, a Action) error {
	c, err := lookup(h)
	if err != nil {
		return err
	}
	switch a {
	case Finalize:
		return c.Finalize()
	case Destroy:
		if err := c.Busy(); err != nil {
			return err
		}
		return end(h, (*shim.Comm).Destroy)
	case Abort:
		return end(h, (*shim.Comm).Abort)
	case Revoke:
		return c.Revoke()
	case Suspend:
		return c.Suspend()
	case Resume:
		return c.Resume()
	}
	return fmt.Errorf("action %d: %w", a, errdefs.ErrInternal)
}

// end removes the handle before the communicator ends. So if two threads end it, one does, and the other gets an error.
func end(h uint64, how func(*shim.Comm) error) error {
	c := comms.Remove(h)
	if c == nil {
		_, err := lookup(h)
		return err
	}
	return how(c)
}

// GrowID makes the id by which new ranks join a communicator that grows from this one.
func GrowID(h uint64) (shim.UniqueID, error) {
	c, err := lookup(h)
	if err != nil {
		return shim.UniqueID{}, err
	}
	return membership.GrowID(c)
}

// Question is a question about a communicator.
type Question int

// The questions.
const (
	Ranks Question = iota
	Rank
	Device
	// Blocking may be asked at any time, the others only after the communicator is made.
	Blocking
)

// Ask answers a question.
func Ask(h uint64, q Question) (int32, error) {
	c, err := lookup(h)
	if err != nil {
		return 0, err
	}
	if q == Blocking {
		if !c.NonBlocking {
			return 1, nil
		}
		return 0, nil
	}
	if err := c.Busy(); err != nil {
		return 0, err
	}
	switch q {
	case Ranks:
		return int32(c.Ranks), nil
	case Rank:
		return int32(c.Rank), nil
	case Device:
		return int32(c.Device), nil
	}
	return 0, fmt.Errorf("question %d: %w", q, errdefs.ErrInternal)
}

// AsyncError returns the state of a communicator: the error that failed it, [errdefs.ErrInProgress], or nil. err is not
// nil if there is no such communicator.
func AsyncError(h uint64) (state, err error) {
	c, err := lookup(h)
	if err != nil {
		return nil, err
	}
	return c.State(), nil
}
