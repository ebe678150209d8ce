package topology

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"lightpath/bench/figure"
	"lightpath/cmd/lightpath/cli"
	"lightpath/plans/lumos/cluster"
)

// simulateFlags choose the jobs and the fabrics.
type simulateFlags struct {
	fabrics []string
	gpus    int
	routing string
	dark    time.Duration

	trace    string
	rescale  bool
	arrivals string
	jobs     int
	level    float64
	seed     uint64

	iterations int
	naive      bool

	json, svg, csv string
}

func newLumosSimulate() *cobra.Command {
	var f simulateFlags
	cmd := &cobra.Command{
		Use:   "simulate",
		Short: "Run a trace of jobs on clusters at flow level: running, waiting and completion times",
		Long: "Run a trace of jobs on clusters at flow level: running, waiting and completion times (JRT, JWT, JCT).\n\n" +
			"Fabrics are best (one switch for all GPUs), clos-TIERS-CHIP and lumos-TAU-CHIP, with the chip of a\n" +
			"packet switch in Tb/s. Their ports are the fastest that still give the number of GPUs. The table compares all\n" +
			"fabrics with the first. Without --trace the jobs are synthetic: sizes of TPUv4 slices, running times of\n" +
			"Helios, Poisson arrivals.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	fl := cmd.Flags()
	fl.StringSliceVar(&f.fabrics, "fabrics", cluster.FabricsOfThePaper(), "clusters to simulate")
	fl.IntVar(&f.gpus, "gpus", 4096, "GPUs of each cluster")
	fl.StringVar(&f.routing, "routing", "",
		"how flows choose among equal paths: probe, ecmp, or, with an optical core, central (default there)")
	fl.DurationVar(&f.dark, "dark", 2380*time.Millisecond, "how long a moved circuit carries nothing")
	fl.StringVar(&f.trace, "trace", "",
		"CSV of jobs, as of Helios: job_id, gpu_num, state, submit_time, duration (- for standard input)")
	fl.BoolVar(&f.rescale, "rescale", false,
		"give the k-th smallest job of a trace the k-th smallest synthetic size, as the paper does")
	fl.StringVar(&f.arrivals, "arrivals", "",
		"trace: the times of the file; poisson: at the workload level (default: trace with --trace)")
	fl.IntVar(&f.jobs, "jobs", 1000, "synthetic jobs, or the first so many of a trace (0: all)")
	fl.Float64Var(&f.level, "level", 0.655,
		"workload level of Poisson arrivals: GPU time that jobs ask for, as a fraction of the cluster's")
	fl.Uint64Var(&f.seed, "seed", 1, "seed of jobs and paths")
	fl.IntVar(&f.iterations, "iterations", 10, "iterations of a job")
	fl.BoolVar(&f.naive, "naive", false, "do not arrange the ranks of jobs")
	fl.StringVar(&f.json, "json", "", "write the table as JSON (- for standard output)")
	fl.StringVar(&f.svg, "svg", "", "draw the distributions over jobs")
	fl.StringVar(&f.csv, "csv", "", "write every job's times on every fabric")
	return cmd
}

func (f *simulateFlags) run(cmd *cobra.Command) error {
	if !slices.Contains([]string{"", "trace", "poisson"}, f.arrivals) {
		return fmt.Errorf("--arrivals: %q is neither trace nor poisson", f.arrivals)
	}
	if cmd.Flags().Changed("level") && f.trace != "" && f.arrivals != "poisson" {
		return errors.New("--level needs --arrivals poisson, or jobs without --trace")
	}
	if err := cmp.Or(cli.CheckOutput("json", f.json), cli.CheckOutput("svg", f.svg),
		cli.CheckOutput("csv", f.csv)); err != nil {
		return err
	}
	fabrics, err := f.parseFabrics()
	if err != nil {
		return err
	}
	jobs, err := f.readJobs()
	if err != nil {
		return err
	}
	o := figure.Options{Progress: cli.Progress("jobs")}
	c, err := figure.Simulate(cmd.Context(), o, jobs, fabrics,
		cluster.Config{Iterations: f.iterations, Seed: f.seed, Naive: f.naive})
	if err != nil && (cli.StoppedBy(cmd.Context()) == nil || !c.Keep()) {
		return err
	}
	return cli.Deliver(cmd.Context(), "fabrics", func() error { return f.write(c, len(jobs)) })
}

// write writes the table, the picture and the times of jobs.
func (f *simulateFlags) write(c *figure.Clusters, jobs int) error {
	table := c.Table()
	if f.json != "-" {
		across := table.Transposed()
		cli.Print(across.Text())
	}
	fig := &figure.Figure{Paper: "lumoscore", Name: "simulate", Title: fmt.Sprintf("%d jobs on %d GPUs", jobs, f.gpus),
		Columns: 2, Panels: c.Panels(), Table: table}
	if f.trace == "" {
		fig.Notes = []string{figure.ClusterNote}
		fmt.Fprintln(os.Stderr, figure.ClusterNote)
	}
	for _, out := range []struct {
		flag, path string
		make       func() ([]byte, error)
	}{
		{"json", f.json, fig.JSON},
		{"svg", f.svg, fig.SVG},
		{"csv", f.csv, func() ([]byte, error) { return outcomes(c), nil }},
	} {
		if out.path == "" {
			continue
		}
		data, err := out.make()
		if err != nil {
			return fmt.Errorf("--%s: %w", out.flag, err)
		}
		if err := cli.WriteOutput(out.flag, out.path, data); err != nil {
			return err
		}
	}
	return nil
}

func (f *simulateFlags) parseFabrics() ([]cluster.Fabric, error) {
	var routing cluster.Routing
	if f.routing != "" {
		var err error
		if routing, err = cluster.ParseRouting(f.routing); err != nil {
			return nil, fmt.Errorf("--routing: %w", err)
		}
	}
	if len(f.fabrics) == 0 {
		return nil, fmt.Errorf("--fabrics: none")
	}
	var all []cluster.Fabric
	for _, name := range f.fabrics {
		one, err := cluster.ParseFabric(strings.TrimSpace(name), f.gpus)
		if err != nil {
			return nil, fmt.Errorf("--fabrics: %w", err)
		}
		one.DarkSeconds = f.dark.Seconds()
		if f.routing != "" && (routing != cluster.Central || one.Kind == cluster.Lumos) {
			one.Routing = routing
		}
		all = append(all, one)
	}
	return all, nil
}

// readJobs returns the jobs of the trace, or synthetic ones.
func (f *simulateFlags) readJobs() ([]cluster.Job, error) {
	const serverGPUs = 8
	if f.trace == "" {
		if f.rescale || f.arrivals == "trace" {
			return nil, fmt.Errorf("--rescale and --arrivals trace want a --trace")
		}
		jobs, err := cluster.Generate(cluster.Spec{Jobs: f.jobs, GPUs: f.gpus, Level: f.level, Seed: f.seed,
			ServerGPUs: serverGPUs})
		if err != nil {
			return nil, fmt.Errorf("--jobs, --gpus, --level: %w", err)
		}
		return jobs, nil
	}
	trace, err := cli.DecodeInput("trace", f.trace, func(text []byte) (*cluster.Trace, error) {
		return cluster.ReadTrace(bytes.NewReader(text), f.gpus)
	})
	if err != nil {
		return nil, err
	}
	jobs := trace.Jobs
	if len(jobs) == 0 {
		return nil, fmt.Errorf("%s: none of %d lines is a job with GPUs and a duration", cli.InputName(f.trace),
			trace.Skipped)
	}
	if f.jobs > 0 && f.jobs < len(jobs) {
		jobs = jobs[:f.jobs]
	}
	if f.rescale {
		if err := cluster.Rescale(jobs, f.gpus, f.seed); err != nil {
			return nil, fmt.Errorf("--rescale: %w", err)
		}
	}
	if f.arrivals == "poisson" {
		if err := cluster.Retime(jobs, f.gpus, f.level, f.seed); err != nil {
			return nil, fmt.Errorf("--level: %w", err)
		}
	}
	cluster.Divide(jobs, serverGPUs, f.seed)
	if trace.Skipped > 0 {
		fmt.Fprintf(os.Stderr, "%s: %d lines without GPUs or time are left out\n", cli.InputName(f.trace), trace.Skipped)
	}
	return jobs, nil
}

// outcomes returns a line per job and fabric.
func outcomes(c *figure.Clusters) []byte {
	t := figure.Table{Columns: []string{"fabric", "job", "gpus", "pp", "dp", "ep", "model", "arrival_s", "start_s",
		"finish_s", "pods", "communication_s", "ideal_s"}}
	for _, r := range c.Results {
		for i, o := range r.Outcomes {
			j := &c.Jobs[i]
			t.Add(r.Fabric.Name, j.Name, j.GPUs, j.Grid.PP, j.Grid.DP, j.Grid.EP, j.Model, j.Arrival, o.Start, o.Finish, o.Pods,
				o.Communication, o.Ideal)
		}
	}
	return t.CSV()
}
