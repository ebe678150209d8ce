package ocs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"lightpath/cmd/lightpath/cli"
	"lightpath/ocsctl"
	"lightpath/ocsctl/controller"
	"lightpath/ocsctl/controller/rpc"
	"lightpath/ocsctl/driver"
	"lightpath/plans/circuit"
	"lightpath/shim"
)

// addController adds the flags that name controllers.
func (o *flags) addController(cmd *cobra.Command) {
	cmd.Flags().StringSliceVar(&o.controllers, "controller", nil,
		"host:port of controllers (gRPC); by default from the fabric file")
}

// addCredentials adds the flags for this client's certificate and key.
func (o *flags) addCredentials(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVar(&o.target.CAFile, "ca", "", "file of the certificate authority of controllers, or of switches (gNMI)")
	fl.StringVar(&o.target.CertFile, "cert", "", "file of our certificate")
	fl.StringVar(&o.target.KeyFile, "key", "", "file of our key")
}

// operator connects to the controllers that the flags or the fabric file name. It returns nil if the command goes to
// the switches directly.
func (o *flags) operator() (*rpc.Operator, error) {
	if o.direct && len(o.controllers) > 0 {
		return nil, errors.New("--direct goes past the controller that --controller names: one of them is enough")
	}
	if o.direct {
		return nil, nil
	}
	endpoints := o.controllers
	t := rpc.Options{CA: o.target.CAFile, Cert: o.target.CertFile, Key: o.target.KeyFile, Version: shim.Version}
	if len(endpoints) == 0 {
		if o.fabric == "" {
			return nil, nil
		}
		f, err := cli.LoadFabric(o.fabric)
		if err != nil {
			return nil, err
		}
		for _, e := range f.Controller.Endpoints { // sockets on this host speak another protocol
			if !strings.HasPrefix(e, "unix:") {
				endpoints = append(endpoints, e)
			}
		}
		if len(endpoints) == 0 {
			return nil, nil
		}
		if t.CA == "" && t.Cert == "" && t.Key == "" {
			t.CA, t.Cert, t.Key = f.Controller.TLS.CA, f.Controller.TLS.Cert, f.Controller.TLS.Key
		}
	}
	return rpc.DialOperator(endpoints, t)
}

// dispatch runs cmd through the controllers, if there are any, or on the switches directly, within its time limit.
func (o *flags) dispatch(cmd *cobra.Command, byController func(context.Context, *rpc.Operator) error,
	direct func(context.Context) error) error {
	if err := cli.Positive("--timeout", o.timeout); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), o.timeout)
	defer cancel()
	op, err := o.operator()
	if err != nil {
		return err
	}
	if op == nil {
		return direct(ctx)
	}
	defer cli.HangUp(op)
	for _, name := range directOnly {
		if cmd.Flags().Changed(name) {
			return fmt.Errorf("--%s is for --direct: the controller has its own", name)
		}
	}
	return byController(ctx, op)
}

// operatorName returns the name of this command's user for the history.
func operatorName() string {
	host, _ := os.Hostname()
	if u, err := user.Current(); err == nil {
		return u.Username + "@" + host
	}
	return host
}

// look asks a controller for its state, and also returns the planes that --plane names.
func (o *flags) look(ctx context.Context, op *rpc.Operator) (controller.Snapshot, []int, error) {
	s, err := op.Status(ctx)
	if err != nil {
		return s, nil, cli.No(err)
	}
	planes, err := o.selected(planeNames(&s))
	if err != nil {
		err = fmt.Errorf("--plane: %w", err)
	}
	return s, planes, err
}

func planeNames(s *controller.Snapshot) (names []string) {
	for _, p := range s.Planes {
		names = append(names, p.Name)
	}
	return names
}

// selected returns which of the named planes --plane means: all without.
func (o *flags) selected(names []string) (all []int, err error) {
	j, err := planeNumber(o.plane, names)
	switch {
	case err != nil:
		return nil, err
	case j != controller.AnyPlane:
		return []int{j}, nil
	}
	for j := range names {
		all = append(all, j)
	}
	return all, nil
}

