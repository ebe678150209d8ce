package comm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"lightpath/shim/control"
	"lightpath/shim/errdefs"
	"lightpath/shim/status"
)

// Linger is how long a destroyed communicator keeps its connections for ranks that have not destroyed theirs. The
// leader keeps them until all ranks have left.
const Linger = 10 * time.Second

// LifeState is the stage of a communicator's life. Failure is separate from it.
type LifeState int32

// The states; see the drawing in the package comment.
const (
	Making LifeState = iota // its ranks have not all met
	Alive
	Suspended
	Finalized
	Destroyed
)

// life is the state of a communicator and of its background work.
type life struct {
	state    atomic.Int32
	joined   atomic.Bool        // the identity is final and the control network works
	pending  atomic.Int32       // operations in progress in the background
	revoked  atomic.Bool        // this rank has revoked the communicator
	ctx      context.Context    // for making the communicator; ends with its failure
	cancel   context.CancelFunc // of ctx
	endOnce  sync.Once
	ended    chan struct{} // closed when this rank makes no more calls
	once     sync.Once
	ending   chan struct{} // closed when messages are not handled in order any more
	released chan struct{} // closed when everything has been freed
}

// Hooks are a room's functions during the life and end of a communicator. nil functions are skipped. Rooms are called
// in the order in which they added hooks.
type Hooks struct {
	Check    func()          // look for an unreported failure
	Failed   func(err error) // the communicator fails with err; no waiter has been woken yet
	Forget   func()          // Suspend: free memory that calls keep for later calls; the turn is held
	Drain    func()          // wait until all launches have completed, or the communicator has failed
	Ending   func()          // the state is Destroyed; a call may still be inside
	Quiet    func()          // wait until this rank's sent data has left it; the turn is held
	Detach   func()          // no more calls follow: stop all use of this rank's memory; the turn is held
	Departed func()          // another rank has left (see [Core.Departures]); must not block
	Close    func()          // all ranks have left, or Release stops waiting: free what does not need the control network
	Closed   func()          // the control network has ended: free the rest

	Faults func(wait time.Duration) []status.Fault // see [Core.Faults]
}

// AddHooks adds the hooks of a room. It is called before the communicator is alive.
func (c *Core) AddHooks(h Hooks) {
	all := append(slices.Clone(c.allHooks()), h)
	c.hooks.Store(&all)
}

func (c *Core) allHooks() []Hooks {
	if p := c.hooks.Load(); p != nil {
		return *p
	}
	return nil
}

// each calls one hook of every room.
func (c *Core) each(hook func(h *Hooks) func()) {
	all := c.allHooks()
	for i := range all {
		if f := hook(&all[i]); f != nil {
			f()
		}
	}
}

// Faults returns the signs of faults that this rank sees now. It waits at most that long for the planes' controller.
func (c *Core) Faults(wait time.Duration) (all []status.Fault) {
	for _, h := range c.allHooks() {
		if h.Faults != nil {
			all = append(all, h.Faults(wait)...)
		}
	}
	return all
}

func drain(h *Hooks) func()  { return h.Drain }
func ending(h *Hooks) func() { return h.Ending }
func quiet(h *Hooks) func()  { return h.Quiet }
func detach(h *Hooks) func() { return h.Detach }

// Joined reports whether the ranks have met: the identity is final and the control network works.
func (c *Core) Joined() bool { return c.life.joined.Load() }

// Made reports whether the communicator has been made completely, so that its fields can be read.
func (c *Core) Made() bool {
	switch c.Life() {
	case Alive, Suspended, Finalized:
		return true
	}
	return false
}

// SetAlive ends the making of the communicator, unless it has been destroyed meanwhile.
func (c *Core) SetAlive() { c.life.state.CompareAndSwap(int32(Making), int32(Alive)) }

// Context ends when the making of the communicator fails.
func (c *Core) Context() context.Context { return c.life.ctx }

// Released is closed when the communicator has freed everything.
func (c *Core) Released() <-chan struct{} { return c.life.released }

// Unmade reports whether making the communicator has failed, so that it has neither ranks nor resources. The state is
// no longer Making.
func (c *Core) Unmade() bool {
	select {
	case <-c.life.released:
		return c.Life() == Alive
	default:
		return false
	}
}

