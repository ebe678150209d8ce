package iteration

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"lightpath/cmd/lightpath/cli"
	"lightpath/collectives/traced"
	"lightpath/plans/iteration"
	"lightpath/plans/iteration/check"
	"lightpath/plans/iteration/trace"
)

// New returns the command "iteration".
func New() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "iteration",
		Short: "Plan all collectives of a training iteration together",
		Long: `Plans all collectives of a training iteration together: each call ends on the circuits on which the next
begins, and planes switch while the job computes. A trace says which calls an iteration makes and what it computes
between them.

In order: record or import makes a trace, explain says whether circuits pay, plan plans it, check and show read that.`,
	}
	for _, c := range []*cobra.Command{newImport(), newPlan(), newShow(), newExplain(), newCheck()} {
		cmd.AddCommand(cli.Computing(c))
	}
	cmd.AddCommand(newRecord()) // after a signal it waits for its program
	return cmd
}

// flags choose the fabric and the search.
type flags struct {
	fabric string
	limit  time.Duration
	seed   int64
}

func (f *flags) register(cmd *cobra.Command, limit string) {
	cli.FabricFlag(cmd, &f.fabric, "fabric file")
	cmd.Flags().DurationVar(&f.limit, "time-limit", iteration.DefaultTimeLimit, limit)
	cmd.Flags().Int64Var(&f.seed, "seed", 1, "seed of the searches")
}

func (f *flags) options() (iteration.Options, error) {
	return iteration.Options{TimeLimit: f.limit, Seed: f.seed}, cli.Positive("--time-limit", f.limit)
}

// pose reads a trace and the fabric.
func (f *flags) pose(path string) (*iteration.Problem, error) {
	t, err := cli.DecodeArgument(path, trace.Decode)
	if err != nil {
		return nil, err
	}
	file, err := cli.LoadFabric(f.fabric)
	if err != nil {
		return nil, err
	}
	p, err := traced.Pose(file, t)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", cli.InputName(path), err)
	}
	return p, nil
}

func newPlan() *cobra.Command {
	var f flags
	var out string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "plan TRACE --fabric fabric.yaml [-o plan.json]",
		Short: "Plan the calls of a trace together, and compare with other ways to run them",
		Long: `Plans the calls of a trace together, writes the plan, and prints a table to standard error:

  percall    each call planned alone; planes return in the gap, and switch for another call when it has come
  greedy     each call planned alone, for the circuits that it finds
  static     one setting of the circuits for all calls
  iteration  the plan
  free       percall if setup cost nothing
  packet     all calls on packet planes: those of the fabric file, else planes of the circuits' bandwidth

If the fabric file states packet_planes, calls that are faster there use these planes, in all ways. Exposed is the time
that the job waits for communication. Hidden is the part of the switching that makes the iteration no longer.`,
		Args: cli.OneArgument,
		RunE: func(cmd *cobra.Command, args []string) error {
			if asJSON && out == "-" {
				return errors.New("--json, --out -: standard output takes one of them")
			}
			o, err := f.options()
			if err != nil {
				return err
			}
			if err := cli.CheckOutput("out", out); err != nil {
				return err
			}
			p, err := f.pose(args[0])
			if err != nil {
				return err
			}
			c, err := iteration.Compare(cmd.Context(), p, o)
			if errors.Is(err, iteration.ErrProblem) {
				return cli.No(err)
			}
			if err != nil {
				return err
			}
			return cli.Deliver(cmd.Context(), "plan", func() error {
				text, err := c.Plan.Encode()
				if err != nil {
					return err
				}
				if asJSON {
					if out != "" {
						err = cli.WriteOutput("out", out, text)
					}
					return errors.Join(err, cli.PrintJSON(comparisonJSON(c)))
				}
				fmt.Fprint(os.Stderr, comparisonText(c))
				return cli.WriteOutput("out", out, text)
			})
		},
	}
	f.register(cmd, "most time to plan; the result is the best plan by then")
	cmd.Flags().StringVarP(&out, "out", "o", "", "plan file to write (standard output by default)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the table as JSON; the plan goes to --out only")
	return cmd
}

