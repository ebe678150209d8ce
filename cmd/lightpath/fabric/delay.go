package fabric

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"lightpath/cmd/lightpath/cli"
	"lightpath/ocsctl/kernel/delay"
)

func newDelay() *cobra.Command {
	var interfaces []string
	var by time.Duration
	cmd := &cobra.Command{
		Use:   "delay --interface h0p0,h1p0 --time 100us",
		Short: "Delay frames that arrive at ports of a bridge, until interrupted",
		Long: `Gives a bridge the frames that arrive at some of its ports after a time, as a long fiber does, until it is
interrupted, and prints how many. It is for measurements. The frames pass this process: 1 Gb/s take about a
fifth of a processor, at an MTU of 9000. Needs root and Linux 6.6, and no netem.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if len(interfaces) == 0 {
				return errors.New("--interface is required")
			}
			if err := cli.Positive("--time", by); err != nil {
				return err
			}
			if err := cli.NeedRoot(); err != nil {
				return err
			}
			return runDelay(cmd.Context(), interfaces, by)
		},
	}
	cmd.Flags().StringSliceVar(&interfaces, "interface", nil, "ports of a bridge in this namespace")
	cmd.Flags().DurationVar(&by, "time", 0, "from the arrival of a frame until the bridge gets it")
	return cmd
}

// runDelay delays frames until ctx ends.
func runDelay(ctx context.Context, interfaces []string, by time.Duration) (err error) {
	d, err := delay.New(interfaces, by)
	if err != nil {
		return cli.No(err)
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	cli.Printf("delaying frames at %s by %v\n", strings.Join(interfaces, ", "), by)
	err = d.Run(ctx)
	passed, lost := d.Counts()
	cli.Printf("%d frames passed, %d lost\n", passed, lost)
	return err
}