// State returns the failure of the communicator. While background work is in progress, it returns
// [errdefs.ErrInProgress]. Revoking a communicator is no failure, unless it ends the making.
func (c *Core) State() error {
	if c.Life() == Making {
		return errdefs.ErrInProgress // also if making has failed: no call is possible before it ends
	}
	c.Check()
	err := c.AsyncError()
	switch {
	case err != nil && !c.Unmade() && (!c.Revoked() || !errors.Is(err, errdefs.ErrRevoked)):
		return err
	case c.Busy() != nil:
		return errdefs.ErrInProgress // also of an unmade communicator: its making is about to end
	case c.Unmade():
		return err
	}
	return nil
}

// Check looks for an unreported failure.
func (c *Core) Check() { c.each(func(h *Hooks) func() { return h.Check }) }

// Revoked reports whether this rank has revoked the communicator.
func (c *Core) Revoked() bool { return c.life.revoked.Load() }

// Busy returns the error of using a communicator whose last operation has not ended.
func (c *Core) Busy() error {
	if c.life.pending.Load() == 0 && c.Life() != Making {
		return nil
	}
	return fmt.Errorf("shim: comm is in use before ncclCommGetAsyncError has said that its last operation is complete: %w",
		errdefs.ErrInvalidArgument)
}

// TryOccupy counts a background operation if there is none yet.
func (c *Core) TryOccupy() bool { return c.life.pending.CompareAndSwap(0, 1) }

// Occupy counts a background operation. Vacate ends it.
func (c *Core) Occupy() { c.life.pending.Add(1) }

// Vacate ends a background operation.
func (c *Core) Vacate() { c.life.pending.Add(-1) }

// inBackground runs the rest of an operation: in the caller, or on a new goroutine for a nonblocking communicator.
func (c *Core) inBackground(f func() error) error {
	if !c.NonBlocking {
		return f()
	}
	c.Occupy()
	go func() {
		if err := f(); err != nil {
			c.Spread(err)
		}
		c.Vacate()
	}()
	return errdefs.ErrInProgress
}

// whoami returns this rank's name for messages, also before it has a number.
func (c *Core) whoami() string {
	if !c.Joined() {
		return "a rank of a communicator that is being made"
	}
	return fmt.Sprintf("rank %d", c.Rank)
}

// Leave says goodbye to the control network.
func (c *Core) Leave() {
	if c.Joined() {
		d := control.Departure{Rank: c.Rank}
		d.Collectives, d.Calls = c.Above.CountCalls()
		if !c.Failed() { // else a call may be in progress, and all ranks fail anyway
			d.Messages = c.Above.CountMessages()
		}
		c.Star.Leave(d)
	}
}

// end tells rooms that this rank makes no more calls.
func (c *Core) end() {
	c.life.endOnce.Do(func() {
		close(c.life.ended)
		c.each(ending)
	})
}

// Ended is closed when this rank has destroyed or aborted the communicator.
func (c *Core) Ended() <-chan struct{} { return c.life.ended }

// Release frees everything when all ranks have left, or after d, or when the communicator has failed. Idempotent.
func (c *Core) Release(d time.Duration) {
	c.life.once.Do(func() {
		defer close(c.life.released)
		defer c.life.cancel()
		c.end()
		if c.Star != nil && d > 0 {
			timer := time.NewTimer(d)
			defer timer.Stop()
			over := timer.C
			if c.Rank == 0 {
				over = nil // the leader serves the others as long as there are some
			}
			select {
			case <-c.Star.EveryoneLeft():
			case <-c.failure.done:
			case <-over:
			}
		}
		close(c.life.ending)
		c.each(func(h *Hooks) func() { return h.Close })
		if c.Star != nil {
			if c.Rank == 0 && !c.Failed() {
				<-c.Star.EveryoneLeft() // until then, a rank may need the leader to learn of another rank's failure
			}
			c.Star.Close()
		}
		c.each(func(h *Hooks) func() { return h.Closed })
		c.Log.Close()
	})
}

