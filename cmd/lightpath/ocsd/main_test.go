package ocsd

import (
	"github.com/spf13/cobra"

	"lightpath/cmd/lightpath/cli/clitest"
	"lightpath/cmd/lightpath/fabric"
	"lightpath/cmd/lightpath/ocs"
	"lightpath/cmd/lightpath/planning"
)

// lightpath is the commands of this room, and those that use or make what it serves.
var lightpath = clitest.Of(New, operator, fabric.New, planning.New)

// operator is the commands of operators, with those of this room among them.
func operator() *cobra.Command {
	c := ocs.New()
	c.AddCommand(NewEmulate())
	return c
}
