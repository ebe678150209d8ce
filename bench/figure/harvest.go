package figure

import (
	"context"
	"fmt"
	"math"
	"time"

	"lightpath/collectives/schedule"
	"lightpath/plans"
	"lightpath/plans/circuit"
)

// The setting of HARVEST's simulations (Section 6.1, Figure 5).
const (
	harvestGbps = 800.0
	HarvestUS   = 0.5 // alpha, and the latency of a hop (the paper's delta)
	// harvestRanks is our choice: the paper does not state it. In the cost model only 64 gives the abstract's 2x over
	// the better baseline and the 3.0x at 1 GB of Section 6.2.
	harvestRanks = 64
)

// trial is an algorithm, with the static interconnect that HARVEST is compared with.
type trial struct {
	name   string
	call   call
	fabric plans.Problem         // without a start
	static []circuit.Permutation // the static baseline's circuits
}

// ratios are completion times over (delay, size).
type ratios struct {
	static, bvn, harvest [][]float64
	late                 [][]bool // the search ended above the static graph
}

// HarvestFabric is a fabric whose ranks divide 800 Gb/s over their planes. Switching is free.
func HarvestFabric(ranks, planes int) plans.Problem {
	return plans.Problem{
		Version: plans.Version, Ranks: ranks, Planes: planes, BandwidthGbps: harvestGbps / float64(planes),
		AlphaUS: HarvestUS, HopUS: HarvestUS, Forwarding: true, Circuits: plans.Simplex,
	}
}

// harvestTrials are the algorithms of Figure 5 on a ring. Recursive doubling and All-to-All send in one direction and
// have one port. Swing sends in both directions, so its ring has a port for each, at half the rate.
func harvestTrials(n int) []trial {
	return []trial{
		{"Recursive doubling", call{schedule.ReduceScatter, "recursive-doubling", "RD"}, HarvestFabric(n, 1),
			[]circuit.Permutation{circuit.Shift(n, 1)}},
		{"Swing", call{schedule.ReduceScatter, "swing", "Swing"}, HarvestFabric(n, 2),
			[]circuit.Permutation{circuit.Shift(n, 1), circuit.Shift(n, -1)}},
		{"All-to-All", call{schedule.AllToAll, "pairwise", "A2A"}, HarvestFabric(n, 1),
			[]circuit.Permutation{circuit.Shift(n, 1)}},
	}
}

// oneTwoFive are 1, 2, 5, 10, ... times 10^from up to 10^to.
func oneTwoFive(from, to int) []float64 {
	var v []float64
	for e := from; e < to; e++ {
		for _, m := range []float64{1, 2, 5} {
			v = append(v, m*math.Pow(10, float64(e)))
		}
	}
	return append(v, math.Pow(10, float64(to)))
}

// gridOf solves a trial for all delays and sizes.
func gridOf(ctx context.Context, o Options, trials []trial, delays, ms []float64,
	effort time.Duration) ([]ratios, error) {
	out := make([]ratios, len(trials))
	base := make([]*plans.Problem, len(trials))
	for i := range trials {
		p, err := trials[i].call.problem(ms[0], trials[i].fabric)
		if err != nil {
			return nil, err
		}
		base[i] = p
		out[i] = ratios{static: matrix(len(delays), len(ms)), bvn: matrix(len(delays), len(ms)),
			harvest: matrix(len(delays), len(ms))}
		for range delays {
			out[i].late = append(out[i].late, make([]bool, len(ms)))
		}
	}
	err := Each(ctx, len(trials)*len(ms), o.Progress, func(i int) error {
		t, m := i/len(ms), i%len(ms)
		p := resize(base[t], ms[m]/ms[0])
		fixed := *p
		fixed.Initial = trials[t].static
		static, err := cct(ctx, "static", &fixed, effort, o.Seed)
		if err != nil {
			return err
		}
		for d, delay := range delays {
			q := *p
			q.ReconfigUS = delay
			bvn, err := cct(ctx, "perstep", &q, effort, o.Seed)
			if err != nil {
				return err
			}
			ours, err := cct(ctx, "harvest", &q, effort, o.Seed)
			if err != nil {
				return err
			}
			// The static graph is one of HARVEST's candidates. HARVEST may begin with any circuits.
			out[t].late[d][m] = ours > static*(1+1e-9)
			out[t].static[d][m], out[t].bvn[d][m], out[t].harvest[d][m] = static, bvn, math.Min(ours, static)
		}
		return nil
	})
	return out, err
}

// harvestEffort is the search per point; most points need none.
const harvestEffort = 2 * time.Second

// over returns base / harvest for each cell.
func (r *ratios) over(base [][]float64) [][]float64 {
	z := matrix(len(r.harvest), len(r.harvest[0]))
	for d := range z {
		for m := range z[d] {
			z[d][m] = base[d][m] / r.harvest[d][m]
		}
	}
	return z
}

