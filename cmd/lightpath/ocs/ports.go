package ocs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"lightpath/cmd/lightpath/cli"
	"lightpath/ocsctl/controller"
	"lightpath/ocsctl/controller/rpc"
)

// planePorts is the ports of a plane, for JSON.
type planePorts struct {
	Plane string                 `json:"plane"`
	Ports []controller.PortState `json:"ports"`
}

func newPorts() *cobra.Command {
	var o flags
	cmd := &cobra.Command{
		Use:   "ports --controller host:port [--plane p]",
		Short: "Show the switch's ports of planes: state, optical power, baseline",
		Long: `Shows each port of a plane at its switch: the switch's own label and state, the power that it receives, and the
baseline against which the controller compares it. A port is dim if it receives less than its baseline by its drop.
Exits with 1 if a port is dim or has failed. Only real switches report ports.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.operate(cmd, o.showPorts)
		},
	}
	o.addOperating(cmd)
	return cmd
}

// showPorts shows ports, and is a "no" if one of them is dim or has failed.
func (o *flags) showPorts(ctx context.Context, op *rpc.Operator) error {
	s, planes, err := o.look(ctx, op)
	if err != nil {
		return err
	}
	all := []planePorts{}
	var bad error
	for _, j := range planes {
		ports, err := op.Ports(ctx, j)
		if err != nil {
			return cli.No(err)
		}
		all = append(all, planePorts{s.Planes[j].Name, ports})
		for r := range ports {
			if p := &ports[r]; bad == nil && (p.Dim || p.Failed) {
				bad = cli.No(fmt.Errorf("plane %s port %d: %s", printable(s.Planes[j].Name), r, portWords(p)))
			}
		}
	}
	if err := cli.Show(o.asJSON, all, func() { printPorts(cli.Stdout, all) }); err != nil {
		return err
	}
	return bad
}

func printPorts(w io.Writer, all []planePorts) {
	for _, plane := range all {
		if plane.Ports == nil {
			fmt.Fprintf(w, "plane %s: its switch reports no ports\n", printable(plane.Plane))
			continue
		}
		fmt.Fprintf(w, "plane %s:\n", printable(plane.Plane))
		for r := range plane.Ports {
			p := &plane.Ports[r]
			fmt.Fprintf(w, "  port %-4d %-10s %s\n", r, printable(p.Label), portWords(p))
		}
	}
}

// portWords says what a switch and the controller know of a port.
func portWords(p *controller.PortState) string {
	text := orDash(p.State)
	if p.Failed {
		text += ", FAILED"
	}
	if p.DBm != nil {
		text += fmt.Sprintf(", %.2f dBm", *p.DBm)
	}
	if p.DBm != nil && p.Baseline != nil {
		text += fmt.Sprintf(", baseline %.2f dBm", *p.Baseline)
	}
	if p.Dim {
		text += fmt.Sprintf(", DIM: more than %.1f dB below", p.Drop)
	}
	if p.File != "" {
		text += ", moved from " + printable(p.File)
	}
	return text
}

func newBaseline() *cobra.Command {
	var ports []int
	var drop float64
	cmd := planeCommand(&cobra.Command{
		Use:   "baseline --controller host:port --plane p [--port 3,7] [--drop 2]",
		Short: "Take the present optical power of ports as their baseline",
		Long: `Takes the power that ports receive now as their baseline: all measured ports of the plane, or those of --port.
Do so after a fibre was cleaned or moved. The controller compares every reading with it, and the history has an event
"dimmed" when a port receives less by its drop.`,
	}, func() error {
		if slices.ContainsFunc(ports, func(p int) bool { return p < 0 }) {
			return fmt.Errorf("--port %v: not a port", ports)
		}
		return nil
	}, func(ctx context.Context, op *rpc.Operator, plane int) error {
		return op.SetBaseline(ctx, plane, ports, drop, operatorName())
	})
	cmd.Flags().IntSliceVar(&ports, "port", nil, "only these ports")
	cmd.Flags().Float64Var(&drop, "drop", 0,
		"loss in dB that makes these ports dim; 0: as in the controller's file (switches.power_drop_db)")
	return cmd
}

func newRemap() *cobra.Command {
	var port int
	var to string
	cmd := planeCommand(&cobra.Command{
		Use:   "remap --controller host:port --plane p --port 3 --to 17/33",
		Short: "Move a port of a plane to a spare port of its switch",
		Long: `Moves the port of a rank to another port of the same switch, after its fibre was moved there. The controller
removes the circuits of the old port, makes them at the new one, verifies them, and remembers the move. The plane must
not be in use. --to is one of the plane's spares in the fabric file, or the port that the fabric file names for this
rank: so the port moves back. The new port has no baseline of power until it is first read.`,
	}, func() error {
		if to == "" || port < 0 {
			return errors.New("--port and --to are required")
		}
		return nil
	}, func(ctx context.Context, op *rpc.Operator, plane int) error {
		return op.Remap(ctx, plane, port, to, operatorName())
	})
	cmd.Flags().IntVar(&port, "port", -1, "port of the plane: the number of the rank")
	cmd.Flags().StringVar(&to, "to", "", "port of the switch, as the fabric file writes it")
	return cmd
}