// statusOf shows the state of a controller, and is a "no" while a plane is out of service.
func (o *flags) statusOf(ctx context.Context, op *rpc.Operator) error {
	s, planes, err := o.look(ctx, op)
	if err != nil {
		return err
	}
	err = cli.Show(o.asJSON, s, func() { printSnapshot(cli.Stdout, &s, planes) })
	for _, j := range planes {
		if p := &s.Planes[j]; err == nil && p.State == controller.Down {
			err = cli.No(fmt.Errorf("plane %s is out of service: %s", printable(p.Name), printable(p.Reason)))
		} else if err == nil && len(p.Out) > 0 {
			err = cli.No(fmt.Errorf("port %d of plane %s is out of service: %s", p.Out[0].Port, printable(p.Name),
				printable(p.Out[0].Why)))
		}
	}
	return err
}

func printSnapshot(w io.Writer, s *controller.Snapshot, planes []int) {
	fmt.Fprintf(w, "controller %s, token %d\n", printable(s.Name), s.Token)
	for _, j := range planes {
		printPlane(w, &s.Planes[j], s.Time)
	}
	for _, p := range s.Ports {
		if p.Attached {
			fmt.Fprintf(w, "port %d: %s, for %v\n", p.Port, printable(p.Who), s.Time.Sub(p.Since).Round(time.Second))
		}
	}
	for _, l := range s.Queue {
		fmt.Fprintf(w, "port %d, holder %s%s waits for planes %s, for %v\n",
			l.Port, ocsctl.HolderName(l.Holder), ofJob(l.Job), namesOf(s, l.Mask), s.Time.Sub(l.Since).Round(time.Millisecond))
	}
}

// namesOf lists the planes of a mask by name.
func namesOf(s *controller.Snapshot, mask uint64) string {
	var all []string
	for j := range s.Planes {
		if mask>>j&1 != 0 {
			all = append(all, printable(s.Planes[j].Name))
		}
	}
	return strings.Join(all, ",")
}

func printPlane(w io.Writer, p *controller.PlaneSnapshot, now time.Time) {
	fmt.Fprintf(w, "plane %s: %s, epoch %d, %d switches, %d failures\n", printable(p.Name), p.State, p.Epoch, p.Switches,
		p.Failures)
	if p.Reason != "" {
		fmt.Fprintf(w, "  problem: %s\n", printable(p.Reason))
	}
	fmt.Fprintf(w, "  circuits: %s%s\n", circuitList(p.Map), verifiedBy(p.Verified))
	if p.Desired != nil {
		fmt.Fprintf(w, "  desired: %s\n", circuitList(p.Desired))
	}
	if p.Target != nil {
		fmt.Fprintf(w, "  moves to: %s\n", circuitList(p.Target))
	}
	if len(p.Posted)+len(p.Missing) > 0 {
		fmt.Fprintf(w, "  ports that have posted: %v, missing: %v\n", p.Posted, p.Missing)
	}
	if t := p.Trial; t != nil {
		fmt.Fprintf(w, "  change of %s to be confirmed until %s\n", printable(t.Who), t.Until.Local().Format(time.TimeOnly))
	}
	for _, o := range p.Out {
		fmt.Fprintf(w, "  port %d is out of service: %s\n", o.Port, printable(o.Why))
	}
	if len(p.Dim) > 0 {
		fmt.Fprintf(w, "  ports with fading light: %v\n", p.Dim)
	}
	for _, h := range p.Holders {
		fmt.Fprintf(w, "  held by port %d, holder %s%s, for %v\n", h.Port, ocsctl.HolderName(h.Holder), ofJob(h.Job),
			now.Sub(h.Since).Round(time.Millisecond))
	}
}

// ofJob names the job of a lease, if it has one.
func ofJob(id string) string {
	if id == "" {
		return ""
	}
	return " of job " + printable(id)
}

// commandReport is the result of a controller's command on a plane.
type commandReport struct {
	Plane    string                `json:"plane"`
	State    controller.PlaneState `json:"state"`
	Epoch    uint32                `json:"epoch"`
	Before   circuit.Permutation   `json:"before"`
	After    circuit.Permutation   `json:"after"`
	Remove   [][2]int              `json:"remove"` // circuits: from, to
	Add      [][2]int              `json:"add"`
	Reason   string                `json:"reason,omitempty"`   // why the plane is out of service
	Verified string                `json:"verified,omitempty"` // how far; "" where the command has failed
	Trial    *controller.Trial     `json:"trial,omitempty"`    // the change is to be confirmed
	Error    string                `json:"error,omitempty"`
}

