package cli

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// TestFabricVariableYields: --fabric and the flags instead of it come before the variable.
func TestFabricVariableYields(t *testing.T) {
	t.Setenv(FabricVariable, "of-the-variable.yaml")
	for _, c := range []struct{ args, want string }{
		{"", "of-the-variable.yaml"}, {"--fabric=a.yaml", "a.yaml"}, {"--fabric=", ""}, {"--name=x", ""},
	} {
		var path, name string
		cmd := &cobra.Command{Run: func(*cobra.Command, []string) {}}
		cmd.Flags().StringVar(&name, "name", "", "")
		FabricFlag(cmd, &path, "fabric file", "name")
		cmd.SetArgs(strings.Fields(c.args))
		if err := cmd.Execute(); err != nil || path != c.want {
			t.Errorf("%q: %q, %v; want %q", c.args, path, err, c.want)
		}
	}
}
