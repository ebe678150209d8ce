package clock

import (
	"context"
	"iter"
	"time"
)

// Task is a function that runs in steps, on a clock that its caller moves. It is a coroutine of its caller: it runs only
// within Step and Stop, and only up to its next wait. The function must wait with this package alone: contexts of a task
// close no channel when their time comes. A Task is for one goroutine.
type Task struct {
	now     func() time.Time
	next    func() (time.Time, bool)
	stop    func()
	yield   func(time.Time) bool
	stopped bool
}

// NewTask returns a task of f that has not begun. The caller must call Stop in the end.
func NewTask(now func() time.Time, f func(ctx context.Context)) *Task {
	t := &Task{now: now}
	t.next, t.stop = iter.Pull(func(yield func(time.Time) bool) {
		t.yield = yield
		f(taskContext{context.Background(), t})
	})
	return t
}

// Step runs the function until it waits, and returns the time up to which it does. ok is false if the function has
// ended. A step before that time goes on waiting, unless the function was woken.
func (t *Task) Step() (next time.Time, ok bool) { return t.next() }

// Stop ends the task's context and runs the function to its end. A task that has not begun does not begin.
func (t *Task) Stop() {
	t.stopped = true
	t.stop()
}

// wait is Wait of a task.
func (t *Task) wait(ctx context.Context, at time.Time, wake <-chan struct{}) error {
	if earlier, ok := ctx.Deadline(); ok && earlier.Before(at) {
		at = earlier
	}
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		select {
		case <-wake:
			return nil
		default:
		}
		if !t.now().Before(at) {
			return nil
		}
		t.yield(at) // Stop makes it return false, and ends the context
	}
}

// taskContext is the context of a task's function.
type taskContext struct {
	context.Context
	task *Task
}

func (c taskContext) Done() <-chan struct{} { return done(c.Err()) }

func (c taskContext) Err() error {
	if c.task.stopped {
		return context.Canceled
	}
	return nil
}

// taskKey is the key of a context's task.
type taskKey struct{}

func (c taskContext) Value(key any) any {
	if key == (taskKey{}) {
		return c.task
	}
	return c.Context.Value(key)
}

// taskOf returns the task to which a context belongs; nil: none.
func taskOf(ctx context.Context) *Task {
	t, _ := ctx.Value(taskKey{}).(*Task)
	return t
}
