package iteration

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"lightpath/cmd/lightpath/cli"
	"lightpath/collectives/traced"
	"lightpath/plans"
	"lightpath/plans/iteration"
	"lightpath/plans/iteration/picture"
	"lightpath/plans/render"
)

func newShow() *cobra.Command {
	var shown cli.Pictures
	cmd := &cobra.Command{
		Use:   "show PLAN [--svg f.svg] [--html f.html] [--trace f.json]",
		Short: "Draw an iteration: computation, calls, and what each plane sends and switches",
		Args:  cli.OneArgument,
		RunE: func(_ *cobra.Command, args []string) error {
			p, err := cli.DecodeArgument(args[0], iteration.Decode)
			if err != nil {
				return err
			}
			timeline, o := picture.Timeline(p)
			return shown.Show(timeline, o, p.Encode, func() { printIteration(p) })
		},
	}
	shown.Register(cmd.Flags())
	return cmd
}

func printIteration(p *iteration.Plan) {
	if p.Trace.Name != "" {
		cli.Printf("%s: ", p.Trace.Name)
	}
	cli.Printf("iteration %s, computation %s, exposed %s, lower bound %s\n",
		iteration.Millis(p.IterationUS), iteration.Millis(p.ComputeUS), iteration.Millis(p.ExposedUS()),
		iteration.Millis(p.LowerBoundUS))
	for at := range p.Calls {
		c := &p.Calls[at]
		plan := p.PlanAt(at)
		to := map[string][]string{}
		var names []string
		for _, s := range c.Switches {
			name := render.MapName(plan.Initial[s.Plane])
			if to[name] == nil {
				names = append(names, name)
			}
			to[name] = append(to[name], fmt.Sprint(s.Plane))
		}
		if len(names) > 0 {
			first := c.Switches[0]
			cli.Printf("  %12.6g .. %-12.6g switch", first.StartUS, first.EndUS)
			for i, name := range names {
				if i > 0 {
					cli.Print(",")
				}
				cli.Printf(" planes %s to %s", strings.Join(to[name], " "), name)
			}
			cli.Println()
		}
		on := "packet planes"
		if plan != nil {
			on = fmt.Sprintf("plan %d of %s", c.Plan, plan.Planner)
		}
		cli.Printf("  %12.6g .. %-12.6g call %d, %s: %s, %s\n", c.StartUS, c.EndUS, c.Call, p.Trace.Label(c.Call),
			p.Trace.Calls[c.Call].Kind(), on)
	}
}

func newExplain() *cobra.Command {
	var f flags
	var planes []int
	var reconfig []string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "explain TRACE --fabric fabric.yaml [--planes 1,2,...] [--reconfig 1ms,...]",
		Short: "Say which circuits, planes and switching times would save this job time",
		Long: `Plans a trace on fabrics with other numbers of planes, of the same bandwidth together, and other switching
times. The other costs are those of the fabric file. Columns are the communication that an iteration waits for: with
percall, static and iteration as in iteration plan, and on packet planes. The last column is how much longer the planned
iteration is than on packet planes.`,
		Args: cli.OneArgument,
		RunE: func(cmd *cobra.Command, args []string) error {
			o, err := f.options()
			if err != nil {
				return err
			}
			times := make([]float64, len(reconfig))
			for i, text := range reconfig {
				var m cli.Micros
				if err := m.Set(text); err != nil || m < 0 {
					return fmt.Errorf("--reconfig: %q is no duration such as 200us", text)
				}
				times[i] = float64(m)
			}
			for _, k := range planes {
				if err := cli.Within("--planes", k, 1, plans.MaxPlanes); err != nil {
					return err
				}
			}
			p, err := f.pose(args[0])
			if err != nil {
				return err
			}
			if len(planes) == 0 {
				planes = []int{p.Fabric.Planes}
			}
			points, err := iteration.Sweep(cmd.Context(), p, traced.Steps, planes, times, o,
				cli.Progress("fabrics"))
			if err != nil && (cli.StoppedBy(cmd.Context()) == nil || len(points) == 0) {
				return err
			}
			return cli.Deliver(cmd.Context(), "fabrics", func() error { return printPoints(points, asJSON) })
		},
	}
	f.register(cmd, "most time to plan one fabric")
	cmd.Flags().IntSliceVar(&planes, "planes", nil, "numbers of planes (default: that of the fabric)")
	cmd.Flags().StringSliceVar(&reconfig, "reconfig", []string{"10us", "100us", "1ms", "5ms", "25ms", "100ms"},
		"switching times")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func printPoints(points []iteration.Point, asJSON bool) error {
	if asJSON {
		type point struct {
			Planes     int           `json:"planes"`
			ReconfigUS float64       `json:"reconfig_us"`
			Over       float64       `json:"over_packet"`
			Ways       []outcomeJSON `json:"ways"`
		}
		rows := make([]point, len(points))
		for i := range points {
			rows[i] = point{points[i].Planes, points[i].ReconfigUS, points[i].Over(), outcomesJSON(points[i].Comparison)}
		}
		return cli.PrintJSON(map[string]any{"advice": iteration.Advice(points), "fabrics": rows})
	}
	cli.Println("communication that an iteration waits for; longer: the iteration, beside packet planes")
	cli.Printf("%6s %10s %12s %12s %12s %12s %10s\n", "planes", "switching", iteration.PerCall, iteration.Static,
		iteration.Iteration, iteration.Packet, "longer")
	for i := range points {
		p := &points[i]
		cell := func(name string) string {
			if o := p.Of(name); o != nil {
				return iteration.Millis(o.ExposedUS)
			}
			return "-"
		}
		cli.Printf("%6d %10s %12s %12s %12s %12s %8.2f %%\n", p.Planes, iteration.Millis(p.ReconfigUS),
			cell(iteration.PerCall), cell(iteration.Static), cell(iteration.Iteration), cell(iteration.Packet), 100*p.Over())
	}
	cli.Println(iteration.Advice(points))
	return nil
}
