package peers

import (
	"fmt"
	"math"
	"slices"

	"lightpath/bench/figure"
)

// figures returns two pictures for each transport: times over sizes, with a panel for each collective and number of
// ranks, and a map of the ratios.
func (d *Document) figures() []*figure.Figure {
	var transports []string
	for _, p := range d.Points {
		if !slices.Contains(transports, p.Transport) {
			transports = append(transports, p.Transport)
		}
	}
	var all []*figure.Figure
	for _, t := range transports {
		all = append(all, d.timesFigure(t), d.ratioFigure(t))
	}
	return all
}

// panels groups the points of a transport by collective and ranks, in the order of measuring
// collectives first.
func (d *Document) panels(transport string) (keys []panelKey, points map[panelKey][]*Point) {
	points = map[panelKey][]*Point{}
	for _, p := range d.Points {
		if p.Transport != transport {
			continue
		}
		k := panelKey{p.Collective, p.Ranks}
		if points[k] == nil {
			keys = append(keys, k)
		}
		points[k] = append(points[k], p)
	}
	var order []string
	for _, k := range keys {
		if !slices.Contains(order, k.collective) {
			order = append(order, k.collective)
		}
	}
	slices.SortStableFunc(keys, func(a, b panelKey) int {
		return slices.Index(order, a.collective) - slices.Index(order, b.collective)
	})
	return keys, points
}

type panelKey struct {
	collective string
	ranks      int
}

// timesFigure draws medians over sizes, both axes logarithmic.
func (d *Document) timesFigure(transport string) *figure.Figure {
	f := &figure.Figure{
		Paper: "peers", Name: transport + "-times", Columns: 3,
		Title: "Time of a collective over " + transport + ", by turns on the same machine",
		Notes: []string{fmt.Sprintf("Medians of %d samples, %d processors. Gloo knows TCP only.", d.Rounds, d.Cores)},
		Table: figure.Table{Columns: []string{"collective", "ranks", "bytes", "contender", "median_us"}},
	}
	keys, points := d.panels(transport)
	for _, k := range keys {
		c := &figure.Chart{
			Title: fmt.Sprintf("%s, %d ranks", k.collective, k.ranks),
			X:     figure.Axis{Label: "size", Log: true, Name: figure.Binary}, Y: figure.Axis{Label: "time", Log: true,
				Name: figure.Micros},
		}
		for _, p := range points[k] {
			c.X.At = append(c.X.At, float64(p.Bytes))
		}
		for i, known := range contenders() {
			l := figure.Line{Name: known.Name, Colour: i, Dashed: known.Aside, Faint: known.Aside}
			for _, p := range points[k] {
				if s := p.Contenders[known.Name]; s != nil && s.MedianUS > 0 && s.Wrong == 0 {
					l.X, l.Y = append(l.X, float64(p.Bytes)), append(l.Y, s.MedianUS)
					f.Table.Add(k.collective, k.ranks, p.Bytes, known.Name, s.MedianUS)
				}
			}
			if len(l.X) > 0 {
				c.Lines = append(c.Lines, l)
			}
		}
		f.Panels = append(f.Panels, c)
	}
	return f
}

// ratioFigure maps the ratios of a transport: a panel for each collective, a row for each number of ranks.
func (d *Document) ratioFigure(transport string) *figure.Figure {
	f := &figure.Figure{
		Paper: "peers", Name: transport + "-ratios", Columns: 2,
		Title: "How many times as long the best peer takes over " + transport,
		Notes: []string{"Above 1, Lightpath is faster. Empty: no peer has the call."},
		Table: figure.Table{Columns: []string{"collective", "ranks", "bytes", "ratio", "low", "high", "best_peer"}},
	}
	keys, points := d.panels(transport)
	for i := 0; i < len(keys); {
		first := keys[i].collective
		sizes := map[float64]bool{}
		h := &figure.HeatMap{
			Title: first, X: figure.Axis{Label: "size", Name: figure.Binary}, Y: figure.Axis{Label: "ranks"},
			Scale: figure.Scale{Label: "ratio", Min: 0.25, Max: 4, Log: true,
				Name: func(v float64) string { return fmt.Sprintf("%.2f", v) }},
		}
		begin := i
		for ; i < len(keys) && keys[i].collective == first; i++ {
			for _, p := range points[keys[i]] {
				sizes[float64(p.Bytes)] = true
			}
			h.Ys = append(h.Ys, float64(keys[i].ranks))
		}
		for s := range sizes {
			h.Xs = append(h.Xs, s)
		}
		slices.Sort(h.Xs)
		for _, k := range keys[begin:i] {
			row := slices.Repeat([]float64{math.NaN()}, len(h.Xs))
			for _, p := range points[k] {
				if p.Ratio != nil {
					row[slices.Index(h.Xs, float64(p.Bytes))] = p.Ratio.Value
					f.Table.Add(k.collective, k.ranks, p.Bytes, p.Ratio.Value, p.Ratio.Low, p.Ratio.High, p.Best)
				}
			}
			h.Z = append(h.Z, row)
		}
		f.Panels = append(f.Panels, h)
	}
	return f
}
