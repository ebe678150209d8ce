package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"lightpath/docs/schema"
)

func newSchemaCommand() *cobra.Command {
	return &cobra.Command{
		Use:       "schema NAME",
		Short:     "Print the JSON Schema of a file format",
		Long:      "Prints the JSON Schema of a file format: " + strings.Join(schema.Names(), ", ") + ".",
		ValidArgs: schema.Names(),
		Args:      cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			text, err := schema.Get(args[0])
			if err != nil {
				return fmt.Errorf("%w; it is one of %s", err, strings.Join(schema.Names(), ", "))
			}
			_, err = os.Stdout.Write(text)
			return err
		},
	}
}
