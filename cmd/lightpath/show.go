package main

import (
	"bytes"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"lightpath/plans"
	"lightpath/plans/render"
)

func newPlanShow() *cobra.Command {
	var planPath, in, svg, html, trace string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "show --plan plan.json [--svg f.svg] [--html f.html] [--trace f.json]",
		Short: "Draw a plan's timeline, or print it",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			plan, err := decodeInput("plan", planPath, plans.DecodePlan)
			if err != nil {
				return err
			}
			var o render.Options
			if in != "" {
				if o.Problem, err = decodeInput("in", in, plans.DecodeProblem); err != nil {
					return err
				}
				if _, err := verify(o.Problem, plan); err != nil {
					return fmt.Errorf("--in: %s is not the problem of this plan: %w", inputName(in), err)
				}
			}
			for _, d := range []struct {
				flag, path string
				draw       func(io.Writer, *plans.Plan, render.Options) error
			}{{"svg", svg, render.Timeline}, {"html", html, render.HTML}} {
				if d.path == "" {
					continue
				}
				var b bytes.Buffer
				if err := d.draw(&b, plan, o); err != nil {
					return fmt.Errorf("--%s: %w", d.flag, err)
				}
				if err := writeOutput(d.flag, d.path, b.Bytes()); err != nil {
					return err
				}
			}
			if trace != "" {
				if err := writeJSON("trace", trace, render.Trace(plan, o)); err != nil {
					return err
				}
			}
			if asJSON {
				text, err := plans.EncodePlan(plan)
				if err != nil {
					return err
				}
				return writeOutput("json", "-", text)
			}
			if svg != "-" && html != "-" && trace != "-" {
				printPlan(plan)
			}
			return nil
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&planPath, "plan", "", "plan file (- for standard input)")
	fl.StringVar(&in, "in", "", "problem file, for the names of the steps")
	fl.StringVar(&svg, "svg", "", "write the timeline as SVG")
	fl.StringVar(&html, "html", "", "write the timeline and the entries as a page; drag in the timeline to zoom")
	fl.StringVar(&trace, "trace", "", "write a trace for https://ui.perfetto.dev or chrome://tracing, a lane per plane")
	fl.BoolVar(&asJSON, "json", false, "print the plan as JSON")
	return cmd
}

func printPlan(p *plans.Plan) {
	fmt.Printf("%s: CCT %.6g us, lower bound %.6g us (gap %.2f %%)\n", p.Planner, p.CCTUS, p.LowerBoundUS, gapPercent(p))
	if p.BoundProof != "" {
		fmt.Printf("bound: %s\n", p.BoundProof)
	}
	for j, entries := range p.Planes {
		fmt.Printf("plane %d\n", j)
		for _, e := range entries {
			fmt.Printf("  %12.6g .. %-12.6g %s\n", e.StartUS, e.EndUS, render.Describe(&e))
		}
	}
}