// best returns the better baseline of each cell.
func (r *ratios) best() [][]float64 {
	z := matrix(len(r.harvest), len(r.harvest[0]))
	for d := range z {
		for m := range z[d] {
			z[d][m] = math.Min(r.static[d][m], r.bvn[d][m])
		}
	}
	return z
}

// area is a part of a grid: the cells with delays and sizes within the bounds.
type area struct{ delay, size [2]float64 }

// reduce folds the values of z in the area: "max", "min" or "mean".
func (a area) reduce(how string, z [][]float64, delays, ms []float64) float64 {
	least, most, total, count := math.NaN(), math.NaN(), 0.0, 0.0
	for d, delay := range delays {
		for m, size := range ms {
			if delay < a.delay[0] || delay > a.delay[1] || size < a.size[0] || size > a.size[1] {
				continue
			}
			if v := z[d][m]; !(v <= most) {
				most = v
			}
			if v := z[d][m]; !(v >= least) {
				least = v
			}
			total += z[d][m]
			count++
		}
	}
	switch how {
	case "max":
		return most
	case "min":
		return least
	}
	return total / count
}

// region outlines the area in a heat map.
func (a area) region(delays, ms []float64, label string) Region {
	r := Region{X0: len(ms), Y0: len(delays), Label: label}
	for d, delay := range delays {
		if delay >= a.delay[0] && delay <= a.delay[1] {
			r.Y0, r.Y1 = min(r.Y0, d), d
		}
	}
	for m, size := range ms {
		if size >= a.size[0] && size <= a.size[1] {
			r.X0, r.X1 = min(r.X0, m), m
		}
	}
	return r
}

// harvestClaim is a printed speedup over an area of a panel.
type harvestClaim struct {
	id, what string
	trial    int
	base     string // "static", "bvn", "best"
	area     area
	how      string
	printed  float64
	note     string
}

const (
	packetNote = "the paper's is a packet-level simulation; the cost model gives ours"
	cannotNote = "cannot follow from the model, in which HARVEST keeps a ring and BvN pays each switch in full"
)

var harvestClaims = []harvestClaim{
	{"H2", "RD vs static, 1-256 KB, delay < 1 us, largest", 0, "static", area{[2]float64{0, 0.99}, [2]float64{1e3, 256e3}},
		"max", 6.4, packetNote},
	{"H2", "Swing vs static, 1-256 KB, delay < 1 us, largest", 1, "static",
		area{[2]float64{0, 0.99}, [2]float64{1e3, 256e3}}, "max", 4.7, packetNote},
	{"H2", "A2A vs static, 1-256 KB, delay < 1 us, largest", 2, "static",
		area{[2]float64{0, 0.99}, [2]float64{1e3, 256e3}}, "max", 20, packetNote},
	{"H3", "RD vs static, 1 GB, 10 us", 0, "static", area{[2]float64{10, 10}, [2]float64{1e9, 1e9}}, "max", 3.0, ""},
	{"H3", "Swing vs static, 1 GB, 10 us", 1, "static", area{[2]float64{10, 10}, [2]float64{1e9, 1e9}}, "max", 3.1, ""},
	{"H3", "A2A vs static, 1 GB, 10 us", 2, "static", area{[2]float64{10, 10}, [2]float64{1e9, 1e9}}, "max", 30, ""},
	{"H4", "RD vs BvN, 1-256 KB, 100 us, mean", 0, "bvn", area{[2]float64{100, 100}, [2]float64{1e3, 256e3}}, "mean", 7.3,
		cannotNote},
	{"H4", "Swing vs BvN, 1-256 KB, 100 us, mean", 1, "bvn", area{[2]float64{100, 100}, [2]float64{1e3, 256e3}}, "mean",
		10, cannotNote},
	{"H4", "A2A vs BvN, 1-256 KB, 100 us, mean", 2, "bvn", area{[2]float64{100, 100}, [2]float64{1e3, 256e3}}, "mean", 5.3,
		cannotNote},
	{"H5", "RD vs BvN, 4 MB, 10-100 us, largest", 0, "bvn", area{[2]float64{10, 100}, [2]float64{4e6, 4e6}}, "max", 3.0,
		packetNote},
	{"H5", "A2A vs BvN, 4 MB, 10-100 us, largest", 2, "bvn", area{[2]float64{10, 100}, [2]float64{4e6, 4e6}}, "max", 4.8,
		packetNote},
	{"H6", "RD vs the better of both, largest (abstract: about 2x)", 0, "best",
		area{[2]float64{0, math.Inf(1)}, [2]float64{0, math.Inf(1)}}, "max", 2.0,
		"3.0 in Section 6.2 is the 1 GB end of panel (a)"},
	{"H6", "A2A vs the better of both, up to 16 MB, 10-100 us, least (printed: above 1)", 2, "best",
		area{[2]float64{10, 100}, [2]float64{0, 16e6}}, "min", 1.0, ""},
}

