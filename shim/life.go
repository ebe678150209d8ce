package shim

import (
	"fmt"
	"time"

	"lightpath/shim/errdefs"
)

// Finalize ends the communicator: every call has completed when it returned, or is on a stream
// and waited for, and the other ranks learn that this one will make no more. Calls are
// refused afterwards; Destroy is still due. A revoked communicator has nothing to finish.
func (c *Comm) Finalize() error {
	if c.Busy() == nil {
		c.drain() // while launches may still run
	}
	switch {
	case c.Busy() != nil:
		return c.Busy()
	case c.revoked.Load():
		return fmt.Errorf("shim: finalize: %w: %w", errdefs.ErrRevoked, errdefs.ErrInvalidUsage)
	case !c.life.CompareAndSwap(int32(alive), int32(finalized)):
		return fmt.Errorf("shim: finalize: %w", errdefs.ErrDestroyed)
	}
	return c.inBackground(func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.light.quiesce(linger)
		c.leave()
		return c.AsyncError()
	})
}

// Destroy frees the communicator. A call in progress on another thread is waited for; where
// one is in the background the communicator stays, and the error is that of [Comm.State].
// It does not wait for other ranks: what they still need of this one is kept in the
// background until they have left too. Destroying twice is [errdefs.ErrDestroyed].
func (c *Comm) Destroy() error {
	if lifeState(c.life.Load()) != destroyed && c.Busy() != nil {
		return c.Busy()
	}
	c.drain() // while launches may still run
	was := lifeState(c.life.Swap(int32(destroyed)))
	if was == destroyed {
		return fmt.Errorf("shim: destroy: %w", errdefs.ErrDestroyed)
	}
	registrations.drop(c)
	c.unwatch()
	c.mu.Lock()
	defer c.mu.Unlock()
	if was != finalized {
		c.light.quiesce(linger)
		c.leave()
	}
	c.side.end()
	c.mu.keep()
	c.departCircuits()
	c.kin.end()
	go c.release(linger)
	return nil
}

// departWait is how long the leader's Destroy waits for the other ranks, whose tickets it issues.
const departWait = 50 * time.Millisecond

// departCircuits takes leave of the controller before a process may end: one that ends without is
// a rank that died, to the controller and to its operator. Nothing is on its way here any more.
func (c *Comm) departCircuits() {
	if c.light == nil || c.AsyncError() != nil {
		return
	}
	if c.leader != nil {
		select {
		case <-c.star.EveryoneLeft():
			c.leader.close()
		case <-time.After(departWait):
			return // release comes to it
		}
	}
	c.light.close()
}

// Abort fails the communicator on every rank and frees it here: whatever is blocked on any
// thread, its making included, returns [errdefs.ErrAborted].
func (c *Comm) Abort() error {
	if lifeState(c.life.Swap(int32(destroyed))) == destroyed {
		return fmt.Errorf("shim: abort: %w", errdefs.ErrDestroyed)
	}
	registrations.drop(c)
	c.unwatch()
	c.spread(fmt.Errorf("shim: %s aborted: %w", c.whoami(), errdefs.ErrAborted))
	c.kin.end()
	c.leave()
	c.mu.Lock() // the blocked call has left
	defer c.mu.Unlock()
	c.side.end()
	c.mu.keep()
	go c.release(0)
	return nil
}

// Revoke stops what is under way on the communicator, on every rank. Afterwards it can be
// split, shrunk, destroyed and aborted, and nothing else. It returns when no call of this
// rank is left inside.
func (c *Comm) Revoke() error {
	switch lifeState(c.life.Load()) {
	case finalized, destroyed:
		return fmt.Errorf("shim: revoke: %w", errdefs.ErrDestroyed)
	}
	c.revoked.Store(true)
	c.spread(fmt.Errorf("shim: %s revoked the communicator: %w", c.whoami(), errdefs.ErrRevoked))
	return c.inBackground(func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		return nil
	})
}

// Suspend gives back the memory that calls have left for the next ones. Until Resume
// calls are refused.
func (c *Comm) Suspend() error {
	if err := c.usable(); err != nil {
		return err
	}
	if !c.life.CompareAndSwap(int32(alive), int32(suspended)) {
		return fmt.Errorf("shim: suspend: %w", errdefs.ErrDestroyed)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forget()
	return nil
}

// Resume ends a suspension.
func (c *Comm) Resume() error {
	if !c.life.CompareAndSwap(int32(suspended), int32(alive)) {
		return fmt.Errorf("shim: resume: comm is not suspended: %w", errdefs.ErrInvalidUsage)
	}
	return nil
}
