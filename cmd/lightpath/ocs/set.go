package ocs

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"lightpath/cmd/lightpath/cli"
	"lightpath/ocsctl/controller/rpc"
	"lightpath/ocsctl/driver"
	"lightpath/ocsctl/kernel"
	"lightpath/ocsctl/switches"
	"lightpath/plans/circuit"
)

// setReport is the result of ocs set.
type setReport struct {
	Plane    string              `json:"plane"`
	Before   circuit.Permutation `json:"before"`
	After    circuit.Permutation `json:"after"`
	Remove   [][2]int            `json:"remove"` // circuits: from, to
	Add      [][2]int            `json:"add"`
	Again    [][2]int            `json:"again"` // kept circuits that were not good: removed and made again
	Circuits []driver.Circuit    `json:"circuits"`
	Verified string              `json:"verified,omitempty"` // how far; "" where the command has failed
	Error    string              `json:"error,omitempty"`
}

func newSet() *cobra.Command {
	var o flags
	var f changeFlags
	var verify string
	var token uint64
	cmd := &cobra.Command{
		Use:   "set [--fabric f.yaml | --controller host:port] --plane p[,q] --map ring:1|xor:1|dark|FILE",
		Short: "Give planes maps: show what changes, change it, and verify each circuit",
		Long: `Reads the map of the plane's switch, removes the circuits that the new map does not have, and makes its new
circuits. It also makes circuits without light again, and leaves all others alone. Then it verifies all circuits, and
exits with 1 if one is not as intended or has no light. The file of a map is a JSON list: the rank that each rank sends
to, -1 dark. If there is a controller, the controller does this: the planes must be free, and are in service afterwards
unless they are disabled. Several planes are one change: if one fails, the controller gives the others their maps of
before. With --confirm-within it also does so if no operator confirms the change in time. With --direct the command
changes the switch of one plane itself, and the controller reports drift.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var want driver.Level
			if err := want.UnmarshalText([]byte(verify)); err != nil || want < driver.ReadBack {
				return fmt.Errorf("--verify %s: not read-back, status, light or token", verify)
			}
			return o.dispatch(cmd, func(ctx context.Context, op *rpc.Operator) error {
				return o.setBy(ctx, op, &f)
			}, func(ctx context.Context) error {
				if err := f.controllerOnly(); err != nil {
					return err
				}
				return o.setDirect(ctx, f.spec, want, token)
			})
		},
	}
	o.add(cmd)
	f.add(cmd)
	fl := cmd.Flags()
	fl.StringVar(&verify, "verify", driver.Light.String(),
		"how far to verify, up to what the switch can: read-back, status, light, or token. "+
			"A token is sent over the circuits, if the planes' interfaces are up on this host")
	fl.Uint64Var(&token, "token", 1, "fencing token, if the protocol has one: a switch refuses writers with a lower token")
	return cmd
}

// setDirect changes the map on the switch itself.
func (o *flags) setDirect(ctx context.Context, spec string, want driver.Level, token uint64) error {
	v, err := o.visit(ctx, spec)
	if err != nil {
		return err
	}
	defer cli.HangUp(v.sw)
	if want == driver.Token && v.prober == nil {
		return errNoTokens
	}
	known := driver.NewSession(v.sw, len(v.wanted), driver.Rule{Want: min(want, driver.Light)})
	if _, err := known.Look(ctx); err != nil {
		return cli.No(err)
	}
	c := driver.Change{Before: known.Table(), After: v.wanted, Token: token, Want: min(want, driver.Light)}
	remove, add := driver.Delta(c.Before, c.After)
	r := setReport{
		Plane: v.name, Before: c.Before, After: c.After, Remove: fromTo(remove), Add: fromTo(add),
		Again:    fromTo(known.Remake(c, nil)),
		Circuits: []driver.Circuit{},
	}
	if !o.asJSON {
		printDelta(&r)
	}
	verdicts, failed := known.Set(ctx, c, nil)
	if failed == nil && want == driver.Token {
		failed = prove(ctx, v.prober, v.plane, verdicts, known.Known)
	}
	r.Circuits = append(r.Circuits, verdicts...)
	if failed == nil {
		r.Verified = known.Level(0, len(v.wanted))
	} else {
		r.Error, failed = failed.Error(), cli.No(failed)
	}
	if err := cli.Show(o.asJSON, r, func() { printVerdicts(&r) }); err != nil {
		return err
	}
	return failed
}

// visit is a session with the switch of one plane.
type visit struct {
	name   string // of the plane
	plane  int
	sw     driver.Switch
	prober switches.Prober     // nil where nothing can send tokens
	wanted circuit.Permutation // as --map says
}

// visit opens the switch of the plane that the flags name.
func (o *flags) visit(ctx context.Context, spec string) (*visit, error) {
	f, plane, err := o.onePlane()
	if err != nil {
		return nil, err
	}
	v := &visit{name: f.Planes[plane].Name, plane: plane}
	if prober, ok := kernel.ProberOf(f); ok {
		v.prober = prober
	}
	if v.wanted, err = (mapSpec{"map", spec}).one(f.Ranks); err != nil {
		return nil, err
	}
	if v.sw, err = o.open(ctx, f, plane); err != nil {
		return nil, cli.No(err)
	}
	return v, nil
}

func fromTo(pairs []circuit.Pair) [][2]int {
	all := make([][2]int, len(pairs))
	for i, p := range pairs {
		all[i] = [2]int{p.From, p.To}
	}
	return all
}

func printDelta(r *setReport) {
	cli.Printf("plane %s: %d circuits to remove, %d to make", r.Plane, len(r.Remove), len(r.Add))
	if len(r.Again) > 0 {
		cli.Printf(", %d to make again", len(r.Again))
	}
	cli.Println()
	printCircuits(cli.Stdout, "-", r.Remove)
	printCircuits(cli.Stdout, "+", r.Add)
	printCircuits(cli.Stdout, "*", r.Again)
}

// printCircuits writes a line for each circuit, behind a sign.
func printCircuits(w io.Writer, sign string, circuits [][2]int) {
	for _, c := range circuits {
		fmt.Fprintf(w, "  %s %d>%d\n", sign, c[0], c[1])
	}
}

// printVerdicts prints a line per circuit, and after a success how far all are verified.
func printVerdicts(r *setReport) {
	known := "verified by"
	if r.Error != "" {
		known = "known by"
	}
	for _, v := range r.Circuits {
		as := "as intended"
		if v.Reason != "" || v.Observed != v.Intended {
			as = "NOT as intended: " + printable(v.Reason)
		} else if v.HasPower {
			as += fmt.Sprintf(", %.2f dBm", v.PowerDBm)
		}
		cli.Printf("  %d: intended %s, accepted %v, observed %s, %s %s: %s\n", v.In, circuit.PortName(v.Intended), v.Accepted,
			circuit.PortName(v.Observed), known, v.Verified, as)
	}
	if r.Error == "" {
		cli.Printf("plane %s: %s%s\n", r.Plane, circuitList(r.After), verifiedBy(r.Verified))
	}
}

// driftReport is the result of ocs drift.
type driftReport struct {
	Plane   string              `json:"plane"`
	Desired circuit.Permutation `json:"desired"`
	Map     circuit.Permutation `json:"map"`              // nil: unknown
	Drifted []int               `json:"drifted"`          // ranks
	Reason  string              `json:"reason,omitempty"` // why the controller has it out of service
}

func newDrift() *cobra.Command {
	var o flags
	var spec string
	cmd := &cobra.Command{
		Use:   "drift [--controller host:port | --fabric f.yaml --plane p --map FILE]",
		Short: "Compare a plane's map with the one desired",
		Long: `With a controller: shows the planes whose switches do not have the map that it wants. Otherwise, or with
--direct: reads the map of the plane's switch and compares it with --map. Exits with 1 if a circuit differs. Changes
nothing.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.dispatch(cmd, func(ctx context.Context, op *rpc.Operator) error {
				if spec != "" {
					return errors.New("--map is for --direct: the controller knows what it wants")
				}
				return o.driftOf(ctx, op)
			}, func(ctx context.Context) error {
				return o.driftDirect(ctx, spec)
			})
		},
	}
	o.add(cmd)
	cmd.Flags().StringVar(&spec, "map", "", "the map desired, as for ocs set")
	return cmd
}

