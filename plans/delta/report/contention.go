package report

import (
	"fmt"
	"math"
	"slices"

	"lightpath/internal/svg"
	"lightpath/plans/delta/dag"
)

// gradients are the transfers of a pair that synchronize replicas, by their kind.
func gradients(g *dag.Graph, pair [2]int) []int {
	var list []int
	for i := range g.Tasks {
		if t := &g.Tasks[i]; t.Transfer() && t.Kind == "dp" && [2]int{t.From, t.To} == pair {
			list = append(list, i)
		}
	}
	return list
}

// decisive returns the last gradient transfer on the critical path of the first run whose path has one. If no
// path has one, it returns the gradient transfer that loses the most time. It returns false if there are no
// gradient transfers.
func decisive(g *dag.Graph, runs []Run) (int, bool) {
	gradient := func(i int) bool { return g.Tasks[i].Transfer() && g.Tasks[i].Kind == "dp" }
	for _, r := range runs {
		path, _ := g.Critical(r.Schedule)
		for _, i := range slices.Backward(path) {
			if gradient(i) {
				return i, true
			}
		}
	}
	best, most := -1, -1.0
	for i := range g.Tasks {
		if !gradient(i) {
			continue
		}
		for _, r := range runs {
			if lost := r.Schedule.Spans[i].End - r.Schedule.Spans[i].Start - g.LeastTime(&g.Tasks[i]); lost > most {
				best, most = i, lost
			}
		}
	}
	return best, best >= 0
}

const contentionHeight = 170.0

// Contention draws the rates of the gradient transfers between the pods of transfer critical, with a frame
// for each run. Time starts with the first of them. The picture shows how the others slow down critical,
// which has a thick line.
func Contention(g *dag.Graph, runs []Run, critical int) string {
	pair := [2]int{g.Tasks[critical].From, g.Tasks[critical].To}
	list := gradients(g, pair)
	begin, end, peak := math.Inf(1), 0.0, 0.0
	for _, r := range runs {
		for _, i := range list {
			begin, end = math.Min(begin, r.Schedule.Spans[i].Start), math.Max(end, r.Schedule.Spans[i].End)
		}
	}
	for _, i := range list {
		peak = math.Max(peak, g.FullRate(&g.Tasks[i]))
	}
	width := narrow
	height := topMargin + float64(len(runs))*(contentionHeight+40) + axisHeight + 30
	var c svg.Canvas
	a := newAxis(width, begin, end, height-axisHeight-30)
	c.Text(margin, 24, 15, "start", svg.Ink, fmt.Sprintf("Rates in GB/s since the first begins, at %s", ms(begin)))
	a.draw(&c)
	for k, r := range runs {
		p := plot{axis: &a, top: topMargin + 24 + float64(k)*(contentionHeight+40), height: contentionHeight,
			peak: 1.1 * peak}
		p.frame(&c, "")
		series := stack(r.Schedule, list, func(i int) int { return slices.Index(list, i) }, len(list))
		for n, i := range list {
			style := fmt.Sprintf(`fill="none" stroke="%s" stroke-width="2"`, svg.Colour(n))
			if i == critical {
				style = fmt.Sprintf(`fill="none" stroke="%s" stroke-width="3.2"`, svg.Late)
			}
			c.Path(p.step(series, n), style, taskTitle(g, r.Schedule, i))
		}
		least, most := rates(r.Schedule.Spans[critical].Segments)
		p.limit(&c, capacityWithin(g, r.Schedule.Circuits, pair, p.peak))
		c.Text(a.left, p.top-8, 12, "start", svg.Ink, fmt.Sprintf("%s: %s at %.4g to %.4g GB/s, ends at %s", r.Name,
			g.Tasks[critical].Name,
			least/1e3, most/1e3, ms(r.Schedule.Spans[critical].End-begin)))
	}
	x := a.left
	for n, i := range list {
		colour := svg.Colour(n)
		if i == critical {
			colour = svg.Late
		}
		c.Line(x, height-14, x+18, height-14, fmt.Sprintf(`stroke="%s" stroke-width="3"`, colour))
		c.Text(x+23, height-10, 11, "start", svg.Ink, g.Tasks[i].Name)
		x += 40 + svg.TextWidth(g.Tasks[i].Name, 11)
	}
	return c.Picture(labelWidth+width+2*margin, height)
}

// capacityWithin is [capacity] where a plot shows it, and else none.
func capacityWithin(g *dag.Graph, circuits dag.Circuits, pair [2]int, peak float64) float64 {
	if v := capacity(g, circuits, pair); v <= peak {
		return v
	}
	return math.Inf(1)
}

// rates are the least and the greatest rate of segments.
func rates(segments []dag.Segment) (least, most float64) {
	least = math.Inf(1)
	for _, s := range segments {
		if r := s.Bytes / (s.End - s.Start); s.End > s.Start {
			least, most = math.Min(least, r), math.Max(most, r)
		}
	}
	return least, most
}
