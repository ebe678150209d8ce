package ocsd

import (
	"github.com/spf13/cobra"

	"lightpath/cmd/lightpath/cli/clitest"
	"lightpath/cmd/lightpath/fabric"
	"lightpath/cmd/lightpath/ocs"
	"lightpath/cmd/lightpath/planning"
)

// lightpath runs the commands of this room, of operators, of fabric files and of planners.
var lightpath = clitest.Of(New, operator, fabric.New, planning.New)

// operator returns the commands of operators, with the emulator of this room among them.
func operator() *cobra.Command {
	c := ocs.New()
	c.AddCommand(NewEmulate())
	return c
}
