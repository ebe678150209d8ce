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
	var drawn cli.Pictures
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "show --plan plan.json [--svg f.svg] [--html f.html] [--trace f.json]",
		Short: "Draw a plan's timeline, or print it",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			plan, err := cli.DecodeInput("plan", planPath, plans.DecodePlan)
			if err != nil {
				return err
			}
			var o render.Options
			if in != "" {
				if o.Problem, err = cli.DecodeInput("in", in, plans.DecodeProblem); err != nil {
					return err
				}
				if _, err := verify(o.Problem, plan); err != nil {
					return fmt.Errorf("--in: %s is not the problem of this plan: %w", cli.InputName(in), err)
				}
			}
			if err := drawn.Draw(plan, o); err != nil {
				return err
			}
			if asJSON {
				text, err := plans.EncodePlan(plan)
				if err != nil {
					return err
				}
				return cli.WriteOutput("json", "-", text)
			}
			if !drawn.OnOutput() {
				printPlan(plan)
			}
			return nil
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&planPath, "plan", "", "plan file (- for standard input)")
	fl.StringVar(&in, "in", "", "problem file, for the names of the steps")
	drawn.Register(fl)
	fl.BoolVar(&asJSON, "json", false, "print the plan as JSON")
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
