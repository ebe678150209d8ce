package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/cobra"
)

// TestStopped: a signal gives the status 128 + its number and one line, with a result or without;
// a server that puts things in order ends with 0.
func TestStopped(t *testing.T) {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(&Stopped{syscall.SIGTERM})
	for _, c := range []struct {
		err    error
		status int
		says   string
	}{
		{nil, 0, ""},
		{Deliver(ctx, "plan", func() error { return nil }), 143, "stopped by SIGTERM: the best plan until then"},
		{fmt.Errorf("planner: %w", context.Canceled), 143, "stopped by SIGTERM without a result"},
		{No(errors.New("infeasible")), 143, "stopped by SIGTERM: infeasible"},
	} {
		status, line := Verdict(ctx, c.err)
		if status != c.status || line != c.says {
			t.Errorf("%v: status %d, %q; want %d, %q", c.err, status, line, c.status, c.says)
		}
	}
	if err := Deliver(context.Background(), "plan", func() error { return nil }); err != nil {
		t.Errorf("no signal: %v", err)
	}
}

// TestTimeLimit: a command without a result by its time limit answers no.
func TestTimeLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cmd := &cobra.Command{}
		cmd.SetContext(t.Context())
		ctx, cancel := Limited(cmd, 3*time.Second)
		defer cancel()
		<-ctx.Done()
		status, line := Verdict(cmd.Context(), NoResult(ctx, fmt.Errorf("planner: %w", ctx.Err())))
		if status != ExitNo || line != "--time-limit: 3s are over, and there is no result" {
			t.Errorf("status %d, %q", status, line)
		}
	})
}

// TestComputingEnds: a command that only computes ends soon after a signal, even if it never checks its
// context. If it has a result by then, it may write it for as long as that takes.
func TestComputingEnds(t *testing.T) {
	defer func(old func(int)) { exit = old }(exit)
	for _, c := range []struct {
		name           string
		search, writes time.Duration
		exits          []int
	}{
		{"it never checks its context", time.Hour, 0, []int{130}},
		{"a large result", grace / 2, time.Hour, nil},
	} {
		var exits []int
		exit = func(status int) { exits = append(exits, status) }
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			cmd := Computing(&cobra.Command{RunE: func(cmd *cobra.Command, _ []string) error {
				cancel(&Stopped{syscall.SIGINT})
				time.Sleep(c.search)
				return Deliver(cmd.Context(), "plan", func() error { time.Sleep(c.writes); return nil })
			}})
			cmd.SetArgs(nil)
			cmd.SilenceErrors, cmd.SilenceUsage = true, true
			status, _ := Verdict(ctx, cmd.ExecuteContext(ctx))
			if status != 130 || !slices.Equal(exits, c.exits) {
				t.Errorf("%s: status %d, exits %v, want 130 and %v", c.name, status, exits, c.exits)
			}
		})
	}
}

// TestRepeatedSignal: a signal that comes twice, as from timeout(1), does not end the process.
func TestRepeatedSignal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		signals := make(chan os.Signal, 1)
		var reset atomic.Bool
		ctx, cancel := context.WithCancelCause(context.Background())
		go watch(signals, cancel, func() { reset.Store(true) })
		signals <- syscall.SIGTERM
		synctest.Wait()
		if StoppedBy(ctx) == nil || reset.Load() {
			t.Errorf("after the first signal: %v, the next one ends the process: %v", context.Cause(ctx), reset.Load())
		}
		time.Sleep(repetition)
		synctest.Wait()
		if !reset.Load() {
			t.Error("no signal ends the process")
		}
	})
}
