package figure

import (
	"context"
	"fmt"
	"math"
	"strings"

	"lightpath/bench/workload"
	"lightpath/plans"
	"lightpath/plans/spectra"
)

// demands is a family of random demand matrices, normalised so that a port's whole demand
// is 1, the unit of delays.
type demands struct {
	name string
	make func(seed int64) [][]float64
}

const syntheticNote = "GPT and MoE matrices are synthetic substitutes: the paper's 32 x 32 GPT-3B and 64 x 64 Qwen2-57B traces are not published. The paper states neither the delays of its axis nor, but for s = 4, the numbers of switches."

var (
	gptDemands   = demands{"GPT-like (synthetic), 32 x 32", func(seed int64) [][]float64 { return workload.GPT(workload.GPT3B(seed)) }}
	benchDemands = demands{"benchmark, 100 x 100, m = 16", func(seed int64) [][]float64 { return workload.Benchmark(100, 16, 0.003, seed) }}
)

// moeDemands are dense, which makes ECLIPSE slow: a quick figure takes a third of the experts.
func moeDemands(o Options) demands {
	n := 64
	if o.Quick {
		n = 24
	}
	return demands{fmt.Sprintf("MoE-like (synthetic), %d x %d", n, n), func(seed int64) [][]float64 {
		m := workload.Qwen2MoE(seed)
		m.Ranks = n
		return workload.MoE(m)
	}}
}

// subject is a matrix with what the methods share.
type subject struct {
	matrix spectra.Matrix
	cover  spectra.Decomposition // the paper's, which depends on neither s nor delta
	// eclipse holds ECLIPSE's, which depends on delta alone.
	eclipse map[float64]spectra.Decomposition
}

func newSubject(d [][]float64) *subject {
	return &subject{matrix: d, cover: spectra.Decompose(d, spectra.Greedy), eclipse: make(map[float64]spectra.Decomposition)}
}

// method is a scheduler, or a bound, whose value is drawn.
type method struct {
	name   string
	colour int
	dashed bool
	value  func(x *subject, s int, delta float64) float64
}

var (
	methodBaseline = method{"BASELINE (LESS split)", 1, false, func(x *subject, s int, delta float64) float64 {
		return spectra.Baseline(x.matrix, s).Makespan(delta)
	}}
	methodEclipse = method{"SPECTRA (ECLIPSE)", 2, false, func(x *subject, s int, delta float64) float64 {
		e, known := x.eclipse[delta]
		if !known {
			e = spectra.Eclipse(x.matrix, delta)
			x.eclipse[delta] = e
		}
		return spectra.Equalize(spectra.Schedule(e, s, delta), delta).Makespan(delta)
	}}
	methodSpectra = method{"SPECTRA", 0, false, func(x *subject, s int, delta float64) float64 {
		return spectra.Equalize(spectra.Schedule(x.cover, s, delta), delta).Makespan(delta)
	}}
	methodUnequal = method{"SPECTRA without EQUALIZE", 4, true, func(x *subject, s int, delta float64) float64 {
		return spectra.Schedule(x.cover, s, delta).Makespan(delta)
	}}
	methodBound = method{"LB1, LB2", 6, true, func(x *subject, s int, delta float64) float64 {
		return math.Max(spectra.Bound1(x.matrix, s, delta), spectra.Bound2(x.matrix, s, delta))
	}}
	methodStronger = method{"Lightpath's bound", 5, true, func(x *subject, s int, delta float64) float64 {
		v, _ := spectra.Bound(x.matrix, s, delta)
		return v
	}}
)

// lightpathWork is the search per matrix of the line "Lightpath", in operations: some 40 ms.
const lightpathWork = 1e7

var methodLightpath = method{"Lightpath", 3, false, func(x *subject, s int, delta float64) float64 {
	// Every demand has a plan; a search that is not there is a gap in the line.
	plan, err := spectra.Solve(context.Background(), DemandProblem(x.matrix, s, delta), spectra.Options{Work: lightpathWork})
	if err != nil {
		return math.NaN()
	}
	return plan.CCTUS / DemandUS
}}

// DemandUS is how long a demand of 1 takes on one circuit of a [DemandProblem].
const DemandUS = 1e3

