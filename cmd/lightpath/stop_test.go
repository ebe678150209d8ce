package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
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
	cancel(&stopped{syscall.SIGTERM})
	for _, c := range []struct {
		err    error
		status int
		says   string
	}{
		{nil, 0, ""},
		{cutShort(ctx, "plan"), 143, "stopped by SIGTERM: the best plan until then"},
		{fmt.Errorf("planner: %w", context.Canceled), 143, "stopped by SIGTERM without a result"},
		{no(errors.New("infeasible")), 143, "stopped by SIGTERM: infeasible"},
	} {
		status, line := verdict(ctx, c.err)
		if status != c.status || line != c.says {
			t.Errorf("%v: status %d, %q; want %d, %q", c.err, status, line, c.status, c.says)
		}
	}
	if err := cutShort(context.Background(), "plan"); err != nil {
		t.Errorf("no signal: %v", err)
	}
}

// TestTimeLimit: a command without a result by its time limit answers no.
func TestTimeLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cmd := &cobra.Command{}
		cmd.SetContext(t.Context())
		ctx, cancel := limited(cmd, 3*time.Second)
		defer cancel()
		<-ctx.Done()
		status, line := verdict(cmd.Context(), noResult(ctx, fmt.Errorf("planner: %w", ctx.Err())))
		if status != exitNo || line != "--time-limit: 3s are over, and there is no result" {
			t.Errorf("status %d, %q", status, line)
		}
	})
}

// TestComputingEnds: a command that only computes ends soon after a signal though it does not look
// at its context.
func TestComputingEnds(t *testing.T) {
	ended := make(chan int, 1)
	defer func(old func(int)) { exit = old }(exit)
	exit = func(status int) { ended <- status }
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		cmd := computing(&cobra.Command{Run: func(*cobra.Command, []string) {
			cancel(&stopped{syscall.SIGINT})
			time.Sleep(time.Hour)
		}})
		cmd.SetArgs(nil)
		if err := cmd.ExecuteContext(ctx); err != nil {
			t.Fatal(err)
		}
		if len(ended) != 1 || <-ended != 130 {
			t.Error("the command went on for an hour")
		}
	})
}

// TestComputesOnly: every command that plans, simulates or draws ends within grace.
func TestComputesOnly(t *testing.T) {
	for _, path := range []string{"plan solve", "plan cache warm", "sim", "figure", "schedule show", "topology delta plan", "bench"} {
		cmd, _, err := newRoot().Find(strings.Fields(path))
		if err != nil {
			t.Fatal(err)
		}
		marked := false
		for ; cmd != nil; cmd = cmd.Parent() {
			marked = marked || cmd.PersistentPreRun != nil
		}
		if want := path != "bench"; marked != want {
			t.Errorf("%s: marked as computing: %v", path, marked)
		}
	}
}
