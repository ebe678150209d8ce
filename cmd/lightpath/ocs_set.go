package main

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"lightpath/ocsctl/driver"
	"lightpath/plans/circuit"
)

// setReport is what ocs set did.
type setReport struct {
	Plane    string              `json:"plane"`
	Before   circuit.Permutation `json:"before"`
	After    circuit.Permutation `json:"after"`
	Remove   [][2]int            `json:"remove"` // circuits: from, to
	Add      [][2]int            `json:"add"`
	Circuits []driver.Circuit    `json:"circuits"`
	Error    string              `json:"error,omitempty"`
}

func newOCSSet() *cobra.Command {
	var o ocsFlags
	var spec, verify string
	var token uint64
	cmd := &cobra.Command{
		Use:   "set --fabric f.yaml --plane p --map ring:1|xor:1|dark|FILE",
		Short: "Give a plane a map: show what changes, change it, and verify each circuit",
		Long: `Reads the map of the plane's switch, removes the circuits that the new map does not have, makes those that it
has in addition, and leaves all others alone. Exits with 1 if a circuit is not as intended afterwards. The
file of a map is a JSON list: the rank that each rank sends to, -1 dark.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var want driver.Level
			if err := want.UnmarshalText([]byte(verify)); err != nil || want < driver.ReadBack || want > driver.Light {
				return fmt.Errorf("--verify %s: not read-back, status or light", verify)
			}
			f, plane, err := o.onePlane()
			if err != nil {
				return err
			}
			after, err := readMap(spec, f.Ranks)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), o.timeout)
			defer cancel()
			sw, err := o.open(ctx, f, plane)
			if err != nil {
				return no(err)
			}
			defer hangUp(sw)
			before, err := sw.Read(ctx)
			if err != nil {
				return no(err)
			}
			remove, add := driver.Delta(before, after)
			r := setReport{Plane: f.Planes[plane].Name, Before: before, After: after, Remove: fromTo(remove), Add: fromTo(add), Circuits: []driver.Circuit{}}
			if !o.asJSON {
				printDelta(&r)
			}
			var failed error
			verdicts, err := sw.Apply(ctx, driver.Change{Before: before, After: after, Token: token, Want: want})
			if err != nil {
				r.Error, failed = err.Error(), no(err)
			}
			r.Circuits = append(r.Circuits, verdicts...)
			if !o.asJSON {
				printVerdicts(r.Circuits)
			} else if err := printJSON(os.Stdout, r); err != nil {
				return err
			}
			return failed
		},
	}
	o.add(cmd)
	fl := cmd.Flags()
	fl.StringVar(&spec, "map", "", "ring:K (r to r+K), xor:M (r to r xor M), dark, or a JSON file (- for standard input)")
	fl.StringVar(&verify, "verify", driver.Light.String(), "how far to verify, as far as the switch can: read-back, status or light")
	fl.Uint64Var(&token, "token", 1, "fencing token, where the protocol has one: a switch refuses writers with a lower one")
	return cmd
}

func fromTo(pairs []circuit.Pair) [][2]int {
	all := make([][2]int, len(pairs))
	for i, p := range pairs {
		all[i] = [2]int{p.From, p.To}
	}
	return all
}

func printDelta(r *setReport) {
	fmt.Printf("plane %s: %d circuits to remove, %d to make\n", r.Plane, len(r.Remove), len(r.Add))
	for _, c := range r.Remove {
		fmt.Printf("  - %d>%d\n", c[0], c[1])
	}
	for _, c := range r.Add {
		fmt.Printf("  + %d>%d\n", c[0], c[1])
	}
}

func printVerdicts(all []driver.Circuit) {
	for _, v := range all {
		as := "as intended"
		if v.Reason != "" || v.Observed != v.Intended {
			as = "NOT as intended: " + v.Reason
		}
		fmt.Printf("  %d: intended %s, accepted %v, observed %s, verified by %s: %s\n", v.In, portOf(v.Intended), v.Accepted, portOf(v.Observed), v.Verified, as)
	}
}

func portOf(p int) string {
	if p == circuit.Dark {
		return "dark"
	}
	return fmt.Sprint(p)
}

// driftReport is what ocs drift found.
type driftReport struct {
	Plane   string              `json:"plane"`
	Desired circuit.Permutation `json:"desired"`
	Map     circuit.Permutation `json:"map"`
	Drifted []int               `json:"drifted"` // ranks
}

func newOCSDrift() *cobra.Command {
	var o ocsFlags
	var spec string
	cmd := &cobra.Command{
		Use:   "drift --fabric f.yaml --plane p --map FILE",
		Short: "Compare a plane's map with the one desired",
		Long:  `Reads the map of the plane's switch and compares it. Exits with 1 if a circuit differs. Changes nothing.`,
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f, plane, err := o.onePlane()
			if err != nil {
				return err
			}
			r := driftReport{Plane: f.Planes[plane].Name, Drifted: []int{}}
			if r.Desired, err = readMap(spec, f.Ranks); err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), o.timeout)
			defer cancel()
			sw, err := o.open(ctx, f, plane)
			if err != nil {
				return no(err)
			}
			defer hangUp(sw)
			if r.Map, err = sw.Read(ctx); err != nil {
				return no(err)
			}
			for rank := range r.Map {
				if r.Map[rank] == r.Desired[rank] {
					continue
				}
				r.Drifted = append(r.Drifted, rank)
				if !o.asJSON {
					fmt.Printf("  %d: desired %s, observed %s\n", rank, portOf(r.Desired[rank]), portOf(r.Map[rank]))
				}
			}
			if o.asJSON {
				if err := printJSON(os.Stdout, r); err != nil {
					return err
				}
			} else if len(r.Drifted) == 0 {
				fmt.Printf("plane %s: no drift\n", r.Plane)
			}
			if len(r.Drifted) > 0 {
				return no(fmt.Errorf("plane %s: %d of %d ranks have another circuit than desired", r.Plane, len(r.Drifted), len(r.Map)))
			}
			return nil
		},
	}
	o.add(cmd)
	cmd.Flags().StringVar(&spec, "map", "", "the map desired, as for ocs set")
	return cmd
}
