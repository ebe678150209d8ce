package planning

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"lightpath/cmd/lightpath/cli"
	"lightpath/collectives/codesign"
	"lightpath/collectives/schedule"
	"lightpath/internal/brief"
	"lightpath/plans"
	"lightpath/plans/planner"
)

// design chooses the algorithm along with the plan, and writes the plan.
func (f *problemFlags) design(cmd *cobra.Command, pf *planFlags) error {
	c, bytes, template, err := f.call(cmd, "collective", "ranks", "bytes")
	if err != nil {
		return err
	}
	if f.initial == "first" {
		return errors.New("--initial: first needs an --algorithm, whose first step it is")
	}
	if err := cmp.Or(cli.CheckPlanner(pf.planner), f.setInitial(template)); err != nil {
		return err
	}
	if f.pods != nil {
		fmt.Fprintln(os.Stderr, "pods of the fabric count only with an --algorithm, whose parts they arrange")
	}
	return pf.search(cmd, func(ctx context.Context) (*plans.Problem, *plans.Plan, error) {
		stop := pf.waiting()
		choice, err := codesign.Choose(ctx, codesign.Request{
			Collective: c, Ranks: f.ranks, Root: f.root, Bytes: bytes, Fabric: template, Planner: pf.planner,
			Options: planner.Options{TimeLimit: pf.limit, Seed: pf.seed},
		})
		stop()
		if err != nil {
			return nil, nil, err
		}
		printConsidered(os.Stderr, choice)
		return choice.Problem, choice.Plan, nil
	})
}

// sampled is how many of the sizes are used to choose an algorithm.
const sampled = 4

// choose returns the algorithm of a collective that is best over the sizes to be warmed, under the fabric's costs. Its
// plans return to where they began, as jobs use them.
func (w *warming) choose(ctx context.Context, c schedule.Collective, root int, bytes []int64) (string, error) {
	template := w.fabric.Problem()
	template.Ranks, template.Final.Kind = w.ranks, plans.FinalInitial
	if !c.Rooted() {
		root = 0
	}
	var choices []*codesign.Choice
	n := min(sampled, len(bytes))
	for i := range n {
		size := bytes[i*(len(bytes)-1)/max(1, n-1)]
		choice, err := codesign.Choose(ctx, codesign.Request{
			Collective: c, Ranks: w.ranks, Root: root, Bytes: float64(size), Fabric: template, Planner: w.config.Plan.Planner,
			FixedOrder: true,
			Options:    planner.Options{TimeLimit: w.config.Plan.Limit, SinglePlane: true},
		})
		switch {
		case errors.Is(err, planner.ErrInfeasible):
			return "", cli.No(err)
		case err != nil:
			return "", err
		}
		choices = append(choices, choice)
	}
	algorithm := codesign.Common(choices)
	if algorithm == "" {
		return "", cli.No(fmt.Errorf("--algorithm: no algorithm was planned for all sizes of %v in time; try a longer "+
			"--time-limit", c))
	}
	return algorithm, nil
}

// mostShown is the most alternatives worth reading about.
const mostShown = 12

// printConsidered tabulates the alternatives, the best first.
func printConsidered(w io.Writer, choice *codesign.Choice) {
	fmt.Fprintf(w, "algorithm %s, of %d considered:\n", choice.Algorithm, len(choice.Considered))
	fmt.Fprintf(w, "%-32s %6s %-9s %14s %14s  %s\n", "algorithm", "steps", "planner", "CCT (us)", "bound (us)", "effort")
	without := 0
	for i, a := range choice.Considered {
		switch {
		case a.Err != nil:
			without++
		case i < mostShown:
			effort := "screened"
			if a.Final {
				effort = "planned"
			}
			fmt.Fprintf(w, "%-32s %6d %-9s %14.6g %14.6g  %s\n", brief.Text(a.Algorithm, 32), a.Steps, a.Planner, a.CCTUS,
				a.LowerBoundUS, effort)
		}
	}
	if planned := len(choice.Considered) - without; planned > mostShown {
		fmt.Fprintf(w, "and %d that take longer\n", planned-mostShown)
	}
	if without > 0 {
		fmt.Fprintf(w, "%d have no plan, such as %s: %v\n", without,
			choice.Considered[len(choice.Considered)-without].Algorithm,
			choice.Considered[len(choice.Considered)-without].Err)
	}
}
