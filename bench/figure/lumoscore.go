package figure

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"

	"gonum.org/v1/gonum/stat"

	"lightpath/plans/lumos/cluster"
)

// clusterLevel is the workload level of the paper's simulations.
const clusterLevel = 0.655

// ClusterNote states the limits of a comparison of clusters.
const ClusterNote = "The trace is synthetic: sizes and running times are drawn from stated distributions, and " +
	"arrivals from a Poisson process. The paper makes its trace from Helios. JWT and JCT depend much on the seed, " +
	"because jobs queue."

// Clusters simulates the same jobs on several fabrics and compares them with the first.
type Clusters struct {
	Jobs    []cluster.Job
	Results []*cluster.Result
}

// Simulate runs the jobs on fabrics, on all processors. With an error, the results of some fabrics are nil: see
// [Clusters.Keep].
func Simulate(
	ctx context.Context, o Options, jobs []cluster.Job, fabrics []cluster.Fabric, c cluster.Config,
) (*Clusters, error) {
	all := &Clusters{Jobs: jobs, Results: make([]*cluster.Result, len(fabrics))}
	var mu sync.Mutex
	ended, sum := make([]int, len(fabrics)), 0
	total := len(jobs) * len(fabrics)
	err := Each(ctx, len(fabrics), nil, func(i int) error { // progress is by job
		config := c
		config.Fabric, config.Jobs = fabrics[i], jobs
		if o.Progress != nil {
			config.Progress = func(n int) {
				mu.Lock()
				defer mu.Unlock()
				sum += n - ended[i]
				ended[i] = n
				if n%50 == 0 || sum == total {
					o.Progress(sum, total)
				}
			}
		}
		var err error
		all.Results[i], err = cluster.Simulate(ctx, config)
		return err
	})
	return all, err
}

// Keep drops the fabrics that were not simulated to the end. It reports whether the first one, with which the others
// are compared, is left.
func (c *Clusters) Keep() bool {
	first := c.Results[0] != nil
	c.Results = slices.DeleteFunc(c.Results, func(r *cluster.Result) bool { return r == nil })
	return first
}

// Table returns the averages, a fabric a row.
func (c *Clusters) Table() Table {
	t := Table{Columns: []string{
		"fabric", "routing", "port_gbps", "jrt_s", "jwt_s", "jct_s", "jobs_waited", "gpus_busy_pct", "jrt_vs_first_pct",
		"jct_vs_first_pct", "contention", "cross_pod_jobs", "reconfigurations", "links_made_pct", "links_needed_pct",
		"links_shared", "contended",
	}}
	first := c.Results[0].Summarize(c.Jobs)
	for _, r := range c.Results {
		s := r.Summarize(c.Jobs)
		row := []any{
			r.Fabric.Name, r.Fabric.Routing, r.Fabric.PortGbps, math.Round(s.JRT), math.Round(s.JWT), math.Round(s.JCT),
			s.Waited, math.Round(1000*s.Busy) / 10, percent(s.JRT, first.JRT), percent(s.JCT, first.JCT),
			math.Round(1000*s.Contention) / 1000, s.CrossPod,
		}
		if w := r.Rewiring; w.Times > 0 {
			row = append(row, w.Times, math.Round(1e5*w.Ratio)/1e3,
				math.Round(1e5*float64(w.Needed)/float64(w.Times*w.Links))/1e3, w.Shared, w.Contended)
		} else {
			row = append(row, "", "", "", "", "")
		}
		t.Add(row...)
	}
	return t
}

// percent returns by how many percent v is above base.
func percent(v, base float64) float64 { return math.Round(1e4*(v/base-1)) / 100 }

