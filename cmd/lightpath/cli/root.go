package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"unicode"

	"github.com/spf13/cobra"
)

// Exit statuses: 0 done; 1 the answer is no (infeasible, wrong results, unhealthy); 2 bad
// usage or input. A command that a signal ended has 128 + its number, see stop.go.
const (
	ExitNo    = 1
	ExitUsage = 2
)

// ErrNo marks the answer "no": the command worked, and the result is negative.
var ErrNo = errors.New("")

// No wraps an error so that the process exits with status 1.
func No(err error) error { return fmt.Errorf("%w%w", ErrNo, err) }

// Run runs the command of a tree that args name, and returns its exit status. It prints the error of the command.
func Run(ctx context.Context, root *cobra.Command, args []string) int {
	root.SetArgs(args)
	failed.Store(nil)
	err := root.ExecuteContext(ctx)
	if e := failed.Load(); e != nil && err == nil {
		err = fmt.Errorf("standard output: %w", *e)
	}
	status, line := Verdict(ctx, err)
	if line != "" {
		fmt.Fprintln(os.Stderr, "lightpath:", Printable(line, "\n\t"))
	}
	return status
}

// Printable makes text that a switch or a controller may have written safe for a terminal. The characters in keep stay.
func Printable(text, keep string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) || strings.ContainsRune(keep, r) {
			return r
		}
		return '?'
	}, text)
}

// NoIf returns err as the answer "no" if negative says that it is one.
func NoIf(err error, negative func(error) bool) error {
	if negative(err) {
		return No(err)
	}
	return err
}

// Infeasible returns the answer "no" of a command that checks a plan. With --json it also prints the reason.
func Infeasible(reason error, asJSON bool) error {
	if !asJSON {
		return No(reason)
	}
	return errors.Join(No(reason), PrintJSON(map[string]any{"feasible": false, "reason": reason.Error()}))
}

// Verdict returns the exit status of a command that returned err, and its line on standard error.
func Verdict(ctx context.Context, err error) (status int, line string) {
	switch s := StoppedBy(ctx); {
	case err == nil:
		return 0, ""
	case s != nil && errors.Is(err, context.Canceled):
		return s.status(), s.Error() + " without a result"
	case s != nil:
		return s.status(), fmt.Sprintf("%v: %v", s, err)
	case errors.Is(err, ErrNo):
		return ExitNo, err.Error()
	default:
		return ExitUsage, err.Error()
	}
}

// NewRoot returns a tree of commands. It answers a misspelled command or flag with the nearest name.
func NewRoot(commands ...*cobra.Command) *cobra.Command {
	root := &cobra.Command{
		Use:   "lightpath",
		Short: "Collectives over optical circuit switches",
		Long: `Collectives over optical circuit switches, by a libnccl.so.2 and these commands.
Begin with lightpath doctor, which checks this machine, and lightpath demo, which needs no root and no GPU.`,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetOut(Stdout)
	root.AddCommand(commands...)
	explainUsage(root)
	return root
}
