// Command lightpath plans, times, demonstrates and inspects collectives over optical
// circuit switches.
//
// Layer: top. Rooms of commands, a folder each, parse arguments and print results; cli is what they share. Packages
// bench, shim, plans, collectives and ocsctl do the work. This package joins the rooms: it holds the table of commands,
// and what is about all of them, such as examples, completion and the reference.
package main

import (
	"context"
	"os"

	"github.com/spf13/cobra"

	"lightpath/cmd/lightpath/bench"
	"lightpath/cmd/lightpath/cli"
	"lightpath/cmd/lightpath/fabric"
	"lightpath/cmd/lightpath/host"
	"lightpath/cmd/lightpath/iteration"
	"lightpath/cmd/lightpath/ocs"
	"lightpath/cmd/lightpath/ocsd"
	"lightpath/cmd/lightpath/planning"
	"lightpath/cmd/lightpath/topology"
	"lightpath/shim"
)

func main() { os.Exit(cli.Run(cli.WatchSignals(context.Background()), newRoot(), os.Args[1:])) }

func newRoot() *cobra.Command {
	switches := ocs.New()
	switches.AddCommand(ocsd.NewEmulate())
	root := cli.NewRoot(
		cli.Computing(planning.New()),
		cli.Computing(planning.NewSim()),
		cli.Computing(bench.NewSimulate()),
		bench.New(),
		bench.NewDemo(),
		host.NewRun(),
		ocsd.New(),
		host.NewDoctor(),
		cli.Computing(newSchemaCommand()),
		cli.Computing(planning.NewSchedule()),
		cli.Computing(bench.NewFigure()),
		switches,
		ocs.NewJobs(),
		fabric.New(),
		bench.NewFaults(),
		host.NewTopo(),
		cli.Computing(topology.New()),
		iteration.New(),
		host.NewRanks(),
		newReferenceCommand(),
	)
	root.Version = shim.Version
	addExamples(root, nil)
	completeFlags(root)
	return root
}