// Panels draws the distributions over jobs.
func (c *Clusters) Panels() []Panel {
	column := func(title, label string, log bool, of func(r *cluster.Result) func(int, cluster.Outcome) float64) Panel {
		chart := &Chart{Title: title, X: Axis{Label: label, Log: log}, Y: Axis{Label: "share of jobs", Min: 0, Max: 1}}
		for k, r := range c.Results {
			x, y := cumulative(r.Column(of(r)))
			chart.Lines = append(chart.Lines, Line{Name: r.Fabric.Name, X: x, Y: y, Colour: k})
		}
		return chart
	}
	first := c.Results[0].Outcomes
	run := func(o cluster.Outcome) float64 { return o.Finish - o.Start }
	return []Panel{
		column("(a) running time", "JRT (s)", true, func(*cluster.Result) func(int, cluster.Outcome) float64 {
			return func(_ int, o cluster.Outcome) float64 { return run(o) }
		}),
		column("(b) completion time", "JCT (s)", true, func(*cluster.Result) func(int, cluster.Outcome) float64 {
			return func(i int, o cluster.Outcome) float64 { return o.Finish - c.Jobs[i].Arrival }
		}),
		column("(c) slow-down of running time", "JRT over that of "+c.Results[0].Fabric.Name+", - 1 (%)", false,
			func(*cluster.Result) func(int, cluster.Outcome) float64 {
				return func(i int, o cluster.Outcome) float64 { return 100 * (run(o)/run(first[i]) - 1) }
			}),
		column("(d) contention level", "time in communication, over that of a port alone", false,
			func(*cluster.Result) func(int, cluster.Outcome) float64 {
				return func(_ int, o cluster.Outcome) float64 {
					if o.Ideal == 0 {
						return 1
					}
					return o.Communication / o.Ideal
				}
			}),
	}
}

// points is how many points of a distribution are drawn.
const points = 80

// cumulative returns the distribution of sorted values, thinned out.
func cumulative(sorted []float64) (x, y []float64) {
	n := len(sorted)
	for k := range min(n, points) {
		i := (k + 1) * n / min(n, points)
		x, y = append(x, sorted[i-1]), append(y, float64(i)/float64(n))
	}
	return x, y
}

// generate returns the synthetic trace of a seed.
func (p clusterPoint) generate(o Options, seed uint64) ([]cluster.Job, error) {
	if o.Quick {
		p.jobs = 40
	}
	return cluster.Generate(cluster.Spec{Jobs: p.jobs, GPUs: p.gpus, Level: p.level, Seed: seed, ServerGPUs: 8})
}

func parseFabrics(names []string, gpus int) ([]cluster.Fabric, error) {
	var all []cluster.Fabric
	for _, name := range names {
		f, err := cluster.ParseFabric(name, gpus)
		if err != nil {
			return nil, err
		}
		all = append(all, f)
	}
	return all, nil
}

const (
	clusterTraces = 5  // of a comparison of clusters
	iterations    = 10 // of a job, as in the artifact of LumosCore
)

// lumos8 compares the fabrics of the paper's simulations at 4096 GPUs.
func lumos8(ctx context.Context, o Options) (*Figure, error) {
	f := &Figure{Title: "LumosCore Fig. 8: 4096 GPUs, workload level 0.655", Columns: 2, Notes: []string{ClusterNote}}
	var means *meansOf
	points := []clusterPoint{{4096, 1000, clusterLevel}}
	err := f.clusters(ctx, o, cluster.FabricsOfThePaper(), points, func(_ clusterPoint, all []*Clusters, m *meansOf) {
		means, f.Panels = m, all[0].Panels()
	})
	if err != nil {
		return nil, err
	}
	const ours, theirs = "lumos-1-25.6", "clos-3-25.6"
	for _, c := range []struct {
		id, what, a, b string
		jct            bool
		printed        float64
	}{
		{"L6", "JRT of LumosCore (25.6T, tau=1) over Clos (25.6T, 3 tiers)", ours, theirs, false, -5.06},
		{"L6", "JCT, the same pair", ours, theirs, true, -16.1},
		{"L10", "JRT, the same pair, in the artifact's logs", ours, theirs, false, -6.7},
		{"L10", "JCT, the same pair, in the artifact's logs", ours, theirs, true, -30.4},
		{"L10", "JRT of LumosCore (51.2T, tau=2) over the ideal switch", "lumos-2-51.2", "best", false, 0.0},
		{"L10", "JRT of LumosCore (51.2T, tau=1) over the ideal switch", "lumos-1-51.2", "best", false, 0.09},
		{"L10", "JRT of LumosCore (25.6T, tau=1) over the ideal switch", ours, "best", false, 0.53},
		{"L10", "JRT of Clos (51.2T, 3 tiers) over the ideal switch", "clos-3-51.2", "best", false, 1.73},
		{"L10", "JRT of Clos (25.6T, 4 tiers) over the ideal switch", "clos-4-25.6", "best", false, 4.36},
		{"L10", "JRT of Clos (25.6T, 3 tiers) over the ideal switch", theirs, "best", false, 7.77},
	} {
		ratio := means.compare(c.a, c.b, c.jct)
		f.Claims = append(f.Claims, Claim{ID: c.id, What: c.what, Printed: c.printed, Ours: mean(ratio), Unit: "%",
			Note: spread(ratio)})
	}
	return f, nil
}

