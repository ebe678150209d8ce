package topology

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"lightpath/cmd/lightpath/cli"
	"lightpath/plans"
	"lightpath/plans/fabric"
	"lightpath/plans/lumos"
	"lightpath/plans/lumos/picture"
)

// lumosOutput is where a planned core goes.
type lumosOutput struct {
	circuitFiles
	core, svg, groups string
	bandwidth         cli.Gbps
}

func (o *lumosOutput) add(fl *pflag.FlagSet) {
	o.register(fl, "fabric file to write: a rank per pod, an interleaved plane per OCS",
		"directory for a map of each OCS that the plan changes, for ocs set", "cluster")
	fl.StringVar(&o.core, "out", "",
		"file of the core: links by spine, and the maps of all OCSes; default standard output")
	fl.StringVar(&o.svg, "svg", "", "draw the result")
	fl.StringVar(&o.groups, "groups", "", "groups in the fabric file, as 0,2; default as many as a fabric file holds")
	o.bandwidth = 400
	fl.Var(&o.bandwidth, "bandwidth", "rate of a link, for the fabric file; a bare number is Gb/s")
}

// requirement reads the requirement of --in, if the flags have an effect and the files can be written.
func (o *lumosOutput) requirement(fl *pflag.FlagSet, in string) (*lumos.Requirement, error) {
	if err := cmp.Or(cli.CheckOutput("out", o.core), cli.CheckOutput("svg", o.svg)); err != nil {
		return nil, err
	}
	if err := o.check(fl, "bandwidth", "groups"); err != nil { // may make a directory
		return nil, err
	}
	return cli.DecodeInput("in", in, lumos.DecodeRequirement)
}

// write writes what the flags ask for.
func (o *lumosOutput) write(c *lumos.Core) error {
	if o.fabric != "" {
		if err := o.writeFabric(c.Configuration()); err != nil {
			return err
		}
	}
	return cli.WriteOutput("out", o.core, c.Encode())
}

func (o *lumosOutput) writeFabric(c *lumos.Configuration) error {
	groups, err := parseGroups(o.groups, c.Fabric)
	if err != nil {
		return err
	}
	planes := lumos.Planes{Groups: groups, Bandwidth: fabric.Rate(o.bandwidth * 1e9), Endpoint: o.endpoint,
		Reconfig: o.reconfig}
	file, err := planes.File(c.Fabric)
	if err != nil {
		return err
	}
	return o.circuitFiles.write(file, planes.Maps(c))
}

// parseGroups reads --groups.
func parseGroups(s string, f lumos.Fabric) ([]int, error) {
	if s == "" {
		all := make([]int, max(1, min(f.Spines(), plans.MaxPlanes/f.KSpine)))
		for h := range all {
			all[h] = h
		}
		return all, nil
	}
	var all []int
	for field := range strings.SplitSeq(s, ",") {
		h, err := strconv.Atoi(strings.TrimSpace(field))
		if err != nil {
			return nil, fmt.Errorf("--groups %s: %q is no number", s, field)
		}
		all = append(all, h)
	}
	return all, nil
}

// writeMaps writes the maps of moves, one file for every OCS.
func writeMaps(dir string, moves []lumos.Move) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("--maps: %w", err)
	}
	for _, m := range moves {
		names, maps := []string{lumos.PlaneName(m.Group, 2*m.Pair), lumos.PlaneName(m.Group, 2*m.Pair+1)}, m.Maps()
		if err := writePlaneMaps(dir, names, maps[:]); err != nil {
			return err
		}
	}
	return nil
}

