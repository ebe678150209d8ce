package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

// Every command has one context. SIGINT and SIGTERM end it, and so does the time limit of a command
// that has one (limited). A search returns its best result when its context ends. The command then
// writes that result and says why it ended early:
//
//   - time limit, with a result: status 0, and the line about the result says so;
//   - time limit, no result: status 1 (noResult);
//   - signal: status 128 + its number, with a result (cutShort) or without.
//
// A server ends by a signal: it puts things in order and returns nil, which is status 0.

// grace is how long a command that only computes may still run after a signal.
const grace = time.Second

// stopped is the cause of a context that a signal has ended.
type stopped struct{ signal syscall.Signal }

func (s *stopped) Error() string { return "stopped by " + unix.SignalName(s.signal) }

// status is the exit status of a command that the signal ended, as shells have it.
func (s *stopped) status() int { return 128 + int(s.signal) }

// stoppedBy returns the signal that ended ctx, nil where none did.
func stoppedBy(ctx context.Context) *stopped {
	var s *stopped
	errors.As(context.Cause(ctx), &s)
	return s
}

// watchSignals returns a context that the first SIGINT or SIGTERM ends, with a *stopped as its
// cause. The second one ends the process.
func watchSignals(parent context.Context) context.Context {
	ctx, cancel := context.WithCancelCause(parent)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		s := <-signals
		signal.Reset(os.Interrupt, syscall.SIGTERM)
		cancel(&stopped{s.(syscall.Signal)})
	}()
	return ctx
}

// exit ends the process; tests replace it.
var exit = os.Exit

// computing marks cmd and its subcommands as commands that only compute, so that nothing has to be
// put in order before they end. Such a command ends within grace of a signal, whatever it is doing.
func computing(cmd *cobra.Command) *cobra.Command {
	cmd.PersistentPreRun = func(cmd *cobra.Command, _ []string) {
		ctx := cmd.Context()
		context.AfterFunc(ctx, func() {
			s := stoppedBy(ctx)
			if s == nil {
				return
			}
			time.Sleep(grace)
			fmt.Fprintf(os.Stderr, "lightpath: %v without a result\n", s)
			exit(s.status())
		})
	}
	return cmd
}

// timeLimit is the cause of a context whose command is out of time.
type timeLimit struct{ after time.Duration }

func (l *timeLimit) Error() string { return fmt.Sprintf("--time-limit: %v are over", l.after) }

// limited returns the command's context, which ends after limit as well.
func limited(cmd *cobra.Command, limit time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(cmd.Context(), limit, &timeLimit{limit})
}

// cutShort returns nil, or where a signal has ended ctx an error that says that what, which the
// command has written, is its best result until then.
func cutShort(ctx context.Context, what string) error {
	if stoppedBy(ctx) == nil {
		return nil
	}
	return errors.New("the best " + what + " until then")
}

// noResult returns err, or where it says that the time limit of ctx is over a plainer error.
func noResult(ctx context.Context, err error) error {
	var l *timeLimit
	if errors.Is(err, context.DeadlineExceeded) && errors.As(context.Cause(ctx), &l) {
		return no(fmt.Errorf("%w, and there is no result", l))
	}
	return err
}
