package report

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"lightpath/internal/svg"
	"lightpath/plans/delta/dag"
)

// Run is a schedule of the job with a name. Its transfers must have segments.
type Run struct {
	Name     string
	Schedule *dag.Schedule
	Note     string // what else is known of it
}

// HTML writes a page about the runs of one job, which are drawn on one time axis. The error is
// that of w.
func HTML(w io.Writer, g *dag.Graph, runs []Run) error {
	var b strings.Builder
	title := "Job"
	if g.Name != "" {
		title += " " + g.Name
	}
	fmt.Fprintf(&b, `<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>%[1]s</title>
<style>
body{font:14px/1.5 %[2]s;color:%[3]s;margin:24px auto;max-width:1240px;padding:0 16px}
.wide{overflow-x:auto}
table{border-collapse:collapse;margin:12px 0}
th,td{border-bottom:1px solid %[4]s;padding:3px 14px 3px 0;text-align:left}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}
</style></head><body>
<h1>%[1]s</h1>
`, svg.Escape(title), svg.Font, svg.Ink, svg.Grid)
	summary(&b, g, runs)
	for k, r := range runs {
		name := svg.Escape(r.Name)
		known := slices.ContainsFunc(runs[:k], func(o Run) bool {
			return slices.Equal(o.Schedule.Circuits,
				r.Schedule.Circuits)
		})
		if r.Schedule.Circuits != nil && !known {
			fmt.Fprintf(&b, "<h2>%s: topology</h2>\n<div class=\"wide\">%s</div>\n", name, Topology(g, r.Schedule.Circuits))
		}
		fmt.Fprintf(&b, "<h2>%s: iteration and critical path</h2>\n%s\n", name, Timeline(g, r.Schedule, narrow))
		if wide := math.Min(6000, 4*float64(len(g.Tasks))); wide > 2*narrow && len(g.Tasks) <= maxWide {
			fmt.Fprintf(&b, "<details><summary>wider</summary><div class=\"wide\">%s</div></details>\n",
				Timeline(g, r.Schedule, wide))
		}
	}
	if i, ok := decisive(g, runs); ok {
		t := &g.Tasks[i]
		fmt.Fprintf(&b, "<h2>Gradients from %s to %s</h2>\n<div class=\"wide\">%s</div>\n", svg.Escape(g.Pods[t.From].Name),
			svg.Escape(g.Pods[t.To].Name),
			Contention(g, runs, i))
	}
	for _, r := range runs {
		fmt.Fprintf(&b, "<h2>%s: what links carry</h2>\n<div class=\"wide\">%s</div>\n", svg.Escape(r.Name),
			Profile(g, r.Schedule))
	}
	b.WriteString("</body></html>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// narrow is the width of a time axis that fits the page.
const narrow = 1040.0

// maxWide is up to how many tasks are drawn a second time: pages stay small.
const maxWide = 20000

// summary is a table of the runs.
func summary(b *strings.Builder, g *dag.Graph, runs []Run) {
	b.WriteString(`<table><tr><th>run</th><th class="n">iteration [ms]</th>` +
		`<th class="n">between pods, critical [ms]</th><th class="n">ports used</th><th></th></tr>` + "\n")
	for _, r := range runs {
		_, communication := g.Critical(r.Schedule)
		ports := "ideal network"
		if r.Schedule.Circuits != nil {
			used, all := g.TotalPorts(r.Schedule.Circuits)
			ports = fmt.Sprintf("%d of %d", used, all)
		}
		fmt.Fprintf(b, `<tr><td>%s</td><td class="n">%.3f</td><td class="n">%.3f</td><td class="n">%s</td>`+
			`<td>%s</td></tr>`+"\n",
			svg.Escape(r.Name), r.Schedule.Makespan/1e3, communication/1e3, ports, svg.Escape(r.Note))
	}
	b.WriteString("</table>\n")
}

// axis is a time axis below what is drawn.
type axis struct {
	left, width float64
	begin, end  float64 // us
	top, bottom float64
	factor      float64
	name        string
}

func newAxis(width, begin, end, bottom float64) axis {
	a := axis{left: margin + labelWidth, width: width, begin: begin, end: end, top: topMargin - 6, bottom: bottom,
		factor: 1, name: "us"}
	switch span := end - begin; {
	case span >= 2e6:
		a.factor, a.name = 1e6, "s"
	case span >= 2e3:
		a.factor, a.name = 1e3, "ms"
	}
	return a
}

// x is where a time is, kept within the axis.
func (a *axis) x(us float64) float64 {
	return a.left + a.width*math.Min(1, math.Max(0, (us-a.begin)/math.Max(1e-9, a.end-a.begin)))
}

// draw writes ticks at round numbers, counted from begin, and grid lines.
func (a *axis) draw(c *svg.Canvas) {
	span := (a.end - a.begin) / a.factor
	step := svg.NiceStep(span, 10)
	for v := 0.0; v <= span*(1+1e-9); v += step {
		x := a.x(a.begin + v*a.factor)
		c.Line(x, a.top, x, a.bottom+4, fmt.Sprintf(`stroke="%s" stroke-width="0.8"`, svg.Grid))
		c.Text(x, a.bottom+17, 10.5, "middle", svg.Faint, number(v))
	}
	c.Line(a.left, a.bottom, a.left+a.width, a.bottom, fmt.Sprintf(`stroke="%s"`, svg.Faint))
	c.Text(a.left-8, a.bottom+17, 10.5, "end", svg.Faint, "time ["+a.name+"]")
}

func number(v float64) string {
	if math.Abs(v) < 1e-9 {
		v = 0
	}
	return fmt.Sprintf("%.4g", v)
}

func ms(us float64) string { return fmt.Sprintf("%.3f ms", us/1e3) }