func newLumosPlan() *cobra.Command {
	var in string
	var o lumosOutput
	cmd := &cobra.Command{
		Use:   "plan --in requirement.json [--out core.json] [--fabric fabric.yaml]",
		Short: "Plan a new core for the links that jobs need between leaves",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := o.requirement(cmd.Flags(), in)
			if err != nil {
				return err
			}
			start := time.Now()
			c, err := lumos.CoreFor(r)
			if err != nil {
				return err
			}
			took := time.Since(start)
			if o.maps != "" {
				moves := lumos.Moves(lumos.NewConfiguration(r.Fabric()), c.Configuration())
				if err := writeMaps(o.maps, moves); err != nil {
					return err
				}
			}
			if o.svg != "" {
				if err := cli.WriteOutput("svg", o.svg, []byte(picture.Logical(c.Logical()))); err != nil {
					return err
				}
			}
			if err := o.write(c); err != nil {
				return err
			}
			f := r.Fabric()
			fmt.Fprintf(os.Stderr, "%d GPUs in %d pods, %d leaves: %d links, spines in a pod: %d, contention %d, %v\n",
				f.GPUs(), f.Pods, f.Leaves(), r.Links(), f.Spines(), max(1, c.Logical().Contention()), took.Round(time.Microsecond))
			return nil
		},
	}
	cmd.Flags().StringVar(&in, "in", "", "requirement (- for standard input)")
	o.add(cmd.Flags())
	return cmd
}

func newLumosRewire() *cobra.Command {
	var in, has, stepsOut string
	var o lumosOutput
	var iota float64
	var prune bool
	cmd := &cobra.Command{
		Use:   "rewire --core core.json --in requirement.json [--steps steps.json]",
		Short: "Change a core for a new requirement, in steps that leave every leaf most of its links",
		Long: `Links that are still needed stay where they are. New links use circuits that are no longer needed before they
move others. Each step takes at most the fraction --iota of any leaf's links. --maps DIR writes the maps of steps into
DIR/step1, DIR/step2 and so on. "lightpath ocs rewire" carries the steps out.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if in == "-" && has == "-" {
				return errors.New("--in and --core cannot both be standard input")
			}
			if err := cli.CheckOutput("steps", stepsOut); err != nil {
				return err
			}
			r, err := o.requirement(cmd.Flags(), in)
			if err != nil {
				return err
			}
			c, err := cli.DecodeInput("core", has, lumos.DecodeCore)
			if err != nil {
				return err
			}
			from, old := c.Configuration(), c.Logical()
			start := time.Now()
			change, err := c.Update(r, prune)
			if err != nil {
				return err
			}
			steps, err := lumos.Steps(from, c.Configuration(), old.Continuing(r), iota)
			if err != nil {
				return err
			}
			took := time.Since(start)
			if err := o.writeSteps(from, steps); err != nil {
				return err
			}
			if stepsOut != "" {
				if err := cli.WriteOutput("steps", stepsOut, lumos.EncodeSteps(r.Fabric(), steps)); err != nil {
					return err
				}
			}
			if err := o.write(c); err != nil {
				return err
			}
			printChange(change, steps, iota, took)
			return nil
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&in, "in", "", "the new requirement (- for standard input)")
	fl.StringVar(&has, "core", "", "the present core, as plan or rewire wrote it")
	fl.StringVar(&stepsOut, "steps", "", "write the steps, with their moves")
	fl.Float64Var(&iota, "iota", 0.25, "largest fraction of a leaf's links that a step may take, above 0 to 1")
	fl.BoolVar(&prune, "prune", false, "also remove circuits that no link needs")
	o.add(cmd.Flags())
	return cmd
}

// writeSteps writes the maps of each step, and the picture of all steps.
func (o *lumosOutput) writeSteps(from *lumos.Configuration, steps []lumos.Step) error {
	if o.maps != "" {
		for s := range steps {
			if err := writeMaps(filepath.Join(o.maps, fmt.Sprintf("step%d", s+1)), steps[s].Moves); err != nil {
				return err
			}
		}
	}
	if o.svg == "" {
		return nil
	}
	return cli.WriteOutput("svg", o.svg, []byte(picture.Steps(from, steps)))
}

func printChange(c lumos.Change, steps []lumos.Step, iota float64, took time.Duration) {
	fmt.Fprintf(os.Stderr, "%d of %d links made (%.3f %%, at least %d are needed), %d removed, %d steps, %v\n",
		c.Made, c.Links, 100*c.Ratio(), c.Needed, c.Removed, len(steps), took.Round(time.Microsecond))
	for s, step := range steps {
		beyond := ""
		if step.Affected > iota {
			beyond = fmt.Sprintf(", more than %g: no step with less", iota)
		}
		fmt.Fprintf(os.Stderr, "  step %d: %d pairs of OCSes, at most %.1f %% of a leaf's links dark (leaf %d)%s\n",
			s+1, len(step.Moves), 100*step.Affected, step.Leaf, beyond)
	}
}
