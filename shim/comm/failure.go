package comm

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"lightpath/shim/control"
	"lightpath/shim/errdefs"
	"lightpath/shim/result"
	"lightpath/shim/status"
)

// failure is the first error of a communicator. It is never reset.
type failure struct {
	begun atomic.Bool // a goroutine is about to set err
	err   atomic.Pointer[error]
	done  chan struct{} // closed when err is set
	told  chan struct{} // closed when the leader has told all ranks of a failure
	heard sync.Once     // closes told
	mu    sync.Mutex
	wake  []func()
	// untold tells the other ranks of a failure from before the control network worked. [Core.Join] does that.
	untold func()
}

// FailedChan is closed when the communicator has failed.
func (c *Core) FailedChan() <-chan struct{} { return c.failure.done }

// OnFailure registers wake, which is called when the communicator fails. wake must not block.
func (c *Core) OnFailure(wake func()) {
	c.failure.mu.Lock()
	c.failure.wake = append(c.failure.wake, wake)
	c.failure.mu.Unlock()
}

// fail records the first failure and wakes everything that waits on this rank. It calls tell first, which tells the
// other ranks: a process may end as soon as its call returns. Before the control network works, it leaves tell to Join.
func (c *Core) fail(err error, tell func()) {
	f := &c.failure
	if !f.begun.CompareAndSwap(false, true) {
		return
	}
	f.mu.Lock()
	joined := c.Joined()
	if !joined {
		f.untold = tell
	}
	f.mu.Unlock()
	if tell != nil && joined {
		tell()
	}
	for _, h := range c.allHooks() {
		if h.Failed != nil {
			h.Failed(err)
		}
	}
	f.err.Store(&err)
	c.Turn.shut()
	close(f.done)
	c.life.cancel()
	f.mu.Lock()
	for _, wake := range f.wake {
		wake()
	}
	f.mu.Unlock()
	if joined {
		c.Log.Warn("comm %#x rank %d: %v", c.ID, c.Rank, err)
	} else {
		c.Log.Warn("communicator not made: %v", err)
	}
}

// Spread fails the communicator here and, if err is its first failure, on all ranks.
func (c *Core) Spread(err error) {
	kind := result.Of(err)
	if kind == result.Timeout {
		err = c.withStopped(err)
	}
	// The rank or plane that such an error names may only have waited for a plane that has failed.
	outside := kind == result.Timeout || kind == result.RemoteError || kind == result.SystemError
	if outside && !errors.Is(err, errdefs.ErrAborted) && c.Joined() {
		if text := c.Above.Verdict(); text != "" {
			err = fmt.Errorf("shim: %s; %w", text, err)
		}
	}
	c.fail(err, func() {
		class, text := result.Encode(err)
		m := &control.Message{Kind: control.MsgPoison, Arg: class, Body: []byte(text)}
		if c.Rank == 0 {
			c.Star.Broadcast(m, -1)
		} else if err := c.Star.ToLeader(m); err != nil {
			c.tellRanks(m)
		} else {
			go c.awaitRelay(m)
		}
	})
}

// Fail is [Core.Spread]. It returns the communicator's first failure: err or an earlier one.
func (c *Core) Fail(err error) error {
	if errors.Is(err, control.ErrUnsent) && c.Joined() {
		c.AwaitCause()
	}
	c.Spread(err)
	<-c.failure.done // an earlier failure may still be on its way to the other ranks
	return c.AsyncError()
}

// AwaitCause waits up to a second for the failure of another rank, which arrives through the leader. It waits in
// parts: if this process was stopped, one part ends at once, and the failure is read during the next.
func (c *Core) AwaitCause() {
	part := time.NewTicker(time.Second / 10)
	defer part.Stop()
	for range 10 {
		select {
		case <-c.failure.done:
			return
		case <-c.Star.EveryoneLeft():
			return
		case <-part.C:
		}
	}
}

// IsEcho reports whether another rank's failure may cause this error here, because that rank has freed its resources.
func IsEcho(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, io.EOF) || errors.Is(err, syscall.EPIPE) ||
		errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ECONNRESET)
}

// withStopped adds to a time-out which ranks of this host are stopped. The awaited rank may itself have waited for one
// of them.
func (c *Core) withStopped(err error) error {
	if !c.Joined() {
		return err
	}
	me := &c.Table[c.Rank]
	for i := range c.Table {
		h := &c.Table[i]
		if h.Host == me.Host && h.PIDs == me.PIDs && h.PID != me.PID && status.ProcessAnswer(h.PID) == status.Stopped {
			err = fmt.Errorf("%w; the process of %s is stopped", err, h.Where())
		}
	}
	return err
}

// failedElsewhere handles the failure of another rank. The leader forwards it to all ranks. The rank that has failed
// learns thereby that the others know.
func (c *Core) failedElsewhere(m *control.Message) {
	c.fail(result.Decode(m), func() {
		if c.Rank == 0 {
			c.Star.Broadcast(m, -1)
		}
	})
	c.failure.heard.Do(func() { close(c.failure.told) })
}

// awaitRelay makes sure that a failure that this rank has sent to the leader reaches the other ranks. If the leader
// ends before it has forwarded the failure, this rank tells them.
func (c *Core) awaitRelay(m *control.Message) {
	select {
	case <-c.failure.told:
		return
	case <-c.life.released:
		return
	case <-c.Star.EveryoneLeft():
	}
	select {
	case <-c.failure.told: // it was read before the end of the connection
	default:
		c.tellRanks(m)
	}
}
