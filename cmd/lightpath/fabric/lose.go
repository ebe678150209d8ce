package fabric

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"lightpath/cmd/lightpath/cli"
	"lightpath/ocsctl/kernel/loss"
)

func newLose() *cobra.Command {
	var interfaces []string
	var rate string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "lose --interface eth2,eth3 --rate 1%",
		Short: "Lose frames that arrive at interfaces, until interrupted",
		Long: `Drops a random part of the frames that arrive at interfaces of this network namespace, until it is
interrupted, and prints how many. It is for measurements and drills. Frames that an offload has joined are
lost together. Needs root and Linux 6.6, and no netem.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			part, err := parsePart(rate)
			switch {
			case err != nil:
				return fmt.Errorf("--rate: %w", err)
			case len(interfaces) == 0:
				return errors.New("--interface is required")
			}
			if err := cli.NeedRoot(); err != nil {
				return err
			}
			return runLose(cmd.Context(), interfaces, part, asJSON)
		},
	}
	cmd.Flags().StringSliceVar(&interfaces, "interface", nil, "interfaces of this namespace")
	cmd.Flags().StringVar(&rate, "rate", "", "part of the frames: 1% or 0.01")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// parsePart reads a part of the whole: 1% or 0.01.
func parsePart(s string) (float64, error) {
	number, percent := strings.CutSuffix(s, "%")
	part, err := strconv.ParseFloat(number, 64)
	if percent {
		part /= 100
	}
	if err != nil || !(part >= 0 && part <= 1) { // NaN is neither
		return 0, fmt.Errorf("%q is no part of the frames (1%%, 0.01)", s)
	}
	return part, nil
}

// lostFrames counts the passed and lost frames of an interface.
type lostFrames struct {
	Interface string `json:"interface"`
	Seen      uint64 `json:"seen"`
	Lost      uint64 `json:"lost"`
}

// runLose loses frames until ctx ends.
func runLose(ctx context.Context, interfaces []string, part float64, asJSON bool) (err error) {
	var all []*loss.Interface
	defer func() {
		for _, l := range all {
			err = errors.Join(err, l.Close())
		}
	}()
	for _, name := range interfaces {
		l, err := loss.Attach(name)
		if err != nil {
			return cli.No(err)
		}
		all = append(all, l)
		if err := l.Set(part); err != nil {
			return err
		}
	}
	if !asJSON {
		cli.Printf("losing %v%% of the frames at %s\n", 100*part, strings.Join(interfaces, ", "))
	}
	<-ctx.Done()
	counts := make([]lostFrames, len(all))
	for i, l := range all {
		counts[i].Interface = interfaces[i]
		counts[i].Seen, counts[i].Lost = l.Counts()
	}
	if asJSON {
		return cli.PrintJSON(counts)
	}
	for _, c := range counts {
		cli.Printf("%s: %d of %d frames lost\n", c.Interface, c.Lost, c.Seen)
	}
	return nil
}
