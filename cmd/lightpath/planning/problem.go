package planning

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"lightpath/bench"
	"lightpath/cmd/lightpath/cli"
	"lightpath/collectives/schedule"
	"lightpath/collectives/schedule/msccl"
	"lightpath/plans"
	"lightpath/plans/circuit"
	"lightpath/shim/dispatch"
)

// problemFlags describe the planning problem of a collective: the schedule and the fabric,
// either from a fabric file or spelled out.
type problemFlags struct {
	collective, algorithm string
	ranks, root           int
	bytes                 string

	fabric     string
	pods       [][]int // of the fabric file
	planes     int
	bandwidth  cli.Gbps
	alpha, hop cli.Micros
	reconfig   cli.Micros
	forwarding bool
	circuits   string
	initial    string
	final      string
}

// fabricFacts are the flags for what a fabric file states.
var fabricFacts = []string{"planes", "bandwidth", "alpha", "hop", "reconfig", "forwarding", "circuits"}

func (f *problemFlags) register(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVar(&f.collective, "collective", "", "allreduce, alltoall, allgather, ...")
	fl.StringVar(&f.algorithm, "algorithm", "",
		"schedule, such as rabenseifner, pairwise:4 or recursive-doubling; build: auto chooses one")
	fl.IntVar(&f.ranks, "ranks", 0, "number of ranks")
	fl.IntVar(&f.root, "root", 0, "root of rooted collectives")
	fl.StringVar(&f.bytes, "bytes", "", "size as nccl-tests counts it, such as 32MiB")
	cli.FabricFlag(cmd, &f.fabric, "fabric file, instead of the flags of "+strings.Join(fabricFacts, ", "), fabricFacts...)
	fl.IntVar(&f.planes, "planes", 1, "optical planes")
	f.bandwidth, f.reconfig = 400, 200
	fl.Var(&f.bandwidth, "bandwidth", "rate of a port of a plane; a bare number is Gb/s")
	fl.Var(&f.alpha, "alpha", "latency of a transmission; a bare number is us, here and below")
	fl.Var(&f.hop, "hop", "latency of a hop")
	fl.Var(&f.reconfig, "reconfig", "reconfiguration delay")
	fl.BoolVar(&f.forwarding, "forwarding", false, "ranks forward for each other")
	fl.StringVar(&f.circuits, "circuits", string(plans.Simplex), "simplex, duplex or interleaved")
	fl.StringVar(&f.initial, "initial", "free",
		"free: the planner chooses; dark; first: every plane on the first step's circuits, as in SWOT's example")
	fl.StringVar(&f.final, "final", "", "\"initial\": the plan must return to where it began")
}

// problem builds the schedule and states its problem.
func (f *problemFlags) problem(cmd *cobra.Command) (*plans.Problem, error) {
	if f.algorithm == "auto" {
		return nil, errors.New("--algorithm: auto is for plan build, which says what it chose")
	}
	c, bytes, template, err := f.call(cmd, "collective", "algorithm", "ranks", "bytes")
	if err != nil {
		return nil, err
	}
	algorithm := f.algorithm
	if !strings.HasPrefix(algorithm, msccl.Prefix) {
		algorithm = dispatch.Arrange(c, algorithm, f.pods, true)
	}
	p, err := msccl.ProblemOf(c, algorithm, f.ranks, f.root, bytes, template, schedule.Disjoint)
	if err != nil {
		return nil, fmt.Errorf("--algorithm: %w", err)
	}
	if err := f.setInitial(p); err != nil {
		return nil, err
	}
	return p, p.Validate()
}

// call returns the collective, the size of its calls, and a problem without steps that has the costs of the fabric.
func (f *problemFlags) call(cmd *cobra.Command, required ...string) (c schedule.Collective, bytes float64,
	template *plans.Problem, err error) {
	if err = cmp.Or(cli.Required(cmd.Flags(), required...), cli.AtLeast("--ranks", f.ranks, 1),
		cli.Within("--root", f.root, 0, f.ranks-1)); err != nil {
		return 0, 0, nil, err
	}
	if c, err = schedule.ParseCollective(f.collective); err != nil {
		return 0, 0, nil, fmt.Errorf("--collective: %w", err)
	}
	size, err := bench.ParseBytes(f.bytes)
	if err != nil {
		return 0, 0, nil, fmt.Errorf("--bytes: %w", err)
	}
	template, err = f.template(cmd)
	return c, float64(size), template, err
}

