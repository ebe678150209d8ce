package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"lightpath/collectives/codesign"
	"lightpath/plans/planner"
)

// design chooses the algorithm along with the plan, and writes the plan.
func (f *problemFlags) design(cmd *cobra.Command, pf *planFlags) error {
	switch {
	case f.collective == "" || f.ranks < 1 || f.bytes == "":
		return errors.New("--collective, --ranks and --bytes are required")
	case f.initial == "first":
		return errors.New("--initial: first needs an --algorithm, whose first step it is")
	case pf.limit <= 0:
		return fmt.Errorf("--time-limit: %v is not positive", pf.limit)
	}
	c, bytes, err := f.call()
	if err != nil {
		return err
	}
	template, err := f.template(cmd)
	if err != nil {
		return err
	}
	if err := f.setInitial(template); err != nil {
		return err
	}
	choice, err := codesign.Choose(cmd.Context(), codesign.Request{
		Collective: c, Ranks: f.ranks, Root: f.root, Bytes: float64(bytes), Fabric: template, Planner: pf.planner,
		Options: planner.Options{TimeLimit: pf.limit, Seed: pf.seed},
	})
	switch {
	case errors.Is(err, planner.ErrInfeasible):
		return no(err)
	case err != nil:
		return err
	}
	printConsidered(os.Stderr, choice)
	return pf.write(choice.Problem, choice.Plan)
}

// mostShown is the most alternatives worth reading about.
const mostShown = 12

// printConsidered tabulates the alternatives, the best first.
func printConsidered(w io.Writer, choice *codesign.Choice) {
	fmt.Fprintf(w, "algorithm %s, of %d considered:\n", choice.Algorithm, len(choice.Considered))
	fmt.Fprintf(w, "%-32s %6s %-9s %14s %14s  %s\n", "algorithm", "steps", "planner", "CCT (us)", "bound (us)", "")
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
			fmt.Fprintf(w, "%-32s %6d %-9s %14.6g %14.6g  %s\n", shortened(a.Algorithm, 32), a.Steps, a.Planner, a.CCTUS, a.LowerBoundUS, effort)
		}
	}
	if planned := len(choice.Considered) - without; planned > mostShown {
		fmt.Fprintf(w, "and %d that take longer\n", planned-mostShown)
	}
	if without > 0 {
		fmt.Fprintf(w, "%d have no plan, such as %s: %v\n", without, choice.Considered[len(choice.Considered)-without].Algorithm,
			choice.Considered[len(choice.Considered)-without].Err)
	}
}

// shortened returns at most n characters of text, and says where it left some out.
func shortened(text string, n int) string {
	if len(text) <= n {
		return text
	}
	return text[:n-3] + "..."
}