// outcomeJSON is a row of the table in JSON.
type outcomeJSON struct {
	Name               string  `json:"name"`
	IterationUS        float64 `json:"iteration_us"`
	ExposedUS          float64 `json:"exposed_us"`
	SwitchingUS        float64 `json:"switching_us"`
	ExposedSwitchingUS float64 `json:"exposed_switching_us"`
	Hidden             float64 `json:"hidden"`
}

func outcomesJSON(c *iteration.Comparison) []outcomeJSON {
	rows := make([]outcomeJSON, len(c.Outcomes))
	for i := range c.Outcomes {
		o := &c.Outcomes[i]
		rows[i] = outcomeJSON{o.Name, o.IterationUS, o.ExposedUS, o.SwitchingUS, o.ExposedSwitchingUS, o.Hidden()}
	}
	return rows
}

func comparisonJSON(c *iteration.Comparison) map[string]any {
	return map[string]any{
		"iteration_us": c.Plan.IterationUS, "compute_us": c.Plan.ComputeUS, "lower_bound_us": c.Plan.LowerBoundUS,
		"calls": len(c.Plan.Calls), "shapes": c.Shapes, "plans_tried": c.Tried, "ways": outcomesJSON(c),
	}
}

func comparisonText(c *iteration.Comparison) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d calls of %d shapes; computation %s, bound of the iteration %s\n", len(c.Plan.Calls), c.Shapes,
		iteration.Millis(c.Plan.ComputeUS), iteration.Millis(c.Plan.LowerBoundUS))
	fmt.Fprintf(&b, "%-10s %12s %12s %12s %8s\n", "", "iteration", "exposed", "switching", "hidden")
	for i := range c.Outcomes {
		o := &c.Outcomes[i]
		hidden := "-"
		if o.SwitchingUS > 0 {
			hidden = fmt.Sprintf("%.1f %%", 100*o.Hidden())
		}
		fmt.Fprintf(&b, "%-10s %12s %12s %12s %8s\n", o.Name, iteration.Millis(o.IterationUS), iteration.Millis(o.ExposedUS),
			iteration.Millis(o.SwitchingUS), hidden)
	}
	return b.String()
}

func newCheck() *cobra.Command {
	var f flags
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "check PLAN --fabric fabric.yaml",
		Short: "Check an iteration plan, independently of the planner, or exit 1 with the reason if it is infeasible",
		Args:  cli.OneArgument,
		RunE: func(_ *cobra.Command, args []string) error {
			plan, err := cli.DecodeArgument(args[0], iteration.Decode)
			if err != nil {
				return err
			}
			file, err := cli.LoadFabric(f.fabric)
			if err != nil {
				return err
			}
			p, err := traced.Pose(file, plan.Trace)
			if err != nil {
				return fmt.Errorf("%s: trace: %w", cli.InputName(args[0]), err)
			}
			report, err := check.Check(p, plan)
			if err == nil && plan.Digest != "" {
				err = plan.VerifyDigest()
			}
			if err != nil {
				return cli.Infeasible(err, asJSON)
			}
			if asJSON {
				return cli.PrintJSON(map[string]any{"feasible": true, "iteration_us": report.IterationUS,
					"exposed_us": report.ExposedUS, "lower_bound_us": plan.LowerBoundUS,
					"reconfigurations": report.Reconfigurations})
			}
			cli.Printf("feasible: %d calls, iteration %.9g us, %.9g us exposed, lower bound %.9g us, %d reconfigurations\n",
				len(plan.Calls), report.IterationUS, report.ExposedUS, plan.LowerBoundUS, report.Reconfigurations)
			return nil
		},
	}
	cli.FabricFlag(cmd, &f.fabric, "fabric file")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
