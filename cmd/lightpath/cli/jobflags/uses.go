package jobflags

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// uses lists the flags that have an effect on files, by their format.
var uses = map[string][]string{
	"flight": {},
	"job":    {},
	"chakra": {"gpus-per-pod", "bandwidth", "scale-up"},
	"simai":  {"gpus-per-pod", "bandwidth", "scale-up", "gpus", "etp", "algorithm"},
	"aicb":   {"gpus-per-pod", "bandwidth", "scale-up", "gpus", "etp", "algorithm", "forward-us", "backward-us"},
}

// CheckUses returns an error if a flag of a command that reads files of the given format has no effect on them. Flags
// in always have an effect on all formats. An unknown format is no error here.
func CheckUses(cmd *cobra.Command, format string, always ...string) (err error) {
	used, known := uses[format]
	if !known {
		return nil
	}
	cmd.Flags().Visit(func(given *pflag.Flag) {
		if err == nil && cmd.InheritedFlags().Lookup(given.Name) == nil && !slices.Contains(used, given.Name) &&
			!slices.Contains(always, given.Name) {
			err = fmt.Errorf("--%s has no effect on files of --format %s", given.Name, format)
		}
	})
	return err
}
