package planning

import (
	"errors"

	"github.com/spf13/cobra"

	"lightpath/cmd/lightpath/cli"
	"lightpath/plans"
	"lightpath/plans/sim"
)

// simPlane is one plane of `sim --json`.
type simPlane struct {
	TransmitUS  float64 `json:"transmit_us"`
	ReconfigUS  float64 `json:"reconfigure_us"`
	Utilization float64 `json:"utilization"`
}

// NewSim returns the command "sim".
func NewSim() *cobra.Command {
	var in, planPath, out string
	var asJSON bool
	var form formFlag
	cmd := &cobra.Command{
		Use:   "sim --in problem.json --plan plan.json",
		Short: "Play a plan by its order, as early as the model allows, and print what each plane did",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cli.Needs(cmd.Flags(), "out", "form"); err != nil {
				return err
			}
			p, plan, err := readPair(in, planPath)
			if err != nil {
				return err
			}
			r, err := sim.Run(p, plan)
			if errors.Is(err, sim.ErrPlan) {
				return cli.No(err)
			}
			if err != nil {
				return err
			}
			if out != "" {
				retimed := r.Retimed(plan)
				if err := plans.Seal(p, retimed); err != nil {
					return err
				}
				text, err := form.encodePlan(retimed)
				if err != nil {
					return err
				}
				if err := cli.WriteOutput("out", out, text); err != nil {
					return err
				}
			}
			return printSim(r, plan, asJSON)
		},
	}
	cmd.Flags().StringVar(&in, "in", "", "problem file")
	cmd.Flags().StringVar(&planPath, "plan", "", "plan file")
	cmd.Flags().StringVar(&out, "out", "", "write the plan with the simulated times to this file")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	form.register(cmd.Flags())
	return cmd
}

func printSim(r *sim.Result, plan *plans.Plan, asJSON bool) error {
	if asJSON {
		planes := make([]simPlane, len(r.Planes))
		for j, pl := range r.Planes {
			planes[j] = simPlane{pl.TransmitUS, pl.ReconfigUS, r.Utilization(j)}
		}
		return cli.PrintJSON(map[string]any{"cct_us": r.CCTUS, "end_us": r.EndUS, "stated_us": plan.CCTUS, "planes": planes})
	}
	cli.Printf("CCT %.9g us simulated, %.9g us stated by the plan\n", r.CCTUS, plan.CCTUS)
	for j, pl := range r.Planes {
		cli.Printf("plane %d: transmits %.6g us (%.1f %%), reconfigures %.6g us\n", j, pl.TransmitUS, 100*r.Utilization(j),
			pl.ReconfigUS)
	}
	return nil
}
