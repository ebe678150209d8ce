package ocs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"lightpath/cmd/lightpath/cli"
	"lightpath/ocsctl"
	"lightpath/ocsctl/controller"
	"lightpath/ocsctl/controller/web"
)

// maxHistory is the most events that one ocs history prints.
const maxHistory = 1_000_000

// historyFlags choose the controllers, the connection and the events.
type historyFlags struct {
	flags
	http, since string
	ports       []int
	kinds       []string
	limit       int
}

func newHistory() *cobra.Command {
	var o historyFlags
	cmd := &cobra.Command{
		Use:   "history --fabric f.yaml | --controller host:port | --http URL [--plane p] [--since 1h]",
		Short: "Show what has happened to the planes: switches, failures, grants, operators, takeovers",
		Long: `Prints the events in a controller's journal, the oldest first. With the journal in etcd, a
controller that stands by answers too. The controllers are in the fabric file (by default LIGHTPATH_FABRIC), or named
by --controller or --http. Exits with 1 if none answers.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cli.Positive("--timeout", o.timeout); err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), o.timeout)
			defer cancel()
			events, names, err := o.read(ctx)
			if err != nil {
				return err
			}
			slices.Reverse(events)
			if o.asJSON {
				return cli.PrintJSON(append([]controller.Event{}, events...)) // [] for none
			}
			return printHistory(cli.Stdout, events, names)
		},
	}
	fl := cmd.Flags()
	o.addController(cmd)
	o.addCredentials(cmd)
	cli.FabricFlag(cmd, &o.fabric, "fabric file: its controllers, certificates and names of planes", "controller", "http")
	fl.StringVar(&o.http, "http", "", "URL of a controller's page")
	fl.DurationVar(&o.timeout, "timeout", 10*time.Second, "most time for the whole command")
	fl.StringVar(&o.plane, "plane", "", "only this plane: name or number")
	fl.StringVar(&o.since, "since", "", "only from then on: how long ago (1h) or a time (2006-01-02T15:04:05Z)")
	fl.StringSliceVar(&o.kinds, "kind", nil, "only events of these kinds: switched, failed, restored, granted, ...")
	fl.IntSliceVar(&o.ports, "port", nil, "only events about these ports: their ranks, jobs, circuits and light")
	fl.IntVar(&o.limit, "limit", 50, "most events, the newest ones")
	fl.BoolVar(&o.asJSON, "json", false, "print JSON")
	return cmd
}

// Read returns the requested events, newest first, and the known names of planes.
func (o *historyFlags) read(ctx context.Context) ([]controller.Event, []string, error) {
	if o.limit < 1 || o.limit > maxHistory {
		return nil, nil, fmt.Errorf("--limit %d: not within 1..%d", o.limit, maxHistory)
	}
	q := controller.Query{Limit: o.limit, Ports: o.ports}
	if slices.ContainsFunc(q.Ports, func(p int) bool { return p < 0 || p >= controller.MaxPorts }) {
		return nil, nil, fmt.Errorf("--port %v: not a port", q.Ports)
	}
	var err error
	if o.since != "" {
		if q.Since, err = web.ParseSince(o.since, time.Now()); err != nil {
			return nil, nil, fmt.Errorf("--since: %w", err)
		}
	}
	if q.Kinds, err = web.ParseKinds(o.kinds); err != nil {
		return nil, nil, fmt.Errorf("--kind: %w", err)
	}
	source, names, err := o.source(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer cli.HangUp(source)
	if q.Plane, err = planeNumber(o.plane, names); err != nil {
		return nil, nil, fmt.Errorf("--plane: %w", err)
	}
	events, err := controller.ReadHistory(ctx, source.History, q)
	if err != nil {
		return nil, nil, cli.No(err)
	}
	return events, names, nil
}

// historySource is a controller that can be asked.
type historySource interface {
	controller.History
	io.Closer
}

// source connects to the controllers that the flags name, and asks for the names of their planes.
func (o *historyFlags) source(ctx context.Context) (historySource, []string, error) {
	if o.http != "" {
		if o.fabric != "" || len(o.controllers) > 0 {
			return nil, nil, errors.New("--http is instead of --fabric and --controller")
		}
		return o.page(ctx)
	}
	op, err := o.operator()
	if err == nil && op == nil {
		err = errors.New("--controller, --http, or a --fabric file that names a controller as host:port is required")
	}
	if err != nil {
		return nil, nil, err
	}
	var names []string
	if o.fabric != "" {
		f, err := cli.LoadFabric(o.fabric)
		if err != nil {
			cli.HangUp(op)
			return nil, nil, err
		}
		names = f.PlaneNames()
	} else if s, err := op.Status(ctx); err == nil { // a standby does not know: then planes have numbers only
		names = planeNames(&s)
	}
	return op, names, nil
}

// page is source for the page of a controller.
func (o *historyFlags) page(ctx context.Context) (historySource, []string, error) {
	c, err := web.Dial(o.http, o.target.CAFile, o.target.CertFile, o.target.KeyFile)
	if err != nil {
		return nil, nil, fmt.Errorf("--http: %w", err)
	}
	s, err := c.Status(ctx)
	if err != nil {
		cli.HangUp(c)
		return nil, nil, cli.No(err)
	}
	return c, s.Names, nil
}

// planeNumber finds a plane by name or number; "" is any.
func planeNumber(text string, names []string) (int, error) {
	if text == "" {
		return controller.AnyPlane, nil
	}
	if j := slices.Index(names, text); j >= 0 {
		return j, nil
	}
	j, err := strconv.Atoi(text)
	if err != nil || j < 0 || names != nil && j >= len(names) || j >= controller.MaxPlanes {
		return 0, fmt.Errorf("there is no plane %q", text)
	}
	return j, nil
}

// onePlaneOf is planeNumber for lists of planes, in which each element names one.
func onePlaneOf(text string, names []string) (int, error) {
	if text == "" {
		return 0, errors.New("a name is empty")
	}
	return planeNumber(text, names)
}

// printHistory writes events as a table.
func printHistory(w io.Writer, events []controller.Event, names []string) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "TIME\tPLANE\tEPOCH\tEVENT\tTOOK\tWAITED\tVERIFIED\tWHO\tERROR")
	for i := range events {
		e := &events[i]
		epoch := "-"
		if e.Plane >= 0 {
			epoch = strconv.FormatUint(uint64(e.Epoch), 10)
		}
		fmt.Fprintln(t, strings.Join([]string{
			e.Time.Local().Format("2006-01-02 15:04:05.000"), planesColumn(e, names), epoch, orDash(string(e.Kind)),
			durationColumn(e.Took), durationColumn(e.Waited),
			orDash(e.Verified), whoColumn(e), orDash(e.Err),
		}, "\t"))
	}
	return t.Flush()
}

// planesColumn names the planes that an event concerns.
func planesColumn(e *controller.Event, names []string) string {
	name := func(j int) string {
		if j < len(names) && names[j] != "" {
			return printable(names[j])
		}
		return strconv.Itoa(j)
	}
	if e.Plane >= 0 {
		return name(e.Plane)
	}
	var all []string
	for j := range controller.MaxPlanes {
		if e.Mask>>j&1 != 0 {
			all = append(all, name(j))
		}
	}
	return orDash(strings.Join(all, ","))
}

// whoColumn returns the text for the cause of an event: its holder, port or operator.
func whoColumn(e *controller.Event) string {
	var parts []string
	if e.Job != nil {
		parts = append(parts, "job "+e.Job.ID)
	}
	if e.Holder != 0 {
		parts = append(parts, "holder "+ocsctl.HolderName(e.Holder))
	}
	if e.Port >= 0 {
		parts = append(parts, fmt.Sprintf("port %d", e.Port))
	}
	if e.Moved != nil {
		parts = append(parts, fmt.Sprintf("now %s, %s in the fabric file", e.Moved.To, e.Moved.From))
	}
	if len(e.Baselines) > 0 {
		parts = append(parts, fmt.Sprintf("baselines of %d ports", len(e.Baselines)))
	}
	if e.Trial != nil {
		parts = append(parts, "to be confirmed until "+e.Trial.Until.Local().Format(time.TimeOnly))
	}
	if e.Who != "" {
		parts = append(parts, e.Who)
	}
	if e.Kind == controller.TookOver {
		parts = append(parts, fmt.Sprintf("token %d", e.Token))
	}
	return orDash(strings.Join(parts, ", "))
}

func durationColumn(d time.Duration) string {
	if d == 0 {
		return "-"
	}
	return d.Round(time.Microsecond).String()
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return printable(text)
}

// printable makes text from elsewhere safe for a terminal, and for one cell of a table.
func printable(text string) string { return cli.Printable(text, "") }