// DemandProblem states a matrix on s planes whose reconfiguration takes delta: entries and
// delta in units of DemandUS.
func DemandProblem(d [][]float64, s int, delta float64) *plans.Problem {
	p := &plans.Problem{Version: plans.Version, Ranks: len(d), Planes: s, BandwidthGbps: 8, ReconfigUS: delta * DemandUS, Circuits: plans.Simplex}
	p.Demand = make([][]float64, len(d))
	for r, row := range d {
		p.Demand[r] = make([]float64, len(row))
		for c, v := range row {
			p.Demand[r][c] = v * DemandUS / plans.WireUS(p, 1)
		}
	}
	return p
}

// setting is a family on a number of switches.
type setting struct {
	demands  demands
	switches int
}

// spectraGrid is what a figure of the paper sweeps.
type spectraGrid struct {
	settings []setting
	deltas   []float64
	methods  []method
	runs     int
}

// The numbers of random matrices per point: ours where none is asked for, and the paper's.
const (
	defaultRuns = 20
	paperRuns   = 50
)

func runsOf(o Options) int {
	switch {
	case o.Runs > 0:
		return o.Runs
	case o.Quick:
		return 1
	}
	return defaultRuns
}

func deltasOf(o Options) []float64 {
	if o.Quick {
		return []float64{0.01, 0.1}
	}
	return []float64{0.001, 0.003, 0.01, 0.02, 0.03, 0.05, 0.07, 0.1}
}