func (f *problemFlags) setInitial(p *plans.Problem) error {
	switch f.initial {
	case "free":
	case "dark":
		p.Initial = slices.Repeat([]circuit.Permutation{circuit.AllDark(p.Ranks)}, p.Planes)
	case "first":
		if len(p.Steps) == 0 || p.Steps[0].To == nil {
			return errors.New("--initial: the first step is no permutation")
		}
		first := []circuit.Permutation{p.Steps[0].To, p.Steps[0].To}
		if p.Circuits == plans.Interleaved {
			first[1] = p.Steps[0].To.Inverse()
		}
		p.Initial = make([]circuit.Permutation, p.Planes)
		for j := range p.Initial {
			p.Initial[j] = first[j%2]
		}
	default:
		return fmt.Errorf("--initial: %q is none of free, dark, first", f.initial)
	}
	return nil
}

func (f *problemFlags) template(cmd *cobra.Command) (*plans.Problem, error) {
	p := &plans.Problem{}
	if f.fabric != "" {
		for _, name := range fabricFacts {
			if cmd.Flags().Changed(name) {
				return nil, fmt.Errorf("--%s contradicts --fabric, which states it", name)
			}
		}
		file, err := cli.LoadFabric(f.fabric)
		if err != nil {
			return nil, err
		}
		p = file.Problem()
		// A communicator may be smaller than its fabric.
		if f.ranks > p.Ranks {
			return nil, fmt.Errorf("--ranks: %d on a fabric of %d", f.ranks, p.Ranks)
		}
		p.Ranks = f.ranks
		f.pods = dispatch.PodsOf(file, circuit.Shift(f.ranks, 0))
	} else {
		*p = plans.Problem{
			Version: plans.Version, Ranks: f.ranks, Planes: f.planes, BandwidthGbps: float64(f.bandwidth),
			AlphaUS: float64(f.alpha), HopUS: float64(f.hop), ReconfigUS: float64(f.reconfig),
			Forwarding: f.forwarding, Circuits: plans.CircuitKind(f.circuits),
		}
	}
	switch f.final {
	case "":
	case "initial":
		p.Final.Kind = plans.FinalInitial
	default:
		return nil, fmt.Errorf("--final: %q is not \"initial\"", f.final)
	}
	return p, p.Validate() // setInitial makes a map for each plane
}

func newProblem() *cobra.Command {
	f := &problemFlags{}
	var out string
	var form formFlag
	cmd := &cobra.Command{
		Use:   "problem --collective C --algorithm A --ranks N --bytes S",
		Short: "Print the planning problem of a collective",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			p, err := f.problem(cmd)
			if err != nil {
				return err
			}
			text, err := form.encodeProblem(p)
			if err != nil {
				return err
			}
			return cli.WriteOutput("out", out, text)
		},
	}
	f.register(cmd)
	cmd.Flags().StringVar(&out, "out", "", "problem file to write (standard output by default)")
	form.register(cmd.Flags())
	return cmd
}

func newBuild() *cobra.Command {
	f, pf := &problemFlags{}, &planFlags{beside: true}
	cmd := &cobra.Command{
		Use:   "build --collective C [--algorithm A] --ranks N --bytes S --fabric fabric.yaml --planner auto",
		Short: "Plan a collective on a fabric",
		Long: `Plans a collective on a fabric. Without --algorithm, or with --algorithm auto, it also chooses the algorithm,
its parameters and the order of its steps. It then prints the choices to standard error. With --out plan.json it writes
the problem to plan.problem.json, for plan check, plan show and sim.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.algorithm == "" || f.algorithm == "auto" {
				return f.design(cmd, pf)
			}
			return pf.solve(cmd, func() (*plans.Problem, error) { return f.problem(cmd) })
		},
	}
	f.register(cmd)
	pf.register(cmd)
	return cmd
}