// report shows what a command has changed in planes, and why it failed, if it did. s is the state before.
func (o *flags) report(ctx context.Context, op *rpc.Operator, s *controller.Snapshot, planes []int,
	failed error) error {
	now, err := op.Status(ctx)
	if err != nil && failed == nil {
		failed = fmt.Errorf("done, but the planes cannot be seen afterwards: %w", err)
	}
	var all []commandReport
	for _, j := range planes {
		before, after := &s.Planes[j], &s.Planes[j]
		if err == nil && j < len(now.Planes) {
			after = &now.Planes[j]
		}
		all = append(all, newReport(before, after, failed))
	}
	if err := o.showReports(all); err != nil || failed == nil {
		return err
	}
	return cli.No(failed)
}

func newReport(before, after *controller.PlaneSnapshot, failed error) commandReport {
	r := commandReport{Plane: after.Name, State: after.State, Epoch: after.Epoch, Before: before.Map, After: after.Map,
		Reason: after.Reason, Trial: after.Trial}
	var remove, add []circuit.Pair
	if before.Map != nil && after.Map != nil { // both are known
		remove, add = driver.Delta(before.Map, after.Map)
	}
	r.Remove, r.Add = fromTo(remove), fromTo(add)
	if failed != nil {
		r.Error = failed.Error()
	} else {
		r.Verified = after.Verified
	}
	return r
}

// showReports shows one plane as an object of JSON, several as a list.
func (o *flags) showReports(all []commandReport) error {
	var v any = all
	if len(all) == 1 {
		v = all[0]
	}
	return cli.Show(o.asJSON, v, func() {
		for i := range all {
			printCommand(cli.Stdout, &all[i])
		}
	})
}

func printCommand(w io.Writer, r *commandReport) {
	printCircuits(w, "-", r.Remove)
	printCircuits(w, "+", r.Add)
	fmt.Fprintf(w, "plane %s: %s at epoch %d%s: %s\n", printable(r.Plane), r.State, r.Epoch, verifiedBy(r.Verified),
		circuitList(r.After))
	if t := r.Trial; t != nil {
		fmt.Fprintf(w, "  to be confirmed until %s, otherwise undone: lightpath ocs confirm\n",
			t.Until.Local().Format(time.TimeOnly))
	}
	if r.Reason != "" && r.Error == "" { // a disabled plane that was set, say
		fmt.Fprintf(w, "  %s\n", printable(r.Reason))
	}
}

// driftOf shows where planes are not as desired, as their controller sees it.
func (o *flags) driftOf(ctx context.Context, op *rpc.Operator) error {
	s, planes, err := o.look(ctx, op)
	if err != nil {
		return err
	}
	var found error
	all := []driftReport{}
	for _, j := range planes {
		p := &s.Planes[j]
		r := driftReport{Plane: p.Name, Desired: p.Desired, Map: p.Map, Drifted: []int{}, Reason: p.Reason}
		if r.Desired == nil {
			r.Desired = p.Map
		}
		if p.State == controller.Down { // else it is on its way
			r.compare()
		}
		if err := r.verdict(); found == nil {
			found = err
		}
		all = append(all, r)
	}
	if err := cli.Show(o.asJSON, all, func() { printDrift(cli.Stdout, all) }); err != nil {
		return err
	}
	return found
}

func printDrift(w io.Writer, all []driftReport) {
	for _, r := range all {
		for _, rank := range r.Drifted {
			fmt.Fprintf(w, "  %d: desired %s, observed %s\n", rank, circuit.PortName(r.Desired[rank]),
				circuit.PortName(r.Map[rank]))
		}
		switch {
		case r.Reason != "":
			fmt.Fprintf(w, "plane %s: out of service: %s\n", printable(r.Plane), printable(r.Reason))
		case len(r.Drifted) == 0:
			fmt.Fprintf(w, "plane %s: no drift\n", printable(r.Plane))
		}
	}
}
