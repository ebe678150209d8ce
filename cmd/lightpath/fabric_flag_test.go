package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// TestFabricVariable: every command that reads a fabric file by --fabric also reads LIGHTPATH_FABRIC.
func TestFabricVariable(t *testing.T) {
	exceptions := []string{
		"lightpath ocs emulate",    // a test device must not follow kernel planes unasked
		"lightpath topology place", // --fabric is the name of a cluster
		// --fabric is an output:
		"lightpath topology delta plan", "lightpath topology lumos plan", "lightpath topology lumos place",
		"lightpath topology lumos rewire",
	}
	found := 0
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		for _, sub := range c.Commands() {
			walk(sub)
		}
		flag := c.Flags().Lookup("fabric")
		if flag == nil || slices.Contains(exceptions, c.CommandPath()) {
			return
		}
		found++
		t.Setenv(fabricVariable, "of-the-variable.yaml")
		if c.PreRun == nil || !strings.Contains(flag.Usage, fabricVariable) {
			t.Errorf("%s does not read %s", c.CommandPath(), fabricVariable)
			return
		}
		c.PreRun(c, nil)
		if got := flag.Value.String(); got != "of-the-variable.yaml" {
			t.Errorf("%s: --fabric is %q, want the file of the variable", c.CommandPath(), got)
		}
	}
	walk(newRoot())
	if found < 10 {
		t.Errorf("%d commands with --fabric, want at least 10", found)
	}
}

// TestFabricVariableYields: --fabric and the flags instead of it come before the variable.
func TestFabricVariableYields(t *testing.T) {
	t.Setenv(fabricVariable, "of-the-variable.yaml")
	for _, c := range []struct{ args, want string }{
		{"", "of-the-variable.yaml"}, {"--fabric=a.yaml", "a.yaml"}, {"--fabric=", ""}, {"--name=x", ""},
	} {
		var path, name string
		cmd := &cobra.Command{Run: func(*cobra.Command, []string) {}}
		cmd.Flags().StringVar(&name, "name", "", "")
		fabricFlag(cmd, &path, "fabric file", "name")
		cmd.SetArgs(strings.Fields(c.args))
		if err := cmd.Execute(); err != nil || path != c.want {
			t.Errorf("%q: %q, %v; want %q", c.args, path, err, c.want)
		}
	}
}