// driftDirect compares the desired map with that of the switch.
func (o *flags) driftDirect(ctx context.Context, spec string) error {
	v, err := o.visit(ctx, spec)
	if err != nil {
		return err
	}
	has, err := v.sw.Read(ctx)
	cli.HangUp(v.sw)
	if err != nil {
		return cli.No(err)
	}
	r := driftReport{Plane: v.name, Desired: v.wanted, Map: has, Drifted: []int{}}
	r.compare()
	if err := cli.Show(o.asJSON, r, func() { printDrift(cli.Stdout, []driftReport{r}) }); err != nil {
		return err
	}
	return r.verdict()
}

// compare records the ranks whose circuit is not the desired one.
func (r *driftReport) compare() {
	for rank := range r.Map {
		if rank < len(r.Desired) && r.Map[rank] != r.Desired[rank] {
			r.Drifted = append(r.Drifted, rank)
		}
	}
}

// verdict is a "no" if there is drift, or if the map is not known.
func (r *driftReport) verdict() error {
	switch {
	case r.Map == nil:
		return cli.No(fmt.Errorf("plane %s: its map is unknown", printable(r.Plane)))
	case len(r.Drifted) == 0:
		return nil
	}
	return cli.No(fmt.Errorf("plane %s: %d of %d ranks have another circuit than desired", printable(r.Plane),
		len(r.Drifted), len(r.Map)))
}
