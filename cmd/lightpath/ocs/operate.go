package ocs

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"lightpath/cmd/lightpath/cli"
	"lightpath/ocsctl/controller/rpc"
)

// addOperator adds the flags of commands that only controllers have.
func (o *flags) addOperator(cmd *cobra.Command) {
	cli.FabricFlag(cmd, &o.fabric, "fabric file: its controllers and certificates", "controller")
	cmd.Flags().DurationVar(&o.timeout, "timeout", time.Minute, "most time for the whole command")
	o.addController(cmd)
	o.addCredentials(cmd)
}

// addOperating adds those flags and the ones of commands on a plane.
func (o *flags) addOperating(cmd *cobra.Command) {
	o.addOperator(cmd)
	cmd.Flags().StringVar(&o.plane, "plane", "", "name or number of the plane")
	cmd.Flags().BoolVar(&o.asJSON, "json", false, "print JSON")
}

// operate runs a command that only controllers have, within its time limit.
func (o *flags) operate(cmd *cobra.Command, run func(context.Context, *rpc.Operator) error) error {
	return o.dispatch(cmd, run, func(context.Context) error {
		return errors.New("--controller is required, or a --fabric file that names one as host:port")
	})
}

// planeCommand completes a command that changes the plane of --plane through its controller, and shows the new state.
// check refuses values of the command's own flags.
func planeCommand(cmd *cobra.Command, check func() error,
	run func(ctx context.Context, op *rpc.Operator, plane int) error) *cobra.Command {
	var o flags
	cmd.Args = cobra.NoArgs
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := check(); err != nil {
			return err
		}
		return o.operate(cmd, func(ctx context.Context, op *rpc.Operator) error {
			if o.plane == "" {
				return errors.New("--plane is required")
			}
			s, planes, err := o.look(ctx, op)
			if err != nil {
				return err
			}
			return o.report(ctx, op, &s, planes, run(ctx, op, planes[0]))
		})
	}
	o.addOperating(cmd)
	return cmd
}

// anyValues is the check of a plane command without flags to refuse.
func anyValues() error { return nil }

func newEnable() *cobra.Command {
	return planeCommand(&cobra.Command{
		Use:   "enable --controller host:port --plane p",
		Short: "Put a plane back into service",
		Long: `Puts a plane that has failed or was disabled back
into service. The switch must have the map that the controller wants, and the controller verifies all circuits
again. It does not change the switch; for that, see lightpath ocs set. Exits with 1 if the plane is not in
service.`,
	}, anyValues, func(ctx context.Context, op *rpc.Operator, plane int) error {
		return op.Enable(ctx, plane, operatorName())
	})
}

func newDisable() *cobra.Command {
	var reason string
	cmd := planeCommand(&cobra.Command{
		Use:   "disable --controller host:port --plane p",
		Short: "Take a plane out of service",
		Long: `Takes a plane out of service, for work on its switch. An operation that holds the plane goes on. The controller
grants the plane to no other operation, and collectives run on the other planes.`,
	}, func() error {
		if reason == "" {
			return errors.New("--reason is required")
		}
		return nil
	}, func(ctx context.Context, op *rpc.Operator, plane int) error {
		return op.Disable(ctx, plane, reason, operatorName())
	})
	cmd.Flags().StringVar(&reason, "reason", "", "reason that ranks and the history show")
	return cmd
}

func newConfirm() *cobra.Command {
	return planeCommand(&cobra.Command{
		Use:   "confirm --controller host:port --plane p",
		Short: "Keep a change of lightpath ocs set --confirm-within",
		Long: `Keeps the change that set the plane, and the other planes of the same change. Without it the controller gives
the planes their maps of before when the time is over. Exits with 1 if no change waits.`,
	}, anyValues, func(ctx context.Context, op *rpc.Operator, plane int) error {
		return op.Confirm(ctx, plane, operatorName())
	})
}
