package main

import (
	"strings"

	"github.com/spf13/cobra"

	"lightpath/cmd/lightpath/cli"
	"lightpath/docs/schema"
)

func newSchemaCommand() *cobra.Command {
	return &cobra.Command{
		Use:       "schema NAME",
		Short:     "Print the JSON Schema of a file format",
		Long:      "Prints the JSON Schema of a file format: " + strings.Join(schema.Names(), ", ") + ".",
		ValidArgs: schema.Names(),
		Args:      cli.OneArgument,
		RunE: func(_ *cobra.Command, args []string) error {
			text, err := schema.Get(args[0])
			if err != nil {
				return err
			}
			return cli.WriteOutput("out", "-", text)
		},
	}
}
