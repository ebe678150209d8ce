package ocs

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"lightpath/cmd/lightpath/cli"
	"lightpath/ocsctl/controller"
	"lightpath/ocsctl/controller/rpc"
	"lightpath/ocsctl/rewire"
	"lightpath/plans/lumos"
)

func newRewire() *cobra.Command {
	var o flags
	var path string
	cmd := &cobra.Command{
		Use:   "rewire --controller host:port --steps steps.json",
		Short: "Carry out the steps of topology lumos rewire while jobs run",
		Long: `For each step, takes its planes out of service for new operations. When the operation that holds a plane has
ended, it sets the map of the plane and puts the plane back. Planes have the names that "topology lumos plan --fabric"
gives them. A step for a group that the controller does not have is an error. The fabric file of these planes is pinned,
so collectives use the circuits as they are.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			data, err := cli.ReadInput("steps", path)
			if err != nil {
				return err
			}
			f, steps, err := lumos.DecodeSteps(data)
			if err != nil {
				return fmt.Errorf("%s: %w", cli.InputName(path), err)
			}
			return o.operate(cmd, func(ctx context.Context, op *rpc.Operator) error {
				return carryOut(ctx, op, f, steps)
			})
		},
	}
	fl := cmd.Flags()
	cli.FabricFlag(cmd, &o.fabric, "fabric file, for its controllers", "controller")
	fl.DurationVar(&o.timeout, "timeout", 10*time.Minute, "most time for the whole command")
	fl.StringVar(&path, "steps", "", "steps (- for standard input)")
	o.addController(cmd)
	o.addCredentials(cmd)
	return cmd
}

// carryOut runs steps on the controller's planes.
func carryOut(ctx context.Context, op *rpc.Operator, f lumos.Fabric, steps []lumos.Step) error {
	s, err := op.Status(ctx)
	if err != nil {
		return cli.No(err)
	}
	planes := planeNames(&s)
	stages := make([]rewire.Stage, len(steps))
	for n, step := range steps {
		stages[n] = rewire.Stage{}
		for _, m := range step.Moves {
			for side, want := range m.Maps() {
				name := lumos.PlaneName(m.Group, 2*m.Pair+side)
				j := slices.Index(planes, name)
				if j < 0 {
					return fmt.Errorf("step %d: the controller has no plane %s", n+1, name)
				}
				if len(s.Ports) != f.Pods {
					return fmt.Errorf("step %d: plane %s has %d ports and the steps are for %d pods", n+1, name, len(s.Ports), f.Pods)
				}
				if p := &s.Planes[j]; p.State == controller.Down { // rewiring would put it back, although an operator works on it
					return cli.No(fmt.Errorf("step %d: plane %s is out of service: %s; first put it back with ocs enable",
						n+1, name, printable(p.Reason)))
				}
				stages[n][j] = want
			}
		}
	}
	start := time.Now()
	err = rewire.Run(ctx, op, stages, rewire.Options{Planes: planes, Who: operatorName(), Done: func(n int) {
		cli.Printf("step %d of %d: %d planes have their maps, after %v\n", n+1, len(stages), len(stages[n]),
			time.Since(start).Round(time.Millisecond))
	}})
	if err != nil {
		return cli.No(err)
	}
	return nil
}
