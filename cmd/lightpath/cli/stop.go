package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

// Every command has one context. SIGINT and SIGTERM end it, and so does the time limit of a command
// that has one (Limited). A search returns its best result when its context ends. The command then
// writes that result and says why it ended early:
//
//   - time limit, with a result: status 0, and the line about the result says so;
//   - time limit, no result: status 1 (NoResult);
//   - signal: status 128 + its number, with a result (Deliver) or without.
//
// A server ends by a signal: it cleans up and returns nil, which is status 0.

// grace is how long a search may still run after a signal.
const grace = time.Second

// Stopped is the cause of a context that a signal has ended.
type Stopped struct{ Signal syscall.Signal }

func (s *Stopped) Error() string { return "stopped by " + unix.SignalName(s.Signal) }

// status is the exit status of a command that the signal ended, as shells have it.
func (s *Stopped) status() int { return 128 + int(s.Signal) }

// StoppedBy returns the signal that ended ctx, nil where none did.
func StoppedBy(ctx context.Context) *Stopped {
	var s *Stopped
	errors.As(context.Cause(ctx), &s)
	return s
}

// WatchSignals returns a context that the first SIGINT or SIGTERM ends, with a *Stopped as its
// cause. Another one ends the process, unless it is a repetition of the first.
func WatchSignals(parent context.Context) context.Context {
	ctx, cancel := context.WithCancelCause(parent)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go watch(signals, cancel, func() { signal.Reset(os.Interrupt, syscall.SIGTERM) })
	return ctx
}

// repetition is how long signals after the first one are ignored. timeout(1) sends each signal to its command and then
// to the process group, so the command gets two.
const repetition = 200 * time.Millisecond

func watch(signals <-chan os.Signal, cancel context.CancelCauseFunc, reset func()) {
	s := <-signals
	cancel(&Stopped{s.(syscall.Signal)})
	time.Sleep(repetition)
	reset()
}

// exit ends the process; tests replace it.
var exit = os.Exit

// hardEnd ends the process after a signal if the command does not end itself.
type hardEnd struct {
	mu         sync.Mutex
	delivering bool // the command has a result and writes it
}

// hardEndKey is the key of the *hardEnd in the context of a command that has one.
type hardEndKey struct{}

// Computing marks cmd and its subcommands as commands that only compute, so they need no cleanup. Such
// a command ends within grace of a signal, even if it never checks its context. A command that delivers
// a result by then is not interrupted. A second signal ends it.
func Computing(cmd *cobra.Command) *cobra.Command {
	cmd.PersistentPreRun = func(cmd *cobra.Command, _ []string) {
		ctx, end := cmd.Context(), &hardEnd{}
		cmd.SetContext(context.WithValue(ctx, hardEndKey{}, end))
		context.AfterFunc(ctx, func() {
			if s := StoppedBy(ctx); s != nil {
				time.Sleep(grace)
				end.run(s)
			}
		})
	}
	return cmd
}

func (e *hardEnd) run(s *Stopped) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.delivering {
		fmt.Fprintf(os.Stderr, "lightpath: %v without a result\n", s)
		exit(s.status())
	}
}

// Deliver calls write, which checks, draws and writes the result of a search, and returns its error.
// Large results may take longer than grace, so the hard end of the command no longer comes. If a signal
// has ended ctx, the error says that what, the result, is the best until then.
func Deliver(ctx context.Context, what string, write func() error) error {
	if end, ok := ctx.Value(hardEndKey{}).(*hardEnd); ok {
		end.mu.Lock()
		end.delivering = true
		end.mu.Unlock()
	}
	if err := write(); err != nil || StoppedBy(ctx) == nil {
		return err
	}
	return errors.New("the best " + what + " until then")
}

// timeLimit is the cause of a context whose command is out of time.
type timeLimit struct{ after time.Duration }

func (l *timeLimit) Error() string { return fmt.Sprintf("--time-limit: %v are over", l.after) }

// Limited returns the command's context, which ends after limit as well.
func Limited(cmd *cobra.Command, limit time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(cmd.Context(), limit, &timeLimit{limit})
}

// NoResult returns err. If err says that the time limit of ctx is over, it returns a plainer error.
func NoResult(ctx context.Context, err error) error {
	var l *timeLimit
	if errors.Is(err, context.DeadlineExceeded) && errors.As(context.Cause(ctx), &l) {
		return No(fmt.Errorf("%w, and there is no result", l))
	}
	return err
}

// EndedEarly returns the end of the line about a result: why the search ended early, where it did.
func EndedEarly(ctx context.Context) string {
	if ctx.Err() == nil {
		return ""
	}
	return "; the search ended early: " + context.Cause(ctx).Error()
}
