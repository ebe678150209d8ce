package fabric

import (
	"context"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"lightpath/bench/calibrate"
	"lightpath/cmd/lightpath/cli"
	"lightpath/internal/files"
	"lightpath/ocsctl/kernel"
	"lightpath/plans/fabric"
)

func newCalibrate() *cobra.Command {
	var o flags
	var c calibrate.Options
	var write bool
	var launch string
	cmd := &cobra.Command{
		Use:   "calibrate --fabric fabric.yaml",
		Short: "Measure what the planes of a fabric that is up cost",
		Long: `Runs collectives over the planes of a fabric that is up and idle, and fits the cost model to their times.
Prints the costs with quartiles: alpha, hop, bandwidth, and a reconfiguration from the last byte before it to the first
after it. Compares the prediction for an AllReduce with its time. If no controller runs, the command starts one
meanwhile.

--write writes a cost into the fabric file if it differs by more than the measurement noise; comments and layout stay.
Planes in the kernel are built from that file. So after a change take the fabric down and up, and start its controller
again. A second calibration finds the same costs: emulated switches take the time of their reconfig, and the measured
time beyond it is costs.barrier. A bandwidth whose quartiles are within 2 % of the file's is not written.

With several hosts, run the command on the first host of the file, and say with --launch how to start a rank on another
host. The ranks, the fabric file and the libraries must have the same paths on all hosts. With --write, copy the file to
the other hosts.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c.Launch = strings.Fields(launch)
			f, err := o.standing(&c)
			if err != nil {
				return err
			}
			if c.Worker, err = cli.SiblingFile("bin", "lightpath-rank"); err != nil {
				return err
			}
			if c.Fabric, err = filepath.Abs(o.file); err != nil {
				return err
			}
			c.Lightpath = cli.SelfPath()
			return o.calibrate(cmd.Context(), c, f, write)
		},
	}
	o.add(cmd)
	cmd.Flags().BoolVar(&write, "write", false, "put the costs into the fabric file")
	cmd.Flags().StringVar(&launch, "launch", "",
		"command that starts a process on another host, such as \"ssh {host}\"; {host} is its name in the file")
	cmd.Flags().IntVarP(&c.Ranks, "ranks", "n", 0, "ranks that take part (0: all of the fabric)")
	cmd.Flags().IntVarP(&c.Iters, "iters", "i", calibrate.DefaultIters, "timed iterations of each run")
	cmd.Flags().IntVar(&c.Rounds, "rounds", calibrate.DefaultRounds, "how often each run is made")
	return cmd
}

// calibrate measures the costs, writes them into the fabric file if asked, and shows them.
func (o *flags) calibrate(ctx context.Context, c calibrate.Options, f *fabric.Fabric, write bool) error {
	c.Progress = cli.ProgressLine()
	r, err := calibrate.Run(ctx, c)
	c.Progress("")
	if err != nil {
		return cli.No(err)
	}
	report := calibration{Result: r}
	report.propose(f)
	if write && len(report.Changes) > 0 {
		if err := report.write(o.file, f); err != nil {
			return err
		}
	}
	if o.asJSON {
		return cli.PrintJSON(&report)
	}
	return report.print(cli.Stdout, f)
}

// standing returns the fabric of the file. The fabric must be up as the file says, and suit the options.
func (o *flags) standing(c *calibrate.Options) (*fabric.Fabric, error) {
	f, err := cli.LoadFabric(o.file)
	if err != nil {
		return nil, err
	}
	if err := c.CheckLaunch(f); err != nil {
		return nil, fmt.Errorf("--%w", err)
	}
	if err := cli.NeedRoot(); err != nil {
		return nil, err
	}
	host := ""
	if len(f.Hosts) > 1 {
		host = f.Hosts[0].Name
	}
	if _, err := kernel.LoadOn(f, host); err != nil {
		return nil, cli.NoIf(err, kernel.Refused)
	}
	return f, nil
}

// calibration is the output of the command.
type calibration struct {
	*calibrate.Result
	// Changes are fields of the fabric file whose values do not agree with what was measured.
	Changes []change `json:"changes"`
	Written bool     `json:"written"`

	fabric fabric.Fabric // with the changes
}

// change is a field of the fabric file, its value and the one measured.
type change struct {
	Field string `json:"field"`
	From  string `json:"from"`
	To    string `json:"to"`
}

// rateTolerance is by how much a measured bandwidth may be off before the file is changed. Planes are
// shaped to what the file says, so smaller differences are the measurement's, and would add up from one
// calibration to the next.
const rateTolerance = 0.02

// propose lists the changes that the measurement asks for. An estimate whose quartiles enclose the
// value in the file asks for none, nor does one within a twentieth of it: a file that has been
// calibrated stays as it is.
func (c *calibration) propose(f *fabric.Fabric) {
	c.Changes = []change{}
	c.fabric = *f
	c.fabric.Planes = append([]fabric.Plane(nil), f.Planes...)
	c.fabric.OCS = append([]fabric.OCS(nil), f.OCS...)
	c.latency("costs.alpha", &c.fabric.Costs.Alpha, c.AlphaUS)
	c.latency("costs.hop", &c.fabric.Costs.Hop, c.HopUS)
	have := float64(f.Planes[0].Bandwidth) / 1e9
	if b := c.BandwidthGbps; b.High < have*(1-rateTolerance) || b.Low > have*(1+rateTolerance) {
		rate := fabric.Rate(calibrate.Digits(b.Value) * 1e9)
		c.Changes = append(c.Changes, change{"planes.bandwidth", f.Planes[0].Bandwidth.String(), rate.String()})
		for j := range c.fabric.Planes {
			c.fabric.Planes[j].Bandwidth = rate
		}
	}
	if c.ReconfigUS == nil {
		return
	}
	slowest := f.Switch(0)
	for j := range f.Planes {
		if o := f.Switch(j); o.Reconfig > slowest.Reconfig {
			slowest = o
		}
	}
	if slowest.Driver == fabric.DriverEmulator {
		beyond := *c.ReconfigUS
		for _, v := range []*float64{&beyond.Value, &beyond.Low, &beyond.High} {
			*v = max(*v-float64(slowest.Reconfig)/1e3, 0)
		}
		c.latency("costs.barrier", &c.fabric.Costs.Barrier, &beyond)
		return
	}
	for i := range c.fabric.OCS { // all switches that planes use were measured as one
		whole := *c.ReconfigUS
		for _, v := range []*float64{&whole.Value, &whole.Low, &whole.High} {
			*v = max(*v-float64(f.Costs.Barrier)/1e3, 0)
		}
		c.latency("ocs."+f.OCS[i].Name+".reconfig", &c.fabric.OCS[i].Reconfig, &whole)
	}
}

// latency changes a duration of the file to an estimate.
func (c *calibration) latency(field string, to *time.Duration, e *calibrate.Estimate) {
	if e == nil {
		return
	}
	have := float64(*to) / 1e3
	if have >= e.Low && have <= e.High || math.Abs(have-e.Value) <= e.Value/20 {
		return
	}
	d := time.Duration(math.Round(calibrate.Digits(e.Value) * 1e3))
	if d == *to {
		return
	}
	c.Changes = append(c.Changes, change{field, to.String(), d.String()})
	*to = d
}

// write makes the changes in the file, all or none.
func (c *calibration) write(path string, old *fabric.Fabric) error {
	data, err := files.Read(path, cli.MaxInput)
	if err != nil {
		return fmt.Errorf("--write: %w", err)
	}
	now, err := fabric.Decode(data)
	switch {
	case err != nil:
		return fmt.Errorf("--write: %s: %w", path, err)
	case now.Digest() != old.Digest():
		return cli.No(fmt.Errorf("--write: %s has changed meanwhile", path))
	}
	now.Costs, now.Planes, now.OCS = c.fabric.Costs, c.fabric.Planes, c.fabric.OCS
	text, err := fabric.Rewrite(data, now)
	if err != nil {
		return fmt.Errorf("--write: %s: %w", path, err)
	}
	if err := cli.WriteOutput("write", path, text); err != nil {
		return err
	}
	c.Written = true
	return nil
}

// print writes the table.
func (c *calibration) print(out io.Writer, f *fabric.Fabric) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "%d ranks, %d planes\tmeasured\tquartiles\tsamples\tin the file\n", c.Ranks, c.Planes)
	row := func(name, unit string, e *calibrate.Estimate, file string) {
		if e != nil {
			fmt.Fprintf(w, "%s\t%.4g %s\t%.4g..%.4g\t%d\t%s\n", name, e.Value, unit, e.Low, e.High, e.Samples, file)
		}
	}
	row("alpha", "us", c.AlphaUS, f.Costs.Alpha.String())
	row("hop", "us", c.HopUS, f.Costs.Hop.String())
	row("bandwidth", "Gb/s", c.BandwidthGbps, f.Planes[0].Bandwidth.String())
	row("reconfiguration", "us", c.ReconfigUS, fmt.Sprintf("%gus", f.Problem().ReconfigUS))
	row("a call besides", "us", c.CallUS, "-")
	fmt.Fprintf(w, "\nr2 %.4f\tbytes\tmeasured us\tquartiles\tpredicted us\toff\n", c.R2)
	check := c.Check
	check.Name = "fresh " + check.Name
	for _, l := range append(c.Lines[:len(c.Lines):len(c.Lines)], check) {
		fmt.Fprintf(w, "%s\t%d\t%.0f\t%.0f..%.0f\t%.0f\t%+.1f %%\n", l.Name, l.Bytes, l.MeasuredUS, l.LowUS, l.HighUS,
			l.PredictedUS, 100*l.Error())
	}
	fmt.Fprintln(w)
	for _, d := range c.Changes {
		fmt.Fprintf(w, "%s\t%s -> %s\n", d.Field, d.From, d.To)
	}
	switch {
	case len(c.Changes) == 0:
		fmt.Fprintln(w, "the fabric file agrees with this")
	case c.Written:
		fmt.Fprintln(w, "written; the planes that are up were made from the file as it was: lightpath fabric down, up, "+
			"and start the controller again")
	default:
		fmt.Fprintln(w, "--write puts this into the fabric file")
	}
	return w.Flush()
}
