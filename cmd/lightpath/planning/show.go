package planning

import (
	"fmt"

	"github.com/spf13/cobra"

	"lightpath/cmd/lightpath/cli"
	"lightpath/plans"
	"lightpath/plans/render"
)

func newShow() *cobra.Command {
	var planPath, in string
	var shown cli.Pictures
	cmd := &cobra.Command{
		Use:   "show --plan plan.json [--svg f.svg] [--html f.html] [--trace f.json]",
		Short: "Draw a plan's timeline, or print it",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			var plan *plans.Plan
			var o render.Options
			var err error
			if in == "" {
				plan, err = cli.DecodeInput("plan", planPath, plans.DecodePlan)
			} else {
				o.Problem, plan, err = readPair(in, planPath)
			}
			if err != nil {
				return err
			}
			if in != "" {
				if _, err := verify(o.Problem, plan); err != nil {
					return fmt.Errorf("--in: %s is not the problem of this plan: %w", cli.InputName(in), err)
				}
			}
			return shown.Show(plan, o, func() ([]byte, error) { return plans.EncodePlan(plan) }, func() { printPlan(plan) })
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&planPath, "plan", "", "plan file (- for standard input)")
	fl.StringVar(&in, "in", "", "problem file, for the names of the steps")
	shown.Register(fl)
	return cmd
}

func printPlan(p *plans.Plan) {
	cli.Printf("%s: CCT %.6g us, lower bound %.6g us (gap %.2f %%)\n", p.Planner, p.CCTUS, p.LowerBoundUS, gapPercent(p))
	if p.BoundProof != "" {
		cli.Printf("bound: %s\n", p.BoundProof)
	}
	for j, entries := range p.Planes {
		cli.Printf("plane %d\n", j)
		for _, e := range entries {
			cli.Printf("  %12.6g .. %-12.6g %s\n", e.StartUS, e.EndUS, render.Describe(&e))
		}
	}
}
