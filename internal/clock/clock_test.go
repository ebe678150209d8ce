package clock

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// TestBothClocks runs one function on the machine's clock and as a task: it sees the same.
func TestBothClocks(t *testing.T) {
	var told []time.Duration
	f := func(ctx context.Context) {
		began := Now(ctx)
		tell := func() { told = append(told, Now(ctx).Sub(began)) }
		if err := Sleep(ctx, time.Second); err != nil {
			t.Error(err)
		}
		tell()
		short, cancel := WithTimeout(ctx, time.Minute)
		defer cancel()
		shorter, cancel := WithTimeout(short, time.Hour)
		defer cancel()
		if err := Sleep(shorter, 2*time.Hour); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		tell()
		wake := make(chan struct{}, 1)
		wake <- struct{}{}
		if err := Wait(ctx, Now(ctx).Add(time.Hour), wake); err != nil {
			t.Error(err)
		}
		tell()
		ended, cancel := WithTimeout(ctx, time.Minute)
		cancel()
		if err := Sleep(ended, time.Hour); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		tell()
	}
	want := []time.Duration{time.Second, time.Second + time.Minute, time.Second + time.Minute, time.Second + time.Minute}
	synctest.Test(t, func(t *testing.T) { f(t.Context()) })
	if !slices.Equal(told, want) {
		t.Errorf("machine's clock: %v, want %v", told, want)
	}
	told = nil
	var now time.Time
	task := NewTask(func() time.Time { return now }, f)
	defer task.Stop()
	for next, ok := task.Until(); ok; next, ok = task.Until() {
		if now.Before(next) && task.Due() {
			t.Fatalf("due at %v, waits until %v", now, next)
		}
		now = next
		task.Step()
	}
	if !slices.Equal(told, want) {
		t.Errorf("task: %v, want %v", told, want)
	}
}

// TestStop: the function of a stopped task returns without waiting. A task that has not begun does not begin.
func TestStop(t *testing.T) {
	var errs []error
	now := func() time.Time { return time.Unix(5, 0) }
	f := func(ctx context.Context) {
		ctx, cancel := WithTimeout(ctx, time.Hour)
		defer cancel()
		for range 2 {
			errs = append(errs, Sleep(ctx, time.Second))
		}
		select {
		case <-ctx.Done():
		default:
			t.Error("the context has not ended")
		}
	}
	NewTask(now, f).Stop()
	if errs != nil {
		t.Error("it has begun")
	}
	task := NewTask(now, f)
	task.Step()
	task.Stop()
	if !slices.Equal(errs, []error{context.Canceled, context.Canceled}) {
		t.Errorf("sleep: %v", errs)
	}
}
