// Command lightpath plans, times, demonstrates and inspects collectives over optical
// circuit switches.
//
// Layer: top. It parses arguments and prints results. Packages bench, shim, plans, collectives and ocsctl do the work.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"lightpath/shim"
)

// Exit statuses: 0 done; 1 the answer is no (infeasible, wrong results, unhealthy); 2 bad
// usage or input. A command that a signal ended has 128 + its number, see stop.go.
const (
	exitNo    = 1
	exitUsage = 2
)

// errNo marks the answer "no": the command worked, and the result is negative.
var errNo = errors.New("")

// no wraps an error so that the process exits with status 1.
func no(err error) error { return fmt.Errorf("%w%w", errNo, err) }

func main() { os.Exit(run(watchSignals(context.Background()), os.Args[1:])) }

func run(ctx context.Context, args []string) int {
	root := newRoot()
	root.SetArgs(args)
	status, line := verdict(ctx, root.ExecuteContext(ctx))
	if line != "" {
		fmt.Fprintln(os.Stderr, "lightpath:", line)
	}
	return status
}

// verdict returns the exit status of a command that returned err, and its line on standard error.
func verdict(ctx context.Context, err error) (status int, line string) {
	switch s := stoppedBy(ctx); {
	case err == nil:
		return 0, ""
	case s != nil && errors.Is(err, context.Canceled):
		return s.status(), s.Error() + " without a result"
	case s != nil:
		return s.status(), fmt.Sprintf("%v: %v", s, err)
	case errors.Is(err, errNo):
		return exitNo, err.Error()
	default:
		return exitUsage, err.Error()
	}
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:           "lightpath",
		Short:         "Collectives over optical circuit switches",
		Version:       shim.Version,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.AddCommand(
		computing(newPlanCommand()),
		computing(newSimCommand()),
		computing(newSimulateCommand()),
		newBenchCommand(),
		newDemoCommand(),
		newRunCommand(),
		newOCSDCommand(),
		newDoctorCommand(),
		computing(newSchemaCommand()),
		computing(newScheduleCommand()),
		computing(newFigureCommand()),
		newOCSCommand(),
		newJobsCommand(),
		newFabricCommand(),
		newFaultsCommand(),
		newTopoCommand(),
		computing(newTopologyCommand()),
		computing(newIterationCommand()),
		newRanksCommand(),
		newReferenceCommand(),
	)
	explainUsage(root)
	addExamples(root, nil)
	completeFlags(root)
	return root
}
