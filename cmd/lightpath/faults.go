package main

import (
	"errors"
	"os"

	"github.com/spf13/cobra"

	"lightpath/bench/faults"
)

func newFaultsCommand() *cobra.Command {
	var only string
	var asJSON, markdown bool
	cmd := &cobra.Command{
		Use:   "faults",
		Short: "Break a fabric on this host in every way, and show what ranks and operators see",
		Long: `Builds small fabrics with planes in the kernel, one after the other, runs rank processes through
libnccl.so.2 with a controller, breaks something each time (ranks, controllers, planes, switches), and
prints what is seen, how soon the ranks have an error or go on, and what was lost. Exits with 1 where a
fault is not handled as it must be. Needs root; takes about two minutes, and leaves nothing behind.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if asJSON && markdown {
				return errors.New("--json and --markdown: one of them is enough")
			}
			if err := needRoot(); err != nil {
				return err
			}
			worker, err := siblingFile("bin", "lightpath-rank")
			if err != nil {
				return err
			}
			results, failed := faults.Run(cmd.Context(), &faults.Options{
				Lightpath: selfPath(), Worker: worker, Only: only, Progress: progressLine(isTerminal(os.Stderr)),
			})
			if results == nil {
				return failed
			}
			switch {
			case asJSON:
				err = printJSON(results)
			case markdown:
				err = faults.WriteMarkdown(os.Stdout, results)
			default:
				err = faults.Write(os.Stdout, results)
			}
			if failed != nil {
				failed = no(failed)
			}
			return errors.Join(err, failed)
		},
	}
	cmd.Flags().StringVar(&only, "only", "", "play the scenarios whose names contain this")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().BoolVar(&markdown, "markdown", false, "print a Markdown table")
	return cmd
}