// harvest5 is Figure 5: HARVEST compared with a static ring, and with switching at each step.
func harvest5(ctx context.Context, o Options) (*Figure, error) {
	n, delays, ms := harvestRanks, oneTwoFive(-2, 4), sizes(0, 20, 2)
	if o.Quick {
		n, delays, ms = 16, []float64{0.1, 1, 10, 100, 1000}, []float64{1e3, 32e3, 256e3, 4e6, 1e9}
	}
	ts := harvestTrials(n)
	grids, err := gridOf(ctx, o, ts, delays, ms, harvestEffort)
	if err != nil {
		return nil, err
	}
	f := &Figure{Columns: 4, Title: fmt.Sprintf("HARVEST Fig. 5: speedup over a static ring and over switching at "+
		"every step (BvN), %d ranks, 800 Gb/s, alpha = delta = 500 ns", n)}
	f.addRatios(ts, grids, delays, ms)
	panels := []struct {
		trial int
		base  string
	}{{0, "static"}, {1, "static"}, {2, "static"}, {2, "best"}, {0, "bvn"}, {1, "bvn"}, {2, "bvn"}, {0, "best"}}
	for i, pn := range panels {
		h := speedupMap(fmt.Sprintf("(%c) %s", 'a'+i, ts[pn.trial].name), &grids[pn.trial], pn.base, delays, ms)
		for _, c := range harvestClaims {
			if c.trial == pn.trial && c.base == pn.base && c.area.size[1] < 1e12 {
				h.Regions = append(h.Regions, c.area.region(delays, ms, map[string]string{"max": "<= ", "min": "> ",
					"mean": "mean "}[c.how]+fmt.Sprintf("%.3gx", c.printed)))
			}
		}
		f.Panels = append(f.Panels, h)
	}
	for _, c := range harvestClaims {
		f.Claims = append(f.Claims, Claim{ID: c.id, What: c.what, Printed: c.printed, Unit: "x", Note: c.note,
			Ours: c.area.reduce(c.how, grids[c.trial].against(c.base), delays, ms)})
	}
	f.Notes = append(f.Notes, "Red: the paper's numbers for the outlined cells.",
		fmt.Sprintf("Completion times are from the cost model; the first circuits are free. AllReduce algorithms are "+
			"shown by their ReduceScatter phase. The paper does not state the ranks: only 64 fits its 2x and 3.0x. Here "+
			"there are %d.", n))
	return f, nil
}

// addRatios lists every point of the grids, and marks the points where the search was cut short.
func (f *Figure) addRatios(ts []trial, grids []ratios, delays, ms []float64) {
	late := 0
	f.Table.Columns = []string{"algorithm", "ranks", "planes", "reconfig_us", "bytes", "static_us", "bvn_us", "harvest_us"}
	for t := range ts {
		g := &grids[t]
		for d := range delays {
			for m := range ms {
				f.Table.Add(ts[t].name, ts[t].fabric.Ranks, ts[t].fabric.Planes, delays[d], ms[m], g.static[d][m], g.bvn[d][m],
					g.harvest[d][m])
				if g.late[d][m] {
					late++
				}
			}
		}
	}
	if late > 0 {
		f.Notes = append(f.Notes, fmt.Sprintf("At %d of %d points the search ended before it tried the static graph. "+
			"This is one of its candidates, so it counts as the result there.", late, len(f.Table.Rows)))
	}
}

// speedupMap is the heat map of HARVEST's speedup over a baseline. Over one baseline the bar ends at 30, so that panels
// can be compared. Over the better of both, it ends at the largest value.
func speedupMap(title string, g *ratios, base string, delays, ms []float64) *HeatMap {
	names := map[string]string{"static": "static", "bvn": "BvN", "best": "better of both"}
	z := g.against(base)
	h := &HeatMap{
		Title: title + " vs " + names[base], Xs: ms, Ys: delays, Z: z,
		X: Axis{Label: "message size", Name: Bytes}, Y: Axis{Label: "reconfiguration delay", Name: Micros},
		Scale: Scale{Label: "speedup", Min: 1, Max: 30, Log: true},
	}
	if base == "best" {
		h.Scale.Max = math.Max(1.5, math.Ceil(2*greatest(z))/2)
	}
	return h
}

func (r *ratios) against(base string) [][]float64 {
	switch base {
	case "static":
		return r.over(r.static)
	case "bvn":
		return r.over(r.bvn)
	}
	return r.over(r.best())
}
