package cli

import (
	"fmt"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"lightpath/plans/fabric"
)

// FabricVariable names the fabric file of ranks, and of commands without --fabric.
const FabricVariable = "LIGHTPATH_FABRIC"

// FabricFlag adds --fabric to a command that reads a fabric file. Without the flag, path is the value of
// LIGHTPATH_FABRIC, unless the user gives one of the flags of instead.
func FabricFlag(cmd *cobra.Command, path *string, usage string, instead ...string) {
	fl := cmd.Flags()
	fl.StringVar(path, "fabric", "", fmt.Sprintf("%s (default %s)", usage, FabricVariable))
	cmd.PreRun = func(*cobra.Command, []string) {
		if slices.ContainsFunc(append([]string{"fabric"}, instead...), fl.Changed) {
			return
		}
		*path = os.Getenv(FabricVariable)
	}
}

// LoadFabric reads the fabric file of --fabric.
func LoadFabric(path string) (*fabric.Fabric, error) {
	if path == "" {
		return nil, fmt.Errorf("--fabric is required (or %s)", FabricVariable)
	}
	f, err := fabric.Load(path)
	if err != nil {
		return nil, fmt.Errorf("--fabric: %w", err)
	}
	return f, nil
}
