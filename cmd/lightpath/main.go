// Command lightpath plans, times, demonstrates and inspects collectives over optical
// circuit switches.
//
// Layer: top. It parses arguments and prints; the work is done by bench, shim, plans,
// collectives and ocsctl.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"lightpath/shim"
)

// Exit statuses: 0 done; 1 the answer is no (infeasible, wrong results, unhealthy); 2 bad
// usage or input.
const (
	exitNo    = 1
	exitUsage = 2
)

// errNo marks an answer of "no": the command worked, and the result is not what the user
// hoped for.
var errNo = errors.New("")

// no wraps an error so that the process exits with status 1.
func no(err error) error { return fmt.Errorf("%w%w", errNo, err) }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:]))
}

func run(ctx context.Context, args []string) int {
	root := newRoot()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errNo):
		fmt.Fprintln(os.Stderr, "lightpath:", err)
		return exitNo
	default:
		fmt.Fprintln(os.Stderr, "lightpath:", err)
		return exitUsage
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
		newPlanCommand(),
		newSimCommand(),
		newBenchCommand(),
		newDemoCommand(),
		newRunCommand(),
		newOCSDCommand(),
		newDoctorCommand(),
		newSchemaCommand(),
		newScheduleCommand(),
		newFigureCommand(),
		newOCSCommand(),
		newFabricCommand(),
		newFaultsCommand(),
		newTopoCommand(),
		newTopologyCommand(),
		newRanksCommand(),
	)
	explainUsage(root)
	return root
}
