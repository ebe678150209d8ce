package ocs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"lightpath/cmd/lightpath/cli"
	"lightpath/ocsctl/driver"
	"lightpath/ocsctl/driver/registry"
	"lightpath/plans/circuit"
	"lightpath/plans/fabric"
)

// New returns the command "ocs".
func New() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ocs",
		Short: "Look at and set the planes of a fabric, through their controller or on the switches themselves",
		Long: `Shows and sets the planes of a fabric, through their controller (lightpath ocsd) or on the switches themselves.
Begin with status, which changes nothing.`,
	}
	cmd.AddCommand(newStatus(), newSet(), newRewire(), newDrift(), newHistory(), newEnable(),
		newDisable(), newConfirm(), newPorts(), newBaseline(), newRemap(), newCerts())
	return cmd
}

// flags choose switches, and how to connect to them.
type flags struct {
	fabric, plane string
	asJSON        bool
	target        driver.Target
	timeout       time.Duration
	controllers   []string
	direct        bool // past the controller
}

// directOnly are the flags that a controller does not obey: its own file has them.
var directOnly = []string{"reply-timeout", "settle", "insecure-scpi", "user", "password-file", "known-hosts", "verify",
	"token"}

func (o *flags) add(cmd *cobra.Command) {
	fl := cmd.Flags()
	cli.FabricFlag(cmd, &o.fabric, "fabric file", "controller")
	fl.StringVar(&o.plane, "plane", "", "name or number of the plane")
	fl.BoolVar(&o.asJSON, "json", false, "print JSON")
	fl.DurationVar(&o.timeout, "timeout", time.Minute, "most time for the whole command")
	fl.DurationVar(&o.target.Timeout, "reply-timeout", 2*time.Second, "most time for one answer of a switch")
	fl.DurationVar(&o.target.Tolerance.Settle, "settle", 5*time.Second, "most time for circuits to come up")
	fl.BoolVar(&o.target.Insecure, "insecure-scpi", false,
		"allow SCPI, which is neither encrypted nor authenticated, off this host")
	o.addController(cmd)
	fl.BoolVar(&o.direct, "direct", false,
		"speak to the switches themselves, even if the fabric file names a controller")
	o.addCredentials(cmd)
	fl.StringVar(&o.target.User, "user", "", "user name (NETCONF)")
	fl.StringVar(&o.target.PasswordFile, "password-file", "", "file of the password (NETCONF)")
	fl.StringVar(&o.target.KnownHostsFile, "known-hosts", "", "file of the switches' host keys (NETCONF)")
}

// planes returns the fabric and the planes that the flags name: all without --plane.
func (o *flags) planes() (*fabric.Fabric, []int, error) {
	if o.fabric == "" {
		return nil, nil, errors.New("--fabric or --controller is required")
	}
	f, err := cli.LoadFabric(o.fabric)
	if err != nil {
		return nil, nil, err
	}
	all, err := o.selected(f.PlaneNames())
	if err != nil {
		return nil, nil, fmt.Errorf("--plane %s: %s has no such plane", o.plane, o.fabric)
	}
	for _, j := range all {
		switch sw := f.Switch(j); {
		case sw == nil:
			return nil, nil, fmt.Errorf("plane %s has no switch", f.Planes[j].Name)
		case sw.Driver == fabric.DriverEmulator:
			return nil, nil, fmt.Errorf("plane %s is on a switch that lightpath ocsd emulates: ask that controller, by "+
				"--controller HOST:PORT (listen: in its file) or with HOST:PORT among controller.endpoints of the fabric file",
				f.Planes[j].Name)
		}
	}
	return f, all, nil
}

// onePlane is planes for commands that need --plane.
func (o *flags) onePlane() (*fabric.Fabric, int, error) {
	if o.plane == "" && o.fabric != "" {
		return nil, 0, errors.New("--plane is required")
	}
	f, all, err := o.planes()
	if err != nil {
		return nil, 0, err
	}
	return f, all[0], nil
}

// open connects to the switch of a plane.
func (o *flags) open(ctx context.Context, f *fabric.Fabric, plane int) (driver.Switch, error) {
	ports, err := registry.Ports(f.Switch(plane), f.Planes[plane].Ports)
	if err != nil {
		return nil, err
	}
	return registry.Connect(ctx, f.Switch(plane), ports, o.target)
}

// planeStatus is the state of a plane's ports, as its switch reports it.
type planeStatus struct {
	Plane  string              `json:"plane"`
	Switch string              `json:"switch"`
	Driver string              `json:"driver"`
	Info   *driver.Info        `json:"info,omitempty"`
	Map    circuit.Permutation `json:"map,omitempty"`
	// Verified is the level to which the circuits are verified; "" if one of them is not good.
	Verified string           `json:"verified,omitempty"`
	Circuits []driver.Circuit `json:"circuits,omitempty"`
	Ports    []driver.Health  `json:"ports,omitempty"`
	Error    string           `json:"error,omitempty"`
}

