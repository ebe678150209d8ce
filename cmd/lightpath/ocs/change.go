package ocs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"lightpath/cmd/lightpath/cli"
	"lightpath/ocsctl/controller"
	"lightpath/ocsctl/controller/rpc"
	"lightpath/plans/circuit"
)

// changeFlags describe a change of planes at a controller.
type changeFlags struct {
	spec      string // of --map
	ifCurrent string
	dryRun    bool
	confirm   time.Duration
}

func (f *changeFlags) add(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVar(&f.spec, "map", "", "ring:K (r to r+K), xor:M (r to r xor M), dark, or a JSON file "+
		"(- for standard input): a list, or an object with a list for each plane by name")
	fl.StringVar(&f.ifCurrent, "if-current", "", "refuse unless the planes have this map now, as for --map")
	fl.BoolVar(&f.dryRun, "dry-run", false,
		"show what would change, and whether the controller would refuse it; change nothing")
	fl.DurationVar(&f.confirm, "confirm-within", 0,
		"undo the change after this time, unless lightpath ocs confirm comes before")
}

// controllerOnly returns an error for flags that a switch itself cannot obey.
func (f *changeFlags) controllerOnly() error {
	if f.ifCurrent != "" || f.dryRun || f.confirm != 0 {
		return errors.New("--if-current, --dry-run and --confirm-within need a controller")
	}
	return nil
}

// unique returns the different names, in order.
func unique(names []string) []string { return slices.Compact(slices.Sorted(slices.Values(names))) }

// change returns the change that the flags describe, for the planes of a snapshot.
func (f *changeFlags) change(s *controller.Snapshot, plane string) (controller.Change, []int, error) {
	c := controller.Change{DryRun: f.dryRun, ConfirmWithin: f.confirm}
	var named []string
	if plane != "" {
		named = strings.Split(plane, ",")
	}
	ports := len(s.Ports)
	targets, err := mapSpec{"map", f.spec}.byPlane(named, ports)
	switch {
	case err != nil:
		return c, nil, err
	case len(targets) == 0:
		return c, nil, errors.New("--plane is required, or a file of --map that names planes")
	case named != nil && !slices.Equal(slices.Sorted(maps.Keys(targets)), unique(named)):
		return c, nil, fmt.Errorf("--map %s names other planes than --plane %s", f.spec, plane)
	}
	var current map[string]circuit.Permutation
	if f.ifCurrent != "" {
		spec := mapSpec{"if-current", f.ifCurrent}
		if current, err = spec.byPlane(slices.Collect(maps.Keys(targets)), ports); err != nil {
			return c, nil, err
		}
		if !slices.Equal(slices.Sorted(maps.Keys(targets)), slices.Sorted(maps.Keys(current))) {
			return c, nil, fmt.Errorf("--if-current %s names other planes than the change", f.ifCurrent)
		}
	}
	var planes []int
	for _, name := range slices.Sorted(maps.Keys(targets)) {
		j, err := onePlaneOf(name, planeNames(s))
		if err != nil {
			return c, nil, fmt.Errorf("--plane: %w", err)
		}
		planes = append(planes, j)
		c.Planes = append(c.Planes, controller.PlaneChange{Plane: j, Target: targets[name], IfCurrent: current[name]})
	}
	return c, planes, nil
}

// setBy makes a controller set the maps of planes.
func (o *flags) setBy(ctx context.Context, op *rpc.Operator, f *changeFlags) error {
	s, err := op.Status(ctx)
	if err != nil {
		return cli.No(err)
	}
	c, planes, err := f.change(&s, o.plane)
	if err != nil {
		return err
	}
	failed := op.Change(ctx, c, operatorName())
	if !f.dryRun {
		return o.report(ctx, op, &s, planes, failed)
	}
	var all []commandReport
	for i, j := range planes {
		after := s.Planes[j]
		after.Map, after.Verified = c.Planes[i].Target, ""
		all = append(all, newReport(&s.Planes[j], &after, failed))
	}
	if err := o.showReports(all); err != nil {
		return err
	}
	if failed != nil {
		return cli.No(failed)
	}
	if !o.asJSON {
		cli.Println("dry run: nothing has changed, and the controller would do this now")
	}
	return nil
}
