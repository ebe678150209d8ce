package main

import (
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"lightpath/collectives/schedule"
	"lightpath/plans"
	"lightpath/plans/planner"
)

// flagValues returns the values that a shell offers for flags of these names.
var flagValues = map[string]func(*cobra.Command) []string{
	"algorithm": algorithmNames,
	"circuits": func(*cobra.Command) []string {
		return []string{string(plans.Simplex), string(plans.Duplex), string(plans.Interleaved)}
	},
	"collective": func(*cobra.Command) []string { return collectiveNames() },
	"planner":    func(*cobra.Command) []string { return append(planner.Names(), "spectra") },
	"data-plane": func(*cobra.Command) []string { return []string{"memory", "kernel"} },
	"transport":  func(*cobra.Command) []string { return []string{"shm", "tcp", "rdma", "inproc", "ebpf", "auto"} },
	"format":     func(*cobra.Command) []string { return []string{"simai", "aicb", "chakra"} },
	"solver":     func(*cobra.Command) []string { return []string{"cbc", "highs", "gurobi"} },
}

// fileEndings are the endings of the files that flags of these names take.
var fileEndings = map[string][]string{
	"config": {"yaml", "yml"}, "core": {"json"}, "fabric": {"yaml", "yml"}, "in": {"json"}, "ocsd": {"yaml", "yml"},
	"plan": {"json"}, "steps": {"json"}, "topology": {"json"},
}

func collectiveNames() []string {
	var names []string
	for c := range schedule.NumCollectives {
		names = append(names, c.String())
	}
	return names
}

// algorithmNames returns the algorithms of the collective that c's flags name, or else of all collectives.
func algorithmNames(c *cobra.Command) []string {
	if f := c.Flags().Lookup("collective"); f != nil {
		if of, err := schedule.ParseCollective(f.Value.String()); err == nil {
			return schedule.Algorithms(of)
		}
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
			complete = func(c *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
				return values(c), cobra.ShellCompDirectiveNoFileComp
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
