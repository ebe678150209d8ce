package clock

import (
	"context"
	"time"
)

// Now returns the time of the context's clock.
func Now(ctx context.Context) time.Time {
	if t := taskOf(ctx); t != nil {
		return t.now()
	}
	return time.Now()
}

// Sleep waits for d. It returns the context's error if the context ends first.
func Sleep(ctx context.Context, d time.Duration) error { return Wait(ctx, Now(ctx).Add(d), nil) }

// Wait returns at time at, or earlier if it receives from wake. wake is nil, or a channel with a buffer that is never
// closed. Wait returns the context's error if the context ends first.
func Wait(ctx context.Context, at time.Time, wake <-chan struct{}) error {
	if t := taskOf(ctx); t != nil {
		return t.wait(ctx, at, wake)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	timer := time.NewTimer(time.Until(at))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-wake:
	case <-timer.C:
	}
	return nil
}

// WithTimeout is context.WithTimeout on the context's clock.
func WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	t := taskOf(ctx)
	if t == nil {
		return context.WithTimeout(ctx, d)
	}
	at := t.now().Add(d)
	if earlier, ok := ctx.Deadline(); ok && earlier.Before(at) {
		at = earlier
	}
	c := &deadlineContext{Context: ctx, task: t, at: at}
	return c, func() { c.canceled = true }
}

// deadlineContext is a context of a task with a deadline.
type deadlineContext struct {
	context.Context
	task     *Task
	at       time.Time
	canceled bool
}

func (c *deadlineContext) Deadline() (time.Time, bool) { return c.at, true }

func (c *deadlineContext) Done() <-chan struct{} { return done(c.Err()) }

func (c *deadlineContext) Err() error {
	switch err := c.Context.Err(); {
	case err != nil:
		return err
	case c.canceled:
		return context.Canceled
	case !c.task.now().Before(c.at):
		return context.DeadlineExceeded
	}
	return nil
}

// closed is the Done channel of contexts that have ended.
var closed = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

func done(err error) <-chan struct{} {
	if err != nil {
		return closed
	}
	return nil
}
