package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"lightpath/cmd/lightpath/cli"
)

// TestFabricVariable: every command that reads a fabric file by --fabric also reads LIGHTPATH_FABRIC.
func TestFabricVariable(t *testing.T) {
	exceptions := []string{
		"lightpath ocs emulate", // a test device must not follow kernel planes unasked
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
		t.Setenv(cli.FabricVariable, "of-the-variable.yaml")
		if c.PreRun == nil || !strings.Contains(flag.Usage, cli.FabricVariable) {
			t.Errorf("%s does not read %s", c.CommandPath(), cli.FabricVariable)
			return
		}
		c.PreRun(c, nil)
		if got := flag.Value.String(); got != "of-the-variable.yaml" {
			t.Errorf("%s: --fabric is %q, want the file of the variable", c.CommandPath(), got)
		}
	}
	walk(lightpath())
	if found < 10 {
		t.Errorf("%d commands with --fabric, want at least 10", found)
	}
}
