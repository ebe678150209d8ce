package clock

import (
	"context"
	"iter"
	"time"
)

// Task is a function that runs in steps, on a clock that its caller moves. It is a coroutine of its caller: it runs
// only within Step and Stop, and only up to its next wait. The function must wait with this package alone: contexts of
// a task close no channel when their time comes. A Task is for one goroutine.
type Task struct {
	now   func() time.Time
	step  func() (struct{}, bool)
	stop  func()
	yield func(struct{}) bool

	until   time.Time       // of the current wait; the zero time before the task begins
	wake    <-chan struct{} // ends the current wait
	ended   bool
	stopped bool
}

// NewTask returns a task of f that has not begun. The caller must call Stop in the end.
func NewTask(now func() time.Time, f func(ctx context.Context)) *Task {
	t := &Task{now: now}
	t.step, t.stop = iter.Pull(func(yield func(struct{}) bool) {
		t.yield = yield
		f(taskContext{context.Background(), t})
		t.ended = true
	})
	return t
}

// Due reports whether the function goes on at the next step.
func (t *Task) Due() bool {
	return !t.ended && !t.stopped && (len(t.wake) > 0 || !t.now().Before(t.until))
}

// Until returns the time up to which the function waits, unless it is woken. ok is false if it has ended.
func (t *Task) Until() (at time.Time, ok bool) { return t.until, !t.ended && !t.stopped }

// Step runs the function up to its next wait. If the task is not due, it does nothing.
func (t *Task) Step() {
	if t.Due() {
		t.step()
	}
}

// Stop ends the task's context and runs the function until it returns. A task that has not begun does not begin.
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
		t.until, t.wake = at, wake
		t.yield(struct{}{}) // Stop makes it return, and ends the context
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