// lumos8c compares them over the size of the cluster, and counts the links that are rewired.
func lumos8c(ctx context.Context, o Options) (*Figure, error) {
	names := []string{"best", "lumos-1-25.6", "clos-3-25.6", "clos-4-25.6"}
	var points []clusterPoint
	for _, gpus := range []int{2048, 4096, 8192, 16384} {
		points = append(points, clusterPoint{gpus, 1000, clusterLevel})
	}
	if o.Quick {
		points = points[:2]
	}
	f := &Figure{Title: "LumosCore Fig. 8c and Table 6: size of the cluster", Columns: 2, Notes: []string{ClusterNote}}
	charts := []*Chart{
		{Title: "(a) mean JCT", X: Axis{Label: "GPUs", Log: true},
			Y: Axis{Label: "JCT over that of the ideal switch, - 1 (%)"}},
		{Title: "(b) mean JRT", X: Axis{Label: "GPUs", Log: true},
			Y: Axis{Label: "JRT over that of the ideal switch, - 1 (%)"}},
	}
	var best float64
	var bestNote string
	err := f.clusters(ctx, o, names, points, func(p clusterPoint, all []*Clusters, means *meansOf) {
		for k, name := range names[1:] {
			for i, jct := range []bool{true, false} {
				charts[i].point(k, name, float64(p.gpus), mean(means.compare(name, "best", jct)))
			}
		}
		ratio := means.compare("lumos-1-25.6", "clos-3-25.6", true)
		if m := mean(ratio); m < best {
			port := all[0].Results[2].Fabric.PortGbps
			best, bestNote = m, fmt.Sprintf("at %d GPUs, where Clos has ports of %v Gb/s; %s", p.gpus, port, spread(ratio))
		}
		var made []float64
		for _, c := range all {
			made = append(made, 100*c.Results[1].Rewiring.Ratio)
		}
		printed := map[int]float64{2048: 0.319, 4096: 0.282, 8192: 0.441, 16384: 0.445}
		f.Claims = append(f.Claims, Claim{
			ID: "L8", What: fmt.Sprintf("links made anew per reconfiguration, %d GPUs", p.gpus),
			Printed: printed[p.gpus], Ours: mean(made), Unit: "%",
			Note: "of all that the core can have, per start of a job in several pods; " + spread(made),
		})
	})
	f.Claims = slices.Insert(f.Claims, 0, Claim{
		ID: "L7", What: "JCT of LumosCore (25.6T, tau=1) over Clos (25.6T, 3 tiers), largest gain over sizes",
		Printed: -34.1, Ours: best, Unit: "%", Note: bestNote,
	})
	f.Panels = []Panel{charts[0], charts[1]}
	return f, err
}

// lumosLoad compares fabrics at workload levels that fill a cluster of 16384 GPUs. The paper has one level, at which
// hardly a job waits there.
func lumosLoad(ctx context.Context, o Options) (*Figure, error) {
	names := []string{"best", "lumos-1-51.2", "lumos-1-25.6", "clos-3-51.2", "clos-4-25.6", "clos-3-25.6"}
	var points []clusterPoint
	for _, level := range []float64{clusterLevel, 0.8, 0.9, 1} {
		points = append(points, clusterPoint{16384, 5000, level})
	}
	if o.Quick {
		points = []clusterPoint{{2048, 1000, 0.9}}
	}
	f := &Figure{Title: "LumosCore at loads that fill 16384 GPUs", Columns: 2, Notes: []string{ClusterNote}}
	level := Axis{Label: "workload level"}
	charts := []*Chart{
		{Title: "(a) mean JRT", X: level, Y: Axis{Label: "JRT over that of the ideal switch, - 1 (%)"}},
		{Title: "(b) jobs that wait", X: level, Y: Axis{Label: "share of jobs (%)"}},
	}
	err := f.clusters(ctx, o, names, points, func(p clusterPoint, all []*Clusters, means *meansOf) {
		for k, name := range names {
			charts[0].point(k, name, p.level, mean(means.compare(name, "best", false)))
			waited := 0
			for _, c := range all {
				waited += c.Results[k].Summarize(c.Jobs).Waited
			}
			charts[1].point(k, name, p.level, 100*float64(waited)/float64(len(all)*len(all[0].Jobs)))
		}
	})
	f.Panels = []Panel{charts[0], charts[1]}
	return f, err
}

