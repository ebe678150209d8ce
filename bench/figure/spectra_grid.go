package figure

import (
	"context"
	"fmt"
	"math"

	"lightpath/bench/workload"
	"lightpath/plans"
	"lightpath/plans/spectra"
)

// demands is a family of random demand matrices. They are normalised: the whole demand of a port is 1, and delays have
// the same unit.
type demands struct {
	name string
	make func(seed int64) [][]float64
}

const syntheticNote = "GPT and MoE matrices are synthetic substitutes: the paper's 32 x 32 GPT-3B and 64 x 64 " +
	"Qwen2-57B traces are not published. The paper does not state the delays of its axis, and of the numbers of " +
	"switches only s = 4."

var gptDemands = demands{
	"GPT-like (synthetic), 32 x 32", func(seed int64) [][]float64 { return workload.GPT(workload.GPT3B(seed)) },
}

// benchRanks returns the ranks of SPECTRA's benchmark. A quick figure takes a third of them.
func benchRanks(o Options) int {
	if o.Quick {
		return 33
	}
	return 100
}

// benchDemands are sums of m permutations.
func benchDemands(o Options, name string, m int) demands {
	return demands{name, func(seed int64) [][]float64 { return workload.Benchmark(benchRanks(o), m, 0.003, seed) }}
}

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
	// eclipse holds ECLIPSE's decompositions, by delta.
	eclipse map[float64]spectra.Decomposition
}

func newSubject(d [][]float64) *subject {
	return &subject{matrix: d, cover: spectra.Decompose(d),
		eclipse: make(map[float64]spectra.Decomposition)}
}

// method is a line of a figure: a scheduler, or a bound.
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
	// Every demand has a plan. If the search fails, the line has a gap.
	plan, err := spectra.Solve(context.Background(), DemandProblem(x.matrix, s, delta),
		spectra.Options{Work: lightpathWork})
	if err != nil {
		return math.NaN()
	}
	return plan.CCTUS / DemandUS
}}

// DemandUS is the time that a demand of 1 takes on one circuit of a [DemandProblem].
const DemandUS = 1e3

// DemandProblem returns the problem of a matrix on s planes with reconfiguration time delta. Entries and delta are in
// units of DemandUS.
func DemandProblem(d [][]float64, s int, delta float64) *plans.Problem {
	p := &plans.Problem{Version: plans.Version, Ranks: len(d), Planes: s, BandwidthGbps: 8, ReconfigUS: delta * DemandUS,
		Circuits: plans.Simplex}
	p.Demand = make([][]float64, len(d))
	for r, row := range d {
		p.Demand[r] = make([]float64, len(row))
		for c, v := range row {
			p.Demand[r][c] = v * DemandUS / plans.WireUS(p, 1)
		}
	}
	return p
}

// switchCounts are the numbers of switches that serve each family of a figure.
var switchCounts = []int{2, 4}

// spectraGrid is the range of parameters of a figure.
type spectraGrid struct {
	families []demands
	deltas   []float64
	methods  []method
	runs     int
}

// Random matrices per point: the default here, and the paper's number.
const (
	defaultRuns = 20
	paperRuns   = 50
)

func deltasOf(o Options) []float64 {
	if o.Quick {
		return []float64{0.01, 0.1}
	}
	return []float64{0.001, 0.003, 0.01, 0.02, 0.03, 0.05, 0.07, 0.1}
}

// mean returns the mean value over the runs: [setting][method][delta]. Setting f*len(switchCounts)+k is family f on
// switchCounts[k] switches.
func (g *spectraGrid) mean(ctx context.Context, o Options) ([][][]float64, error) {
	pieces := make([][][][]float64, len(g.families)*g.runs) // [matrix][switch count][method][delta]
	err := Each(ctx, len(pieces), o.Progress, func(i int) error {
		x := newSubject(g.families[i/g.runs].make(o.Seed + int64(i%g.runs)))
		for _, switches := range switchCounts {
			values := matrix(len(g.methods), len(g.deltas))
			for m, md := range g.methods {
				for d, delta := range g.deltas {
					if err := ctx.Err(); err != nil {
						return err
					}
					values[m][d] = md.value(x, switches, delta)
				}
			}
			pieces[i] = append(pieces[i], values)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	var means [][][]float64
	for f := range g.families {
		for k := range switchCounts {
			mean := matrix(len(g.methods), len(g.deltas))
			for _, piece := range pieces[f*g.runs : (f+1)*g.runs] {
				for m, row := range piece[k] {
					for d, v := range row {
						mean[m][d] += v / float64(g.runs)
					}
				}
			}
			means = append(means, mean)
		}
	}
	return means, nil
}

// spectraFigure draws a grid, a panel for each setting.
func spectraFigure(ctx context.Context, o Options, title string, g spectraGrid) (*Figure, [][][]float64, error) {
	g.runs = o.runs(defaultRuns)
	means, err := g.mean(ctx, o)
	if err != nil {
		return nil, nil, err
	}
	f := &Figure{Columns: 2, Title: title}
	f.Table.Columns = []string{"family", "switches", "delta", "method", "mean_makespan", "runs"}
	for s := range means {
		family, switches := g.families[s/len(switchCounts)].name, switchCounts[s%len(switchCounts)]
		c := &Chart{Title: fmt.Sprintf("(%c) %s, s = %d", 'a'+s, family, switches),
			X: Axis{Label: "delay / demand of a port", Log: true}, Y: Axis{Label: "makespan / demand of a port", Log: true}}
		for m, md := range g.methods {
			c.Lines = append(c.Lines, Line{Name: md.name, X: g.deltas, Y: means[s][m], Colour: md.colour, Dashed: md.dashed})
			for d, delta := range g.deltas {
				f.Table.Add(family, switches, delta, md.name, means[s][m][d], g.runs)
			}
		}
		f.Panels = append(f.Panels, c)
	}
	f.Notes = append(f.Notes, fmt.Sprintf("Random matrices per point: %d (the paper: %d).", g.runs, paperRuns),
		syntheticNote)
	return f, means, nil
}

// meanRatio is the mean over points of one method's value over another's, on the settings
// of a family.
func (g *spectraGrid) meanRatio(means [][][]float64, family string, over, under int) float64 {
	sum, count := 0.0, 0.0
	for s := range means {
		if g.families[s/len(switchCounts)].name != family {
			continue
		}
		for d := range g.deltas {
			sum += means[s][over][d] / means[s][under][d]
			count++
		}
	}
	return sum / count
}
