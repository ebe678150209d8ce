package ocs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"lightpath/cmd/lightpath/cli"
	"lightpath/ocsctl"
	"lightpath/ocsctl/controller"
	"lightpath/ocsctl/controller/rpc"
	"lightpath/plans/circuit"
)

// NewJobs returns the command "jobs".
func NewJobs() *cobra.Command {
	var o flags
	cmd := &cobra.Command{
		Use:   "jobs [--fabric f.yaml | --controller host:port]",
		Short: "Show the jobs that have ports of the fabric; begin and end them, for a scheduler",
		Long: `Shows the jobs that have begun and not ended: their ports in the order of their ranks, their planes, and who
moves their circuits. docs/slurm.md says how Slurm begins and ends jobs.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.operate(cmd, func(ctx context.Context, op *rpc.Operator) error {
				s, err := op.Status(ctx)
				if err != nil {
					return cli.No(err)
				}
				return cli.Show(o.asJSON, append([]controller.JobSnapshot{}, s.Jobs...), func() { printJobs(cli.Stdout, &s) })
			})
		},
	}
	o.addOperator(cmd)
	cmd.Flags().BoolVar(&o.asJSON, "json", false, "print JSON")
	cmd.AddCommand(newJobsBegin(), newJobsEnd())
	return cmd
}

// beginFlags describe a job.
type beginFlags struct {
	flags
	name, ports, spec, maps string
	planes                  []string
}

func newJobsBegin() *cobra.Command {
	var o beginFlags
	cmd := &cobra.Command{
		Use:   "begin ID --ports 0-3 [--plane p]... [--map ring:1|FILE | --maps DIR]",
		Short: "Reserve ports for a job, and set its circuits",
		Long: `Reserves the ports for the job, on all planes or those of --plane, and sets their circuits. A plane that a
communicator uses is set when that gives it back. With --map or --maps no rank moves the job's circuits until the job
ends. Without, the ports begin dark, and only ranks at these ports move circuits to or from them. A plane out of
service gets its circuits when it is back. A job that has begun may begin again with the same ports, for a begin whose
answer was lost. While no controller answers, the command tries again. Exits with 1 if another job has the id or a port,
or if circuits cannot be set; then the job has not begun.`,
		Args: cli.OneArgument,
		RunE: func(cmd *cobra.Command, args []string) error {
			ports, err := parsePorts(o.ports)
			if err != nil {
				return fmt.Errorf("--ports: %w", err)
			}
			if o.spec != "" && o.maps != "" {
				return errors.New("--map and --maps contradict each other: one of them is enough")
			}
			return o.operate(cmd, func(ctx context.Context, op *rpc.Operator) error {
				return o.begin(ctx, op, controller.Job{ID: args[0], Name: o.name, Ports: ports, Who: operatorName()})
			})
		},
	}
	o.addOperator(cmd)
	fl := cmd.Flags()
	fl.StringVar(&o.ports, "ports", "", "ports of the job, in the order of its ranks: 0-3,6")
	fl.StringVar(&o.name, "name", "", "name of the job, for people")
	fl.StringSliceVar(&o.planes, "plane", nil, "name or number of a plane; by default all")
	fl.StringVar(&o.spec, "map", "", "map of the job's ranks on each plane: ring:K, xor:M, dark, or a JSON file")
	fl.BoolVar(&o.asJSON, "json", false, "print JSON")
	fl.StringVar(&o.maps, "maps", "", "directory with a map of the job's ranks for each plane, PLANE.json, as "+
		"topology delta plan --maps writes it; a plane without a file is dark")
	return cmd
}

func newJobsEnd() *cobra.Command {
	var o flags
	cmd := &cobra.Command{
		Use:   "end ID",
		Short: "Give the ports of a job back",
		Long: `Gives the ports of a job back. It moves no circuit. A job that has ended already is no error. While no
controller answers, the command tries again.`,
		Args: cli.OneArgument,
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.operate(cmd, func(ctx context.Context, op *rpc.Operator) error {
				return persist(ctx, op, func(*controller.Snapshot) error { return op.EndJob(ctx, args[0], operatorName()) })
			})
		},
	}
	o.addOperator(cmd)
	return cmd
}

// errUsage marks errors of the command, not of the controller.
var errUsage = errors.New("")

// begin begins a job, and shows it.
func (o *beginFlags) begin(ctx context.Context, op *rpc.Operator, j controller.Job) error {
	err := persist(ctx, op, func(s *controller.Snapshot) error {
		names := planeNames(s)
		j.Mask = 0
		if len(o.planes) == 0 {
			j.Mask = 1<<len(names) - 1
		}
		for _, text := range o.planes {
			plane, err := onePlaneOf(text, names)
			if err != nil {
				return fmt.Errorf("%w--plane: %w", errUsage, err)
			}
			j.Mask |= 1 << plane
		}
		maps, err := o.readMaps(names, j.Mask, len(j.Ports))
		if err != nil {
			return fmt.Errorf("%w%w", errUsage, err)
		}
		return op.BeginJob(ctx, j, maps)
	})
	if err != nil {
		return err
	}
	s, err := op.Status(ctx)
	if err != nil {
		return cli.No(fmt.Errorf("the job has begun, but it cannot be seen: %w", err))
	}
	s.Jobs = slices.DeleteFunc(s.Jobs, func(other controller.JobSnapshot) bool { return other.ID != j.ID })
	return cli.Show(o.asJSON, s.Jobs, func() { printJobs(cli.Stdout, &s) })
}

// readMaps returns the map of a job's ranks by plane; nil if its ranks move the circuits.
func (o *beginFlags) readMaps(names []string, mask uint64, ranks int) ([]circuit.Permutation, error) {
	if o.spec == "" && o.maps == "" {
		return nil, nil
	}
	maps, found := make([]circuit.Permutation, len(names)), false
	for j, name := range names {
		if mask>>j&1 == 0 {
			continue
		}
		spec := mapSpec{"map", o.spec}
		if o.maps != "" {
			spec = mapSpec{"maps", filepath.Join(o.maps, filepath.Base(name)+".json")}
			if _, err := os.Stat(spec.text); errors.Is(err, os.ErrNotExist) {
				continue
			}
		}
		m, err := spec.one(ranks)
		if err != nil {
			return nil, err
		}
		maps[j], found = m, true
	}
	if !found {
		return nil, fmt.Errorf("--maps %s: no file is named after a plane of the job", o.maps)
	}
	return maps, nil
}

// persist runs a command, and repeats it while no controller answers, of which it tells the operator once. The command
// may have been carried out before.
func persist(ctx context.Context, op *rpc.Operator, run func(*controller.Snapshot) error) error {
	told := false
	for {
		s, err := op.Status(ctx)
		again := err != nil && !errors.Is(err, rpc.ErrForbidden) && !errors.Is(err, ocsctl.ErrVersion)
		if err == nil {
			err = run(&s)
			again = errors.Is(err, ocsctl.ErrControlLost) || errors.Is(err, controller.ErrStopped) ||
				errors.Is(err, controller.ErrNotLeader)
		}
		switch {
		case err == nil || errors.Is(err, errUsage):
			return err
		case !again:
			return cli.No(err)
		}
		if !told {
			told = true
			fmt.Fprintf(os.Stderr, "lightpath: trying again until a controller answers: %s\n", printable(err.Error()))
		}
		select {
		case <-ctx.Done():
			return cli.No(err)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// parsePorts reads a list such as 0-3,6, in its order.
func parsePorts(text string) ([]int, error) {
	if text == "" {
		return nil, errors.New("required: ports such as 0-3,6")
	}
	var all []int
	for part := range strings.SplitSeq(text, ",") {
		from, to, isRange := strings.Cut(part, "-")
		if !isRange {
			to = from
		}
		first, err := strconv.ParseUint(from, 10, 32)
		last, err2 := strconv.ParseUint(to, 10, 32)
		if err != nil || err2 != nil || last < first || last >= controller.MaxPorts {
			return nil, fmt.Errorf("%q is not a list of ports such as 0-3,6", text)
		}
		for p := first; p <= last; p++ {
			all = append(all, int(p))
		}
	}
	return all, nil
}

func printJobs(w io.Writer, s *controller.Snapshot) {
	down := uint64(0)
	for n, p := range s.Planes {
		if p.State == controller.Down {
			down |= 1 << n
		}
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "JOB\tNAME\tPLANES\tPORTS\tSINCE\tCIRCUITS")
	for _, j := range s.Jobs {
		state := "its ranks move them"
		if j.Fixed {
			state = "set"
		}
		if waits := j.Waits &^ down; waits != 0 {
			state = "to be set: " + namesOf(s, waits)
		}
		if off := j.Mask & down; off != 0 {
			state += "; out of service: " + namesOf(s, off)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", printable(j.ID), orDash(j.Name), namesOf(s, j.Mask), portList(j.Ports),
			j.Since.Local().Format("2006-01-02 15:04:05"), state)
	}
	_ = t.Flush()
}

// portList writes ports in their order, with ranges.
func portList(ports []int) string {
	var all []string
	for i := 0; i < len(ports); {
		last := i
		for last+1 < len(ports) && ports[last+1] == ports[last]+1 {
			last++
		}
		if text := strconv.Itoa(ports[i]); last > i {
			all = append(all, text+"-"+strconv.Itoa(ports[last]))
		} else {
			all = append(all, text)
		}
		i = last + 1
	}
	return strings.Join(all, ",")
}
