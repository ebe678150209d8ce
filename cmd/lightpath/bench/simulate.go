package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"lightpath/bench/figure"
	"lightpath/bench/protocols"
	"lightpath/cmd/lightpath/cli"
)

// simulate makes a run; tests replace it by a run that violates an invariant.
var simulate protocols.Runner = protocols.Run

// simulationFlags choose the simulated runs.
type simulationFlags struct {
	config       protocols.Config
	seed         uint64
	runs, shrink int
	in, out, svg string
	lines        int
	asJSON       bool
}

// NewSimulate returns the command "simulate".
func NewSimulate() *cobra.Command {
	var f simulationFlags
	cmd := &cobra.Command{
		Use:   "simulate",
		Short: "Simulate the control plane with injected faults, and check its invariants after every step",
		Long: `Runs the code of the controller, of the leaders of jobs and of their ranks in simulated time, with etcd,
switches, networks and clocks that fail. Checks invariants after every step (docs/assurance.md). The seed decides
everything: the order of messages, and which faults happen when. Prints how often each fault happened in each state.

Exits with 1 if a run violates an invariant, and says how to make the same run again. With --out or --svg, it first
looks for a shorter run with the same violation. --in makes the run of a file again.

Faults: ` + strings.Join(protocols.FaultNames(), ", ") + ".",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	fl := cmd.Flags()
	for _, size := range f.config.Sizes() {
		fl.IntVar(size.Value, size.Name, size.Default, size.Meaning)
	}
	fl.StringArrayVar(&f.config.Faults, "fault", nil, "inject this fault only (repeatable; default: all)")
	fl.Uint64Var(&f.seed, "seed", 1, "seed of the first run; each further run takes the next one")
	fl.IntVar(&f.runs, "runs", 1, "runs to make")
	fl.IntVar(&f.shrink, "shrink", 5000, "runs for shortening a run that violates an invariant (0: do not shorten it)")
	fl.StringVar(&f.in, "in", "", "make the run of this file (- for standard input)")
	fl.StringVar(&f.out, "out", "", "write the run that violates an invariant to this file (- for standard output)")
	fl.StringVar(&f.svg, "svg", "", "draw the end of that run, or of the last run, as a sequence diagram")
	fl.IntVar(&f.lines, "lines", 100, "lines of the diagram")
	fl.BoolVar(&f.asJSON, "json", false, "print JSON")
	return cmd
}

// check refuses flags that do not go together or are out of range.
func (f *simulationFlags) check(fl *pflag.FlagSet) error {
	if f.in != "" {
		for _, name := range append([]string{"seed", "runs", "fault"}, sizeNames(&f.config)...) {
			if fl.Changed(name) {
				return fmt.Errorf("--%s and --in: the file has the world and the choices", name)
			}
		}
	}
	for _, size := range f.config.Sizes() {
		if err := cli.Within("--"+size.Name, *size.Value, size.Low, size.High); err != nil {
			return err
		}
	}
	if err := f.config.Check(); err != nil {
		return fmt.Errorf("--%w", err)
	}
	for i, name := range f.config.Faults {
		if slices.Contains(f.config.Faults[:i], name) {
			return fmt.Errorf("--fault: %s is given twice", name)
		}
		if !slices.Contains(protocols.FaultNames(), name) {
			return unknownFault(name)
		}
	}
	if err := cmp.Or(cli.AtLeast("--runs", f.runs, 1), cli.AtLeast("--shrink", f.shrink, 0),
		cli.AtLeast("--lines", f.lines, 1)); err != nil {
		return err
	}
	switch {
	case f.seed > protocols.MaxSeed-uint64(f.runs-1):
		return fmt.Errorf("--seed: %d is too large for %d runs: seeds go up to %d", f.seed, f.runs, uint64(protocols.MaxSeed))
	case f.asJSON && (f.out == "-" || f.svg == "-") || f.out == "-" && f.svg == "-":
		return errors.New("--json, --out -, --svg -: standard output takes one of them")
	}
	return cmp.Or(cli.CheckOutput("out", f.out), cli.CheckOutput("svg", f.svg))
}

func sizeNames(c *protocols.Config) (names []string) {
	for _, size := range c.Sizes() {
		names = append(names, size.Name)
	}
	return names
}

func unknownFault(name string) error {
	if near := cli.Nearest(name, protocols.FaultNames()); len(near) > 0 {
		return fmt.Errorf("--fault: there is no fault %q: did you mean %s?", name, strings.Join(near, " or "))
	}
	return fmt.Errorf("--fault: there is no fault %q; there are %s", name, strings.Join(protocols.FaultNames(), ", "))
}

// simulated is the result of a command.
type simulated struct {
	sum    *protocols.Summary
	last   *protocols.Simulation // the run to draw; the one to write if it violates an invariant
	failed bool                  // last violates an invariant
	repeat string                // the command that makes the run that failed
}

// run makes the runs and reports them.
func (f *simulationFlags) run(cmd *cobra.Command) error {
	if err := f.check(cmd.Flags()); err != nil {
		return err
	}
	ctx := cmd.Context()
	show := cli.CountLine()
	var o simulated
	if f.in != "" {
		var err error
		if o, err = f.runFile(); err != nil {
			return err
		}
	} else {
		o = f.search(ctx, show)
	}
	if o.failed && f.shrink > 0 && (f.out != "" || f.svg != "") {
		o.last = protocols.Shrink(ctx, simulate, o.last, f.shrink, func(made, choices int) {
			show("shorten: %d of at most %d runs, %d choices", made, f.shrink, choices)
		})
	}
	show("")
	return cli.Deliver(ctx, "result", func() error { return f.report(&o) })
}

// runFile makes the run of the file of --in.
func (f *simulationFlags) runFile() (o simulated, err error) {
	s, err := cli.DecodeInput("in", f.in, protocols.Decode)
	if err != nil {
		return o, err
	}
	r := repeat(s)
	found := protocols.InvariantOf(r.Violation)
	if s.Violation != "" && s.Violation != found {
		fmt.Fprintf(os.Stderr, "%s: the run does not violate %s, as the file says\n", cli.InputName(f.in), s.Violation)
	}
	s.Violation = found
	o = simulated{&protocols.Summary{}, s, r.Violation != nil, "lightpath simulate --in " + f.in}
	o.sum.Add(r)
	return o, nil
}

// search makes the runs of the seeds.
func (f *simulationFlags) search(ctx context.Context, show func(format string, args ...any)) simulated {
	sum, failed := protocols.Search(ctx, simulate, f.config, f.seed, f.runs, runtime.GOMAXPROCS(0),
		func(s *protocols.Summary) {
			show("simulate: %d of %d runs, %d operations", s.Runs, f.runs, s.Operations)
		})
	if failed != nil {
		return simulated{sum, failed, true, f.replay(failed.Seed)}
	}
	last := f.seed + uint64(max(sum.Runs, 1)-1)
	return simulated{sum: sum, last: &protocols.Simulation{Config: f.config, Seed: last}}
}

// report prints the summary and writes the files.
func (f *simulationFlags) report(o *simulated) error {
	var r *protocols.Result
	if o.failed || f.svg != "" {
		r = repeat(o.last)
	}
	if o.failed && f.out != "" {
		text, err := o.last.Encode()
		if err == nil {
			err = cli.WriteOutput("out", f.out, text)
		}
		if err != nil {
			return err
		}
		o.repeat = "lightpath simulate --in " + f.out
	}
	if f.svg != "" {
		if err := cli.WriteOutput("svg", f.svg, r.Trace.Diagram(f.lines)); err != nil {
			return err
		}
	}
	var violation error
	if o.failed {
		violation = r.Violation
	}
	if err := f.print(o.sum, violation, o.repeat); err != nil || violation == nil {
		return err
	}
	return cli.No(fmt.Errorf("%w; to repeat: %s", violation, o.repeat))
}

func (f *simulationFlags) print(sum *protocols.Summary, violation error, repeat string) error {
	if f.out == "-" || f.svg == "-" {
		return nil // standard output has the file
	}
	if f.asJSON {
		type cell struct {
			Fault string `json:"fault"`
			State string `json:"state"`
			Count int    `json:"count"`
		}
		all := map[string]any{"runs": sum.Runs, "operations": sum.Operations, "simulated_s": sum.Simulated.Seconds(),
			"trace": fmt.Sprintf("%016x", sum.Hash)}
		cells := []cell{}
		for _, c := range sum.Coverage.Cells() {
			cells = append(cells, cell{c.Fault, c.State, sum.Coverage[c]})
		}
		all["coverage"] = cells
		if violation != nil {
			all["violation"] = map[string]any{"invariant": protocols.InvariantOf(violation), "text": violation.Error(),
				"repeat": repeat}
		}
		return cli.PrintJSON(all)
	}
	cli.Printf("%d runs, %d operations in %v of simulated time\n", sum.Runs, sum.Operations,
		sum.Simulated.Round(time.Second))
	if sum.Runs == 1 {
		cli.Printf("trace %016x\n", sum.Hash)
	}
	cli.Print(coverageTable(sum.Coverage, f.config.Faults))
	return nil
}

// coverageTable has a row for each fault that may happen, and a column for each state in which one has happened.
func coverageTable(c protocols.Coverage, faults []string) string {
	if len(faults) == 0 {
		faults = protocols.FaultNames()
	}
	var states []string
	for cell := range c {
		states = append(states, cell.State)
	}
	slices.Sort(states)
	states = slices.Compact(states)
	t := figure.Table{Columns: append([]string{"fault"}, states...)}
	for _, fault := range faults {
		row := []any{fault}
		for _, state := range states {
			row = append(row, c[protocols.Cell{Fault: fault, State: state}])
		}
		t.Add(row...)
	}
	return t.Text()
}

// repeat makes a run again, with the lines of its trace.
func repeat(s *protocols.Simulation) *protocols.Result {
	cfg := s.Config
	cfg.Lines = true
	return simulate.Make(cfg, s.Chooser())
}

// replay returns the command that makes the run of a seed.
func (f *simulationFlags) replay(seed uint64) string {
	b := fmt.Sprintf("lightpath simulate --seed %d", seed)
	for _, size := range f.config.Sizes() {
		if *size.Value != size.Default {
			b += fmt.Sprintf(" --%s %d", size.Name, *size.Value)
		}
	}
	for _, name := range f.config.Faults {
		b += " --fault " + name
	}
	return b
}
