package fabric

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"lightpath/cmd/lightpath/cli"
	"lightpath/collectives/transport/ebpf"
	"lightpath/ocsctl/kernel"
	"lightpath/plans/circuit"
	"lightpath/plans/fabric"
)

// New returns the command "fabric".
func New() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "fabric",
		Short: "Build, look at and remove software-steered planes in the kernel",
		Long: `Builds the planes of a fabric file in the kernel of this host: a network namespace per rank with an interface
per plane, and a switch whose circuits are real. Needs root and Linux 6.6. Where the file has several hosts, each
builds its own part (--host), on the planes' interfaces, and runs an agent that writes its circuits for the
controller.

In order: up, then the controller (lightpath ocsd), jobs, status, and down. docs/kernel.md has an example.`,
	}
	cmd.AddCommand(newUp(), newStatus(), newDown(), newCalibrate(), newAgent(),
		newLose(), newDelay())
	return cmd
}

// flags choose a fabric.
type flags struct {
	file, name string
	host       string // name of this host, where several have the fabric
	asJSON     bool
}

// add adds --fabric and --json. The flags of instead choose a fabric in another way.
func (o *flags) add(cmd *cobra.Command, instead ...string) {
	cli.FabricFlag(cmd, &o.file, "fabric file", instead...)
	cmd.Flags().BoolVar(&o.asJSON, "json", false, "print JSON")
}

// addHost is for commands about one host's part of a fabric.
func (o *flags) addHost(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.host, "host", "", "this host's name in the fabric file, if the fabric has several hosts")
}

// addName is for commands that do without the file.
func (o *flags) addName(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.name, "name", "", "name of the fabric, instead of its file")
}

// choose returns the name of the fabric that the flags mean, and its file, nil with --name. It needs root.
func (o *flags) choose() (name string, f *fabric.Fabric, err error) {
	switch {
	case o.file != "" && o.name != "":
		return "", nil, errors.New("--fabric and --name: give one of them")
	case o.name != "" && o.host != "":
		return "", nil, errors.New("--name and --host: the name of a host's part is its own")
	case o.name != "":
		return o.name, nil, cli.NeedRoot()
	case o.file == "":
		return "", nil, errors.New("--fabric is required (or --name)")
	}
	if f, err = cli.LoadFabric(o.file); err != nil {
		return "", nil, err
	}
	return kernel.NameOn(f, o.host), f, cli.NeedRoot()
}

func newUp() *cobra.Command {
	var o flags
	build := kernel.Options{Overhead: ebpf.FrameOverhead}
	cmd := &cobra.Command{
		Use:   "up --fabric fabric.yaml",
		Short: "Build the planes of a fabric; if they are up already, change nothing",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			f, err := cli.LoadFabric(o.file)
			if err != nil {
				return err
			}
			if err := cli.NeedRoot(); err != nil {
				return err
			}
			build.Host = o.host
			show := cli.CountLine()
			build.Progress = func(done, total int) { show("fabric: %d of %d ports", done, total) }
			s, fresh, err := kernel.Up(f, build)
			show("")
			if err != nil {
				return cli.NoIf(err, kernel.Refused)
			}
			if o.asJSON {
				return cli.PrintJSON(s)
			}
			word := "up"
			if !fresh {
				word = "up already, nothing changed"
			}
			cli.Printf("%s: %s: %d ranks, %d planes, namespaces %s ... %s\n", s.Name, word, s.Count, len(s.Planes),
				s.Namespaces[s.First], s.Switch)
			return nil
		},
	}
	o.add(cmd)
	o.addHost(cmd)
	cmd.Flags().StringVar(&build.Underlay, "underlay", "", "network namespace of the host's interfaces (default this one)")
	cmd.Flags().IntVar(&build.MTU, "mtu", kernel.DefaultMTU, "bytes of the largest IP packet")
	return cmd
}

func newDown() *cobra.Command {
	var o flags
	var force, left bool
	cmd := &cobra.Command{
		Use:   "down {--fabric fabric.yaml | --name NAME | --left}",
		Short: "Remove the planes of a fabric, complete or not",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if left {
				return sweepFabrics(&o)
			}
			name, _, err := o.choose()
			if err != nil {
				return err
			}
			found, err := kernel.Down(name, force)
			if err != nil {
				return cli.NoIf(err, kernel.Refused)
			}
			if o.asJSON {
				return cli.PrintJSON(struct {
					Name    string `json:"name"`
					Removed bool   `json:"removed"`
				}{name, found})
			}
			if found {
				cli.Printf("%s: down\n", name)
			} else {
				cli.Printf("%s: was not up\n", name)
			}
			return nil
		},
	}
	o.add(cmd, "name", "left")
	o.addName(cmd)
	o.addHost(cmd)
	cmd.Flags().BoolVar(&force, "force", false, "even while a process writes the circuits")
	cmd.Flags().BoolVar(&left, "left", false, "all fabrics of demos, benches and tests that ended without removing them")
	cmd.MarkFlagsMutuallyExclusive("left", "fabric")
	cmd.MarkFlagsMutuallyExclusive("left", "name")
	cmd.MarkFlagsMutuallyExclusive("left", "host")
	return cmd
}