func newStatus() *cobra.Command {
	var o flags
	cmd := &cobra.Command{
		Use:   "status [--fabric f.yaml | --controller host:port] [--plane p]",
		Short: "Show planes, their circuits and who uses them, or the switches and the health of ports",
		Long: `With a controller, named by --controller or the fabric file, status shows the controller's planes: epochs,
holders, and the operations that wait. It exits with 1 if a plane or a port is out of service.

Without a controller, or with --direct, status asks the switch of each plane for its identity, its map and the health of
its ports. It exits with 1 if a switch cannot be read, a port has failed, or a circuit has no light. Only some switches
can measure light.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.dispatch(cmd, o.statusOf, o.askAll)
		},
	}
	o.add(cmd)
	return cmd
}

// askAll shows the state of the planes, as their switches report it.
func (o *flags) askAll(ctx context.Context) error {
	f, planes, err := o.planes()
	if err != nil {
		return err
	}
	var all []planeStatus
	var problems []error
	for _, j := range planes {
		s := planeStatus{Plane: f.Planes[j].Name, Switch: f.Planes[j].OCS, Driver: f.Switch(j).Driver}
		if err := o.ask(ctx, f, j, &s); err != nil {
			s.Error = err.Error()
			problems = append(problems, fmt.Errorf("plane %s: %w", s.Plane, err))
		}
		all = append(all, s)
	}
	err = cli.Show(o.asJSON, all, func() { printStatus(cli.Stdout, all) })
	if err == nil && len(problems) > 0 {
		err = cli.No(problems[0])
	}
	return err
}

// ask fills in the state of a plane, as its switch reports it.
func (o *flags) ask(ctx context.Context, f *fabric.Fabric, plane int, s *planeStatus) error {
	sw, err := o.open(ctx, f, plane)
	if err != nil {
		return err
	}
	defer cli.HangUp(sw)
	info, err := sw.Info(ctx)
	if err != nil {
		return err
	}
	s.Info = &info
	known := driver.NewSession(sw, f.Ranks, driver.Rule{})
	s.Ports, err = known.Look(ctx)
	s.Map = known.Table()
	if err != nil {
		return err
	}
	for _, h := range s.Ports {
		if h.Failed {
			err = cmp.Or(err, fmt.Errorf("port %s is %s", h.Port, h.State))
		}
	}
	for r, to := range s.Map {
		if to == circuit.Dark {
			continue
		}
		c := known.Circuit(r)
		s.Circuits = append(s.Circuits, c)
		if !known.Good(r) {
			err = cmp.Or(err, fmt.Errorf("the circuit %d>%d, port %s: %s", r, to, s.Ports[f.Ranks+to].Port, c.Reason))
		}
	}
	if err == nil {
		s.Verified = known.Level(0, f.Ranks)
	}
	return err
}

func printStatus(w io.Writer, all []planeStatus) {
	for _, s := range all {
		fmt.Fprintf(w, "plane %s: switch %s, driver %s", s.Plane, s.Switch, s.Driver)
		if s.Info != nil {
			fmt.Fprint(w, printable(fmt.Sprintf(", %s %s, serial %s, software %s", s.Info.Vendor, s.Info.Model, s.Info.Serial,
				s.Info.Software)))
		}
		fmt.Fprintln(w)
		if s.Error != "" {
			fmt.Fprintf(w, "  problem: %s\n", printable(s.Error))
		}
		if s.Map != nil {
			fmt.Fprintf(w, "  circuits: %s%s\n", circuitList(s.Map), verifiedBy(s.Verified))
		}
		for _, h := range s.Ports {
			power := ""
			if h.HasPower {
				power = fmt.Sprintf(" %7.2f dBm", h.PowerDBm)
			}
			fmt.Fprintf(w, "  port %-8s %-10s%s\n", h.Port, orDash(h.State), power)
		}
	}
}

// verifiedBy puts into words how far circuits are verified; "" says nothing.
func verifiedBy(level string) string {
	if level == "" {
		return ""
	}
	return ", verified by " + printable(level)
}

// circuitList writes the circuits of a map by rank.
func circuitList(p circuit.Permutation) string {
	if p == nil {
		return "unknown"
	}
	var b strings.Builder
	for r, s := range p {
		if s != circuit.Dark {
			fmt.Fprintf(&b, " %d>%d", r, s)
		}
	}
	if b.Len() == 0 {
		return "none"
	}
	return b.String()[1:]
}
