package figure

import (
	"context"
	"fmt"
	"strings"

	"lightpath/bench/workload"
)

const splitNote = "BASELINE is described in one sentence; this is our reading of it"

// spectraClaims adds the paper's mean ratios; methods are in the order of comparison.
func (f *Figure) spectraClaims(g *spectraGrid, means [][][]float64, id string, d demands, baseline, eclipse float64) {
	f.Claims = append(f.Claims,
		Claim{ID: id, What: d.name + ": BASELINE over SPECTRA, mean", Printed: baseline,
			Ours: g.meanRatio(means, d.name, 0, 2), Unit: "x", Note: splitNote},
		Claim{ID: id, What: d.name + ": ECLIPSE variant over SPECTRA, mean", Printed: eclipse,
			Ours: g.meanRatio(means, d.name, 1, 2), Unit: "x"})
	f.Notes = append(f.Notes, fmt.Sprintf("%s: SPECTRA is %.4g times LB1/LB2 and %.4g times Lightpath's bound in "+
		"the mean; Lightpath's plan %.4g times its bound.",
		d.name, g.meanRatio(means, d.name, 2, 4), g.meanRatio(means, d.name, 2, 5), g.meanRatio(means, d.name, 3, 5)))
}

var comparison = []method{methodBaseline, methodEclipse, methodSpectra, methodLightpath, methodBound, methodStronger}

// spectra6 is the makespan over the delay for the workloads of training.
func spectra6(ctx context.Context, o Options) (*Figure, error) {
	moe := moeDemands(o)
	g := spectraGrid{deltas: deltasOf(o), methods: comparison,
		families: []demands{gptDemands, moe}}
	f, means, err := spectraFigure(ctx, o, "SPECTRA Fig. 6: makespan on training workloads", g)
	if err != nil {
		return nil, err
	}
	f.spectraClaims(&g, means, "P2", gptDemands, 1.4, 1.1)
	f.spectraClaims(&g, means, "P3", moe, 1.9, 1.8)
	return f, nil
}

// spectra7 compares SPECTRA with and without EQUALIZE.
func spectra7(ctx context.Context, o Options) (*Figure, error) {
	moe := moeDemands(o)
	g := spectraGrid{deltas: deltasOf(o), methods: []method{methodUnequal, methodSpectra, methodBound},
		families: []demands{gptDemands, moe}}
	f, means, err := spectraFigure(ctx, o, "SPECTRA Fig. 7: with and without EQUALIZE", g)
	if err != nil {
		return nil, err
	}
	f.Notes = append(f.Notes, fmt.Sprintf("Without EQUALIZE the makespan is %.4g times as long in the mean for GPT "+
		"and %.4g times for MoE (P6: it helps GPT and not MoE).",
		g.meanRatio(means, gptDemands.name, 0, 1), g.meanRatio(means, moe.name, 0, 1)))
	return f, nil
}

// spectra8 shows the effect of noise: deviations of 0.3 % and of 1 % of a port's rate.
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
	for _, sigma := range []float64{0.003, 0.01} {
		g.families = append(g.families, noisy("GPT-like", sigma, quiet), noisy("MoE-like", sigma, moeDemands(o).make))
	}
	f, means, err := spectraFigure(ctx, o, "SPECTRA Fig. 8: noise of 0.3 % (faint) and of 1 %", g)
	if err != nil {
		return nil, err
	}
	overlay(f, len(means)/2)
	for i, what := range []string{"GPT", "MoE"} {
		more := 0.0
		for k := range 2 {
			for d := range g.deltas {
				more += means[2*(i+2)+k][1][d] / means[2*i+k][1][d] / float64(2*len(g.deltas))
			}
		}
		f.Notes = append(f.Notes, fmt.Sprintf("%s: 1 %% of noise makes SPECTRA's makespan %.4g times that with 0.3 %%, "+
			"in the mean (P6: hurts GPT, may help MoE).", what, more))
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
	n := benchRanks(o)
	d := benchDemands(o, fmt.Sprintf("benchmark, %d x %d, m = 16", n, n), 16)
	g := spectraGrid{deltas: deltasOf(o), methods: comparison, families: []demands{d}}
	f, means, err := spectraFigure(ctx, o, "SPECTRA Fig. 9: makespan on the benchmark workload", g)
	if err != nil {
		return nil, err
	}
	f.spectraClaims(&g, means, "P4", d, 2.4, 1.2)
	return f, nil
}

// spectra10 is the benchmark workload with more and fewer flows per port.
func spectra10(ctx context.Context, o Options) (*Figure, error) {
	const delta = 0.04
	flows := []float64{4, 8, 12, 16, 20, 24, 28, 32}
	if o.Quick {
		flows = []float64{4, 32}
	}
	g := spectraGrid{deltas: []float64{delta}, methods: comparison, runs: o.runs(defaultRuns)}
	for _, m := range flows {
		g.families = append(g.families, benchDemands(o, fmt.Sprintf("benchmark, m = %.0f", m), int(m)))
	}
	means, err := g.mean(ctx, o)
	if err != nil {
		return nil, err
	}
	f := &Figure{Columns: 2, Title: "SPECTRA Fig. 10: benchmark workload over flows per port, delay 0.04"}
	f.Table.Columns = []string{"flows", "switches", "delta", "method", "mean_makespan", "runs"}
	for k, s := range switchCounts {
		c := &Chart{Title: fmt.Sprintf("(%c) benchmark, %d x %d, s = %d", 'a'+k, benchRanks(o), benchRanks(o), s),
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
	f.Notes = append(f.Notes, fmt.Sprintf("Random matrices per point: %d (the paper: %d); a quarter of the flows is "+
		"large (70 %% of the demand). The paper prints no numbers for this figure (P5: better "+
		"everywhere).", g.runs, paperRuns))
	return f, nil
}