// clusterPoint is a cluster and the jobs that are offered to it.
type clusterPoint struct {
	gpus, jobs int
	level      float64
}

// clusters simulates every point on the fabrics of these names, over several traces. It writes a row of the table for
// each run and fabric, and calls visit with the runs of a point.
func (f *Figure) clusters(ctx context.Context, o Options, names []string, points []clusterPoint,
	visit func(clusterPoint, []*Clusters, *meansOf),
) error {
	runs := o.runs(clusterTraces)
	for at, p := range points {
		fabrics, err := parseFabrics(names, p.gpus)
		if err != nil {
			return err
		}
		means := newMeans(names)
		var all []*Clusters
		for run := range runs {
			seed := uint64(o.Seed) + uint64(run)
			jobs, err := p.generate(o, seed)
			if err != nil {
				return err
			}
			config := cluster.Config{Iterations: iterations, Seed: seed}
			c, err := Simulate(ctx, runProgress(o, at*runs+run, len(points)*runs), jobs, fabrics, config)
			if err != nil {
				return err
			}
			t := c.Table()
			f.Table.Columns = append([]string{"gpus", "level", "jobs", "seed"}, t.Columns...)
			head := []string{fmt.Sprint(p.gpus), fmt.Sprint(p.level), fmt.Sprint(len(jobs)), fmt.Sprint(seed)}
			for _, row := range t.Rows {
				f.Table.Rows = append(f.Table.Rows, slices.Concat(head, row))
			}
			means.add(c)
			all = append(all, c)
		}
		visit(p, all, means)
	}
	return nil
}

// point adds a point to line k, which it names.
func (c *Chart) point(k int, name string, x, y float64) {
	if k == len(c.Lines) {
		c.Lines = append(c.Lines, Line{Name: name, Colour: k})
	}
	l := &c.Lines[k]
	l.X, l.Y = append(l.X, x), append(l.Y, y)
}

// runProgress reports the jobs of one of several runs as part of all.
func runProgress(o Options, run, runs int) Options {
	if report := o.Progress; report != nil {
		o.Progress = func(done, total int) { report(run*total+done, runs*total) }
	}
	return o
}

// meansOf are the averages of fabrics, run by run.
type meansOf struct {
	names    []string
	jrt, jct map[string][]float64
}

func newMeans(names []string) *meansOf {
	return &meansOf{names, map[string][]float64{}, map[string][]float64{}}
}

func (m *meansOf) add(c *Clusters) {
	for i, name := range m.names {
		s := c.Results[i].Summarize(c.Jobs)
		m.jrt[name] = append(m.jrt[name], s.JRT)
		m.jct[name] = append(m.jct[name], s.JCT)
	}
}

// compare returns by how many percent a is above b in each run.
func (m *meansOf) compare(a, b string, jct bool) []float64 {
	of := m.jrt
	if jct {
		of = m.jct
	}
	ratio := make([]float64, len(of[a]))
	for i := range ratio {
		ratio[i] = 100 * (of[a][i]/of[b][i] - 1)
	}
	return ratio
}

func mean(v []float64) float64 { return stat.Mean(v, nil) }

// spread describes how far runs are apart.
func spread(v []float64) string {
	if len(v) < 2 {
		return "one trace"
	}
	return fmt.Sprintf("%d traces: %.3g to %.3g", len(v), slices.Min(v), slices.Max(v))
}