func newStatus() *cobra.Command {
	var o flags
	cmd := &cobra.Command{
		Use:   "status [--fabric fabric.yaml | --name NAME]",
		Short: "List the fabrics of this host, or show one; exit 1 if something is missing, down, lost or left over",
		Long: `Lists all fabrics in the kernel of this host, with planes that are down. It marks fabrics that a
demo, a bench or a test has left behind. With --fabric or --name it shows the circuits and counters of one.
Exit status 1: a fabric is incomplete or left over, a plane is down, or frames were lost.`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if o.file == "" && o.name == "" && o.host == "" {
				return listFabrics(&o)
			}
			return showFabric(&o)
		},
	}
	o.add(cmd, "name")
	o.addName(cmd)
	o.addHost(cmd)
	return cmd
}

// showFabric prints a fabric.
func showFabric(o *flags) error {
	name, f, err := o.choose()
	if err != nil {
		return err
	}
	var s *kernel.State
	if f != nil {
		s, err = kernel.LoadOn(f, o.host)
	} else {
		s, err = kernel.Load(name)
	}
	if err != nil {
		return cli.NoIf(err, kernel.Refused)
	}
	r, err := kernel.Inspect(s)
	if err != nil {
		return cli.No(err)
	}
	if o.asJSON {
		err = cli.PrintJSON(r)
	} else {
		err = printReport(cli.Stdout, r)
	}
	if err != nil || len(r.Problems) == 0 {
		return err
	}
	more := ""
	if n := len(r.Problems) - 1; n > 0 {
		more = fmt.Sprintf(" (and %d more)", n)
	}
	return cli.No(fmt.Errorf("fabric %s: %s%s", r.Name, r.Problems[0], more))
}

// listFabrics prints the fabrics of this host.
func listFabrics(o *flags) error {
	if err := cli.NeedRoot(); err != nil {
		return err
	}
	all, err := kernel.List()
	if err != nil {
		return err
	}
	var bad, down []string
	for i := range all {
		p := &all[i]
		if p.Left || !p.Complete && p.Owner == 0 {
			bad = append(bad, p.Name)
		}
		if p.Down = planesDown(p); p.Down != "" {
			down = append(down, fmt.Sprintf("fabric %s: plane %s is down", p.Name, p.Down))
		}
	}
	if o.asJSON {
		err = cli.PrintJSON(all)
	} else {
		err = printFabrics(cli.Stdout, all)
	}
	switch {
	case err != nil:
		return err
	case len(down) > 0:
		return cli.No(errors.New(strings.Join(down, "; ")))
	case len(bad) > 0:
		return cli.No(fmt.Errorf("incomplete or left over: %s; lightpath fabric down --left or --name removes them",
			strings.Join(bad, ", ")))
	}
	return nil
}

// planesDown returns the planes of a complete fabric with a port that is down.
func planesDown(p *kernel.Presence) string {
	if !p.Complete {
		return ""
	}
	s, err := kernel.Load(p.Name)
	if err != nil {
		return "" // it has just been taken down
	}
	r, err := kernel.Inspect(s)
	if err != nil {
		return ""
	}
	return strings.Join(r.Down(), ", ")
}

func printFabrics(out io.Writer, all []kernel.Presence) error {
	if len(all) == 0 {
		_, err := fmt.Fprintln(out, "no fabrics")
		return err
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "fabric\tranks\tstate")
	for _, p := range all {
		state := "up"
		if !p.Complete {
			state = "incomplete"
		}
		if p.Down != "" {
			state = "plane " + p.Down + " is down"
		}
		switch {
		case p.Left:
			state += fmt.Sprintf(", left over: process %d has ended", p.Owner)
		case p.Owner != 0:
			state += fmt.Sprintf(", until process %d ends", p.Owner)
		}
		fmt.Fprintf(w, "%s\t%d\t%s\n", p.Name, p.Ranks, state)
	}
	return w.Flush()
}

// sweepFabrics removes fabrics that ended processes left.
func sweepFabrics(o *flags) error {
	if err := cli.NeedRoot(); err != nil {
		return err
	}
	removed, err := kernel.Sweep()
	if err != nil {
		return err
	}
	if o.asJSON {
		return cli.PrintJSON(struct {
			Removed []string `json:"removed"`
		}{append([]string{}, removed...)})
	}
	for _, name := range removed {
		cli.Printf("%s: down\n", name)
	}
	if len(removed) == 0 {
		cli.Println("nothing is left over")
	}
	return nil
}

func printReport(out io.Writer, r *kernel.Report) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "plane\trank\tinterface\taddress\tto\tforwarded\tbytes\ttransit\t"+
		"returned\tdark\tmisdirected\toverflow\tqueued")
	for _, plane := range r.Planes {
		for _, p := range plane.Ports {
			to := "-"
			if p.To != circuit.Dark {
				to = strconv.Itoa(p.To)
			}
			state := p.Interface
			if !p.Up {
				state += " (down)"
			}
			c := p.Counters
			fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\n", plane.Name, p.Rank, state, p.Address, to,
				c.Forwarded, c.ForwardedBytes, c.Transit, c.Returned, c.Dark, c.Misdirected+c.CameBack+c.Strayed, p.Overflow,
				p.Queued)
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, p := range r.Problems {
		if _, err := fmt.Fprintln(out, p); err != nil {
			return err
		}
	}
	return nil
}