// Finalize ends the communicator. It waits until every call has completed, also on streams, and tells the other ranks
// that this rank makes no more calls. Later calls are refused. The caller must still call Destroy. A revoked
// communicator has nothing to finish.
func (c *Core) Finalize() error {
	if c.Busy() == nil {
		c.each(drain)
	}
	busy := c.Busy()
	switch {
	case busy != nil:
		return busy
	case c.Revoked():
		return fmt.Errorf("shim: finalize: %w: %w", errdefs.ErrRevoked, errdefs.ErrInvalidUsage)
	case c.Life() == Suspended:
		return errSuspended
	case !c.life.state.CompareAndSwap(int32(Alive), int32(Finalized)):
		return fmt.Errorf("shim: finalize: %w", errdefs.ErrDestroyed)
	}
	return c.inBackground(func() error {
		c.Turn.Lock()
		defer c.Turn.Unlock()
		c.each(quiet)
		c.Leave()
		return c.AsyncError()
	})
}

// Destroy frees the communicator. It waits for a call in progress on another thread. During a background operation it
// frees nothing and returns the error of [Core.State]. Destroy does not wait for other ranks. It keeps resources that
// they need in the background until they have left too. The second Destroy returns [errdefs.ErrDestroyed].
func (c *Core) Destroy() error {
	for busy := c.Busy(); busy != nil && c.Life() != Destroyed; busy = c.Busy() {
		if !c.Failed() {
			return busy
		}
		time.Sleep(time.Millisecond) // the operation has failed, and is about to end
	}
	c.each(drain)
	was := LifeState(c.life.state.Swap(int32(Destroyed)))
	if was == Destroyed {
		return fmt.Errorf("shim: destroy: %w", errdefs.ErrDestroyed)
	}
	c.end()
	c.Turn.Lock()
	defer c.Turn.Unlock()
	if was != Finalized {
		c.each(quiet)
		c.Leave()
	}
	c.Turn.keep()
	c.each(detach)
	go c.Release(Linger)
	return nil
}

// Abort fails the communicator on every rank and frees it on this rank. Every blocked call on any thread returns
// [errdefs.ErrAborted], also a call that makes the communicator.
func (c *Core) Abort() error {
	if c.Life() == Destroyed {
		return fmt.Errorf("shim: abort: %w", errdefs.ErrDestroyed)
	}
	// Before the state changes: an operation that begins now fails with the abort, not because of the state.
	c.Spread(fmt.Errorf("shim: %s aborted: %w", c.whoami(), errdefs.ErrAborted))
	if LifeState(c.life.state.Swap(int32(Destroyed))) == Destroyed {
		return fmt.Errorf("shim: abort: %w", errdefs.ErrDestroyed)
	}
	c.end()
	c.Leave()
	c.Turn.Lock() // the blocked call has returned
	defer c.Turn.Unlock()
	c.Turn.keep()
	c.each(detach)
	go c.Release(0)
	return nil
}

// Revoke stops all work on the communicator, on every rank. Afterwards it can only be split, shrunk, destroyed and
// aborted. Revoke returns when no call of this rank is in progress.
func (c *Core) Revoke() error {
	switch c.Life() {
	case Finalized, Destroyed:
		return fmt.Errorf("shim: revoke: %w", errdefs.ErrDestroyed)
	}
	c.life.revoked.Store(true)
	c.Spread(fmt.Errorf("shim: %s revoked the communicator: %w", c.whoami(), errdefs.ErrRevoked))
	return c.inBackground(func() error {
		c.Turn.Lock()
		defer c.Turn.Unlock()
		return nil
	})
}

// Suspend frees memory that calls keep for later calls. Calls are refused until [Core.Resume].
func (c *Core) Suspend() error {
	if err := c.Usable(); err != nil {
		return err
	}
	if !c.life.state.CompareAndSwap(int32(Alive), int32(Suspended)) {
		return fmt.Errorf("shim: suspend: %w", errdefs.ErrDestroyed)
	}
	c.Turn.Lock()
	defer c.Turn.Unlock()
	c.each(func(h *Hooks) func() { return h.Forget })
	return nil
}

// Resume ends a suspension.
func (c *Core) Resume() error {
	if !c.life.state.CompareAndSwap(int32(Suspended), int32(Alive)) {
		return fmt.Errorf("shim: resume: comm is not suspended: %w", errdefs.ErrInvalidUsage)
	}
	return nil
}