// mean returns the mean value over the runs: [setting][method][delta].
func (g *spectraGrid) mean(ctx context.Context, o Options) ([][][]float64, error) {
	// One piece of work is one matrix of one family, on all its settings.
	families := make([]demands, 0, len(g.settings))
	for _, st := range g.settings {
		known := false
		for _, f := range families {
			known = known || f.name == st.demands.name
		}
		if !known {
			families = append(families, st.demands)
		}
	}
	values := make([][][][]float64, len(families)*g.runs) // [piece][setting][method][delta]
	err := Each(ctx, len(values), o, func(i int) error {
		family := families[i/g.runs]
		x := newSubject(family.make(o.Seed + int64(i%g.runs)))
		values[i] = make([][][]float64, len(g.settings))
		for s, st := range g.settings {
			if st.demands.name != family.name {
				continue
			}
			values[i][s] = matrix(len(g.methods), len(g.deltas))
			for m, md := range g.methods {
				for d, delta := range g.deltas {
					if err := ctx.Err(); err != nil {
						return err
					}
					values[i][s][m][d] = md.value(x, st.switches, delta)
				}
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	out := make([][][]float64, len(g.settings))
	for s := range out {
		out[s] = matrix(len(g.methods), len(g.deltas))
		for _, v := range values {
			if v[s] == nil {
				continue
			}
			for m := range g.methods {
				for d := range g.deltas {
					out[s][m][d] += v[s][m][d] / float64(g.runs)
				}
			}
		}
	}
	return out, nil
}

// spectraFigure draws a grid, a panel for each setting.
func spectraFigure(ctx context.Context, o Options, title string, g spectraGrid) (*Figure, [][][]float64, error) {
	g.runs = runsOf(o)
	means, err := g.mean(ctx, o)
	if err != nil {
		return nil, nil, err
	}
	f := &Figure{Columns: 2, Title: title}
	f.Table.Columns = []string{"family", "switches", "delta", "method", "mean_makespan", "runs"}
	for s, st := range g.settings {
		c := &Chart{Title: fmt.Sprintf("(%c) %s, s = %d", 'a'+s, st.demands.name, st.switches),
			X: Axis{Label: "delay / demand of a port", Log: true}, Y: Axis{Label: "makespan / demand of a port", Log: true}}
		for m, md := range g.methods {
			c.Lines = append(c.Lines, Line{Name: md.name, X: g.deltas, Y: means[s][m], Colour: md.colour, Dashed: md.dashed})
			for d, delta := range g.deltas {
				f.Table.Add(st.demands.name, st.switches, delta, md.name, means[s][m][d], g.runs)
			}
		}
		f.Panels = append(f.Panels, c)
	}
	f.Notes = append(f.Notes, fmt.Sprintf("Random matrices per point: %d (the paper: %d).", g.runs, paperRuns), syntheticNote)
	return f, means, nil
}

// meanRatio is the mean over points of one method's value over another's, on the settings
// of a family.
func (g *spectraGrid) meanRatio(means [][][]float64, family string, over, under int) float64 {
	sum, count := 0.0, 0.0
	for s, st := range g.settings {
		if st.demands.name != family {
			continue
		}
		for d := range g.deltas {
			sum += means[s][over][d] / means[s][under][d]
			count++
		}
	}
	return sum / count
}

const splitNote = "BASELINE is described in one sentence; this is our reading of it"

// spectraClaims adds the paper's mean ratios; methods are in the order of comparison.
func (f *Figure) spectraClaims(g *spectraGrid, means [][][]float64, id string, d demands, baseline, eclipse float64) {
	f.Claims = append(f.Claims,
		Claim{ID: id, What: d.name + ": BASELINE over SPECTRA, mean", Printed: baseline, Ours: g.meanRatio(means, d.name, 0, 2), Unit: "x", Note: splitNote},
		Claim{ID: id, What: d.name + ": ECLIPSE variant over SPECTRA, mean", Printed: eclipse, Ours: g.meanRatio(means, d.name, 1, 2), Unit: "x"})
	f.Notes = append(f.Notes, fmt.Sprintf("%s: SPECTRA is %.4g times LB1/LB2 and %.4g times Lightpath's bound in the mean; Lightpath's plan %.4g times its bound.",
		d.name, g.meanRatio(means, d.name, 2, 4), g.meanRatio(means, d.name, 2, 5), g.meanRatio(means, d.name, 3, 5)))
}

var comparison = []method{methodBaseline, methodEclipse, methodSpectra, methodLightpath, methodBound, methodStronger}

// spectra6 is the makespan over the delay for the workloads of training.
func spectra6(ctx context.Context, o Options) (*Figure, error) {
	moe := moeDemands(o)
	g := spectraGrid{deltas: deltasOf(o), methods: comparison,
		settings: []setting{{gptDemands, 2}, {gptDemands, 4}, {moe, 2}, {moe, 4}}}
	f, means, err := spectraFigure(ctx, o, "SPECTRA Fig. 6: makespan on training workloads", g)
	if err != nil {
		return nil, err
	}
	f.spectraClaims(&g, means, "P2", gptDemands, 1.4, 1.1)
	f.spectraClaims(&g, means, "P3", moe, 1.9, 1.8)
	return f, nil
}

// spectra7 is SPECTRA with and without EQUALIZE.
func spectra7(ctx context.Context, o Options) (*Figure, error) {
	moe := moeDemands(o)
	g := spectraGrid{deltas: deltasOf(o), methods: []method{methodUnequal, methodSpectra, methodBound},
		settings: []setting{{gptDemands, 2}, {gptDemands, 4}, {moe, 2}, {moe, 4}}}
	f, means, err := spectraFigure(ctx, o, "SPECTRA Fig. 7: with and without EQUALIZE", g)
	if err != nil {
		return nil, err
	}
	f.Notes = append(f.Notes, fmt.Sprintf("Without EQUALIZE the makespan is %.4g times as long in the mean for GPT and %.4g times for MoE (P6: it helps GPT and not MoE).",
		g.meanRatio(means, gptDemands.name, 0, 1), g.meanRatio(means, moe.name, 0, 1)))
	return f, nil
}

// spectra8 is the effect of noise: deviations of 0.3 % and of 1 % of a port's rate.
func spectra8(ctx context.Context, o Options) (*Figure, error) {
	noisy := func(name string, sigma float64, base func(seed int64) [][]float64) demands {
		return demands{fmt.Sprintf("%s, noise %g %%", name, 100*sigma), func(seed int64) [][]float64 {
			return workload.Noisy(base(seed), sigma, seed)
		}}
	}
	quiet := func(seed int64) [][]float64 {
		g := workload.GPT3B(seed)
		g.Sigma = 0
		return workload.GPT(g)
	}
	g := spectraGrid{deltas: deltasOf(o), methods: []method{methodEclipse, methodSpectra, methodUnequal}}
	var families []demands
	for _, sigma := range []float64{0.003, 0.01} {
		families = append(families, noisy("GPT-like", sigma, quiet), noisy("MoE-like", sigma, moeDemands(o).make))
	}
	for _, d := range families {
		g.settings = append(g.settings, setting{d, 2}, setting{d, 4})
	}
	f, means, err := spectraFigure(ctx, o, "SPECTRA Fig. 8: noise of 0.3 % (faint) and of 1 %", g)
	if err != nil {
		return nil, err
	}
	overlay(f, len(g.settings)/2)
	for i, what := range []string{"GPT", "MoE"} {
		more := 0.0
		for k := range 2 {
			for d := range g.deltas {
				more += means[2*(i+2)+k][1][d] / means[2*i+k][1][d] / float64(2*len(g.deltas))
			}
		}
		f.Notes = append(f.Notes, fmt.Sprintf("%s: 1 %% of noise makes SPECTRA's makespan %.4g times that with 0.3 %%, in the mean (P6: hurts GPT, may help MoE).", what, more))
	}
	return f, nil
}

// overlay draws the first half of the panels faintly into the second half and drops them.
func overlay(f *Figure, half int) {
	for i := range half {
		under, over := f.Panels[i].(*Chart), f.Panels[i+half].(*Chart)
		var lines []Line
		for _, l := range under.Lines {
			l.Faint, l.Name = true, l.Name+", 0.3 %"
			lines = append(lines, l)
		}
		for _, l := range over.Lines {
			l.Name += ", 1 %"
			lines = append(lines, l)
		}
		over.Lines = lines
		over.Title = strings.Replace(fmt.Sprintf("(%c)%s", 'a'+i, over.Title[3:]), ", noise 1 %", "", 1)
	}
	f.Panels = f.Panels[half:]
}

// spectra9 is the benchmark workload.
func spectra9(ctx context.Context, o Options) (*Figure, error) {
	g := spectraGrid{deltas: deltasOf(o), methods: comparison, settings: []setting{{benchDemands, 2}, {benchDemands, 4}}}
	f, means, err := spectraFigure(ctx, o, "SPECTRA Fig. 9: makespan on the benchmark workload", g)
	if err != nil {
		return nil, err
	}
	f.spectraClaims(&g, means, "P4", benchDemands, 2.4, 1.2)
	return f, nil
}

// spectra10 is the benchmark workload with more and fewer flows per port.
func spectra10(ctx context.Context, o Options) (*Figure, error) {
	const delta = 0.04
	flows := []float64{4, 8, 12, 16, 20, 24, 28, 32}
	if o.Quick {
		flows = []float64{4, 16, 32}
	}
	g := spectraGrid{deltas: []float64{delta}, methods: comparison, runs: runsOf(o)}
	for _, m := range flows {
		d := demands{fmt.Sprintf("benchmark, m = %.0f", m), func(seed int64) [][]float64 { return workload.Benchmark(100, int(m), 0.003, seed) }}
		g.settings = append(g.settings, setting{d, 2}, setting{d, 4})
	}
	means, err := g.mean(ctx, o)
	if err != nil {
		return nil, err
	}
	f := &Figure{Columns: 2, Title: "SPECTRA Fig. 10: benchmark workload over flows per port, delay 0.04"}
	f.Table.Columns = []string{"flows", "switches", "delta", "method", "mean_makespan", "runs"}
	for k, s := range []int{2, 4} {
		c := &Chart{Title: fmt.Sprintf("(%c) benchmark, 100 x 100, s = %d", 'a'+k, s),
			X: Axis{Label: "flows per port", At: flows}, Y: Axis{Label: "makespan / demand of a port"}}
		for m, md := range g.methods {
			y := make([]float64, len(flows))
			for i := range flows {
				y[i] = means[2*i+k][m][0]
				f.Table.Add(flows[i], s, delta, md.name, y[i], g.runs)
			}
			c.Lines = append(c.Lines, Line{Name: md.name, X: flows, Y: y, Colour: md.colour, Dashed: md.dashed})
		}
		f.Panels = append(f.Panels, c)
	}
	f.Notes = append(f.Notes, fmt.Sprintf("Random matrices per point: %d (the paper: %d); a quarter of the flows is large (70 %% of the demand). The paper prints no numbers for this figure (P5: better everywhere).", g.runs, paperRuns))
	return f, nil
}
