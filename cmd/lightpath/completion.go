package main

import (
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"lightpath/bench/protocols"
	"lightpath/cmd/lightpath/cli/jobflags"
	"lightpath/cmd/lightpath/topology"
	"lightpath/collectives/schedule"
	"lightpath/plans"
	"lightpath/plans/fabric"
	"lightpath/plans/planner"
	"lightpath/plans/spectra"
)

// flagValues returns the values that a shell offers for flags of these names, which are words.
// args are the arguments of the command so far. nil: the command has another meaning for the flag.
var flagValues = map[string]func(c *cobra.Command, args []string) []string{
	"algorithm":  algorithmNames,
	"circuits":   circuitKinds,
	"collective": func(*cobra.Command, []string) []string { return schedule.CollectiveNames() },
	"planner":    func(*cobra.Command, []string) []string { return append(planner.Names(), spectra.Name) },
	"fault":      func(*cobra.Command, []string) []string { return protocols.FaultNames() },
	"data-plane": func(*cobra.Command, []string) []string { return []string{fabric.DataMemory, fabric.DataKernel} },
	"transport":  transportNames,
	"format":     formatNames,
	"model":      modelNames,
	"solver":     func(*cobra.Command, []string) []string { return topology.Solvers() },
}

// fileEndings are the endings of the files that flags of these names take.
var fileEndings = map[string][]string{
	"config": {"yaml", "yml"}, "core": {"json"}, "fabric": {"yaml", "yml"}, "in": {"json"}, "ocsd": {"yaml", "yml"},
	"plan": {"json"}, "steps": {"json"}, "topology": {"json"},
}

// formatNames returns the formats of jobs that a command imports.
func formatNames(c *cobra.Command, _ []string) []string {
	names := slices.Clone(jobflags.Formats)
	if c.HasParent() && c.Parent().Name() == "iteration" {
		names = append(names, "flight", "job")
	}
	return names
}

// modelNames returns the models of jobs; for topology delta exact, --model is a program.
func modelNames(c *cobra.Command, _ []string) []string {
	if c.Name() == "exact" {
		return nil
	}
	return jobflags.Models()
}

// circuitKinds returns the kinds of circuits; for topology delta simulate, --circuits are numbers.
func circuitKinds(c *cobra.Command, _ []string) []string {
	if c.Flags().Lookup("circuits").Value.Type() != "string" {
		return nil
	}
	return []string{string(plans.Simplex), string(plans.Duplex), string(plans.Interleaved)}
}

// transportNames returns the transports of a bench command.
func transportNames(c *cobra.Command, _ []string) []string {
	if c.Name() != "bench" {
		return []string{"shm", "tcp"}
	}
	return []string{"shm", "tcp", "rdma", "net", "inproc", "ebpf", "auto"}
}

// algorithmNames returns the algorithms of the collective that c's flag or argument names, or else of all collectives.
// Other commands than those of collectives have algorithms of their own.
func algorithmNames(c *cobra.Command, args []string) []string {
	var of string
	if f := c.Flags().Lookup("collective"); f != nil {
		of = f.Value.String()
	} else if c.Name() != "bench" {
		return nil
	} else if len(args) > 0 {
		of = args[0]
	}
	if collective, err := schedule.ParseCollective(of); err == nil {
		return schedule.Algorithms(collective)
	}
	var names []string
	for of := range schedule.NumCollectives {
		names = append(names, schedule.Algorithms(of)...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// completeFlags lets shells complete the values of the flags of c and of the commands below it.
func completeFlags(c *cobra.Command) {
	c.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
		var complete cobra.CompletionFunc
		if values, ok := flagValues[f.Name]; ok {
			complete = func(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
				return values(c, args), cobra.ShellCompDirectiveNoFileComp
			}
		} else if endings, ok := fileEndings[f.Name]; ok && f.Value.Type() == "string" {
			complete = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
				return endings, cobra.ShellCompDirectiveFilterFileExt
			}
		} else {
			return
		}
		if err := c.RegisterFlagCompletionFunc(f.Name, complete); err != nil {
			panic(err) // two registrations for one flag
		}
	})
	for _, sub := range c.Commands() {
		completeFlags(sub)
	}
}
