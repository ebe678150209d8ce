package bench

import (
	"errors"

	"github.com/spf13/cobra"

	"lightpath/bench/faults"
	"lightpath/cmd/lightpath/cli"
)

// NewFaults returns the command "faults".
func NewFaults() *cobra.Command {
	var only string
	var asJSON, markdown bool
	cmd := &cobra.Command{
		Use:   "faults",
		Short: "Break a fabric on this host in every way, and show what ranks and operators see",
		Long: `Builds small fabrics with planes in the kernel, one after the other. On each it runs rank processes with
libnccl.so.2 and a controller, and breaks a rank, a controller, a plane or a switch. It prints what users
see, when the ranks have an error or continue, and which frames were lost. Exits with 1 if a fault is not
handled as required. Needs root; takes about two minutes, and leaves nothing behind.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if asJSON && markdown {
				return errors.New("--json and --markdown: one of them is enough")
			}
			if err := cli.NeedRoot(); err != nil {
				return err
			}
			worker, err := cli.SiblingFile("bin", "lightpath-rank")
			if err != nil {
				return err
			}
			results, failed := faults.Run(cmd.Context(), &faults.Options{
				Lightpath: cli.SelfPath(), Worker: worker, Only: only, Progress: cli.ProgressLine(),
			})
			if results == nil {
				return failed
			}
			switch {
			case asJSON:
				err = cli.PrintJSON(results)
			case markdown:
				err = faults.WriteMarkdown(cli.Stdout, results)
			default:
				err = faults.Write(cli.Stdout, results)
			}
			if failed != nil {
				failed = cli.No(failed)
			}
			return errors.Join(err, failed)
		},
	}
	cmd.Flags().StringVar(&only, "only", "", "play the scenarios whose names contain this, such as killed, drift, mirror, disabled, scpi")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().BoolVar(&markdown, "markdown", false, "print a Markdown table")
	return cmd
}
