package report

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"lightpath/internal/svg"
	"lightpath/plans/delta/dag"
)

// pairs lists the directed pairs of pods that have transfers, and the transfers of each pair.
func pairs(g *dag.Graph) ([][2]int, map[[2]int][]int) {
	var order [][2]int
	tasks := make(map[[2]int][]int)
	for i := range g.Tasks {
		if t := &g.Tasks[i]; t.Transfer() {
			p := [2]int{t.From, t.To}
			if tasks[p] == nil {
				order = append(order, p)
			}
			tasks[p] = append(tasks[p], i)
		}
	}
	slices.SortFunc(order, func(a, b [2]int) int { return slices.Compare(a[:], b[:]) })
	return order, tasks
}

// capacity returns the rate of the circuits between two pods in each direction, in bytes per us; +Inf on the ideal
// network.
func capacity(g *dag.Graph, c dag.Circuits, pair [2]int) float64 {
	for l, k := range g.Links {
		if c != nil && (k.Pods == pair || k.Pods == [2]int{pair[1], pair[0]}) {
			return float64(c[l]) * g.Gbps * dag.BytesPerUSPerGbps
		}
	}
	return math.Inf(1)
}

const profileHeight = 78.0

// Profile draws the rates of transfers over time for every directed pair of pods. Rates are stacked and coloured by
// kind; a line shows the capacity of the circuits.
func Profile(g *dag.Graph, s *dag.Schedule) string {
	order, tasks := pairs(g)
	kinds := kindsOf(g)
	width := narrow
	height := topMargin + float64(len(order))*(profileHeight+14) + axisHeight + 24
	var c svg.Canvas
	bottom := height - axisHeight - 24
	a := newAxis(width, 0, s.Makespan, bottom)
	c.Text(margin, 24, 15, "start", svg.Ink, "Rate between pods in GB/s over time; dashed: what the circuits carry")
	a.draw(&c)
	for k, pair := range order {
		top := topMargin + float64(k)*(profileHeight+14)
		limit := capacity(g, s.Circuits, pair)
		series := stack(s, tasks[pair], func(i int) int { return slices.Index(kinds, g.Tasks[i].Kind) }, len(kinds))
		peak := series.peak()
		if !math.IsInf(limit, 1) {
			peak = math.Max(peak, limit)
		}
		p := plot{axis: &a, top: top, height: profileHeight, peak: peak * 1.08}
		p.frame(&c, g.Pods[pair[0]].Name+" - "+g.Pods[pair[1]].Name)
		for n := range kinds {
			if d := p.area(series, n); d != "" {
				// the line makes short transfers visible
				c.Path(d, fmt.Sprintf(`fill="%[1]s" stroke="%[1]s" stroke-width="0.6"`, svg.Colour(n)), kinds[n])
			}
		}
		p.limit(&c, limit)
	}
	legend(&c, kinds, a.left, height-20)
	return c.Picture(labelWidth+width+2*margin, height)
}

// series has rates over time, with one row of values for each layer. Rates are constant between two times.
type series struct {
	times  []float64
	values [][]float64 // by layer, len(times)-1
}

// stack adds up the rates of tasks by layer.
func stack(s *dag.Schedule, tasks []int, layer func(i int) int, layers int) series {
	var r series
	for _, i := range tasks {
		for _, g := range s.Spans[i].Segments {
			r.times = append(r.times, g.Start, g.End)
		}
	}
	slices.Sort(r.times)
	r.times = slices.Compact(r.times)
	r.values = make([][]float64, layers)
	for n := range r.values {
		r.values[n] = make([]float64, max(0, len(r.times)-1))
	}
	for _, i := range tasks {
		for _, g := range s.Spans[i].Segments {
			from, _ := slices.BinarySearch(r.times, g.Start)
			to, _ := slices.BinarySearch(r.times, g.End)
			for k := from; k < to; k++ {
				r.values[layer(i)][k] += g.Bytes / (g.End - g.Start)
			}
		}
	}
	return r
}

// peak returns the largest sum of all layers.
func (r *series) peak() float64 {
	most := 0.0
	for k := range len(r.times) - 1 {
		sum := 0.0
		for n := range r.values {
			sum += r.values[n][k]
		}
		most = math.Max(most, sum)
	}
	return most
}

// plot is a frame on a time axis with rates up to peak.
type plot struct {
	axis              *axis
	top, height, peak float64
}

func (p *plot) y(rate float64) float64 {
	return p.top + p.height*(1-math.Min(1, rate/math.Max(1e-12, p.peak)))
}

func (p *plot) frame(c *svg.Canvas, name string) {
	c.Line(p.axis.left, p.top+p.height, p.axis.left+p.axis.width, p.top+p.height, fmt.Sprintf(`stroke="%s"`, svg.Faint))
	c.Text(p.axis.left-44, p.top+p.height/2+4, 11, "end", svg.Ink, name)
	step := svg.NiceStep(p.peak/1e3, 3)
	for v := 0.0; v <= p.peak/1e3; v += step {
		c.Text(p.axis.left-6, p.y(v*1e3)+4, 9.5, "end", svg.Faint, number(v))
	}
}

// limit draws the line of the circuits' rate.
func (p *plot) limit(c *svg.Canvas, rate float64) {
	if math.IsInf(rate, 1) {
		return
	}
	c.Line(p.axis.left, p.y(rate), p.axis.left+p.axis.width, p.y(rate),
		fmt.Sprintf(`stroke="%s" stroke-width="1" stroke-dasharray="6 3"`, svg.Late))
	c.Text(p.axis.left+p.axis.width, p.y(rate)-3, 9.5, "end", svg.Late, fmt.Sprintf("%g GB/s", rate/1e3))
}

// area returns the path of layer n on top of the layers before it; "" if the layer is 0 everywhere.
func (p *plot) area(r series, n int) string {
	var d strings.Builder
	for k := 0; k+1 < len(r.times); k++ {
		v := r.values[n][k]
		if v <= 0 {
			continue
		}
		below := 0.0
		for m := range n {
			below += r.values[m][k]
		}
		x0, x1 := p.axis.x(r.times[k]), p.axis.x(r.times[k+1])
		if x1 <= x0 {
			continue
		}
		fmt.Fprintf(&d, "M%.2f %.2fH%.2fV%.2fH%.2fZ", x0, p.y(below), x1, p.y(below+v), x0)
	}
	return d.String()
}

// step returns the path of layer n alone, as a line.
func (p *plot) step(r series, n int) string {
	var d strings.Builder
	last := 0.0
	for k := 0; k+1 < len(r.times); k++ {
		v := r.values[n][k]
		if v > 0 && last <= 0 {
			fmt.Fprintf(&d, "M%.2f %.2f", p.axis.x(r.times[k]), p.y(0))
		}
		if v > 0 || last > 0 {
			fmt.Fprintf(&d, "L%.2f %.2f", p.axis.x(r.times[k]), p.y(v))
		}
		if v > 0 {
			fmt.Fprintf(&d, "L%.2f %.2f", p.axis.x(r.times[k+1]), p.y(v))
		}
		last = v
	}
	if last > 0 {
		fmt.Fprintf(&d, "L%.2f %.2f", p.axis.x(r.times[len(r.times)-1]), p.y(0))
	}
	return d.String()
}
