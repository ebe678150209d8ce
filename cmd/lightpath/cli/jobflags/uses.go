package jobflags

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Formats are the formats of files that [Import] reads.
var Formats = []string{"simai", "aicb", "chakra"}

// uses lists the flags that have an effect on files of these formats.
var uses = map[string][]string{
	"chakra": {"gpus-per-pod", "bandwidth", "scale-up"},
	"simai":  {"gpus-per-pod", "bandwidth", "scale-up", "gpus", "etp", "algorithm"},
	"aicb":   {"gpus-per-pod", "bandwidth", "scale-up", "gpus", "etp", "algorithm", "forward-us", "backward-us"},
}

// CheckUses returns an error if a command reads no files of a format, or if one of its flags has no effect on them.
// Flags in always have an effect on all formats, the others on those of [Formats] only.
func CheckUses(cmd *cobra.Command, formats []string, format string, always ...string) (err error) {
	if !slices.Contains(formats, format) {
		return fmt.Errorf("--format: %q is none of %s", format, strings.Join(formats, ", "))
	}
	cmd.Flags().Visit(func(given *pflag.Flag) {
		if err == nil && cmd.InheritedFlags().Lookup(given.Name) == nil && !slices.Contains(uses[format], given.Name) &&
			!slices.Contains(always, given.Name) {
			err = fmt.Errorf("--%s has no effect on files of --format %s", given.Name, format)
		}
	})
	return err
}
