package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"lightpath/internal/svg"
	"lightpath/plans/delta/dag"
)

const (
	labelWidth = 130.0
	rowHeight  = 17.0
	rowGap     = 4.0
	margin     = 16.0
	topMargin  = 54.0
	axisHeight = 30.0
)

// row is a band of a timeline: the tasks that do not overlap in one place.
type row struct {
	place string
	tasks []int
	end   float64
}

// maxEdges is up to how many dependencies are drawn beside those of the critical path: more would
// hide what they join.
const maxEdges = 400

// Timeline draws the graph over time: work by pod, transfers by pair of pods, dependencies as
// lines, the critical path outlined and joined. The time axis is width pixels long.
func Timeline(g *dag.Graph, s *dag.Schedule, width float64) string {
	rows, rowOf := lanes(g, s)
	height := topMargin + float64(len(rows))*(rowHeight+rowGap) + axisHeight + 30
	var c svg.Canvas
	bottom := topMargin + float64(len(rows))*(rowHeight+rowGap)
	a := newAxis(width, 0, s.Makespan, bottom)
	path, communication := g.Critical(s)
	c.Text(margin, 24, 15, "start", svg.Ink, fmt.Sprintf("%s, critical path of %d tasks with %s between pods",
		ms(s.Makespan), len(path), ms(communication)))
	a.draw(&c)
	for r := range rows {
		y := topMargin + float64(r)*(rowHeight+rowGap)
		c.Rect(a.left, y, width, rowHeight, fmt.Sprintf(`fill="%s"`, svg.Track), "")
		if r == 0 || rows[r].place != rows[r-1].place {
			c.Text(a.left-8, y+rowHeight*0.72, 11, "end", svg.Ink, rows[r].place)
		}
	}
	kinds := kindsOf(g)
	l := layout{g, s, a, rowOf}
	l.tasks(&c, kinds, path)
	if len(g.Deps) <= maxEdges {
		for _, d := range g.Deps {
			l.edge(&c, d.From, d.To, fmt.Sprintf(`stroke="%s" stroke-width="0.6" opacity="0.6"`, svg.Faint))
		}
	}
	for k := 1; k < len(path); k++ {
		l.edge(&c, path[k-1], path[k], fmt.Sprintf(`stroke="%s" stroke-width="1.2"`, svg.Late))
	}
	right := legend(&c, kinds, a.left, height-20)
	if slices.ContainsFunc(g.Tasks, func(t dag.Task) bool {
		return t.Kind == "forward" &&
			strings.HasPrefix(t.Name, "F0S")
	}) {
		c.Text(right, height-10, 11, "start", svg.Faint, "F3S1, B3S1: forward, backward of micro-batch 3 on stage S1")
	}
	return c.Picture(labelWidth+width+2*margin, height)
}

// layout is the place of each task in the picture.
type layout struct {
	g     *dag.Graph
	s     *dag.Schedule
	axis  axis
	rowOf []int // of each task; -1 for one that is not drawn
}

func (l *layout) box(i int) (x0, x1, y float64) {
	span := l.s.Spans[i]
	return l.axis.x(span.Start), l.axis.x(span.End), topMargin + float64(l.rowOf[i])*(rowHeight+rowGap)
}

// tasks draws the tasks, those of the critical path outlined.
func (l *layout) tasks(c *svg.Canvas, kinds []string, path []int) {
	onPath := make(map[int]bool, len(path))
	for _, i := range path {
		onPath[i] = true
	}
	for i := range l.g.Tasks {
		if l.rowOf[i] < 0 {
			continue
		}
		task := &l.g.Tasks[i]
		x0, x1, y := l.box(i)
		style := fmt.Sprintf(`fill="%s"`, svg.Colour(slices.Index(kinds, task.Kind)))
		if onPath[i] {
			style += fmt.Sprintf(` stroke="%s" stroke-width="1.6"`, svg.Late)
		} else if x1-x0 > 3 {
			style += ` stroke="white" stroke-width="0.6"`
		}
		c.Rect(x0, y+1, math.Max(0.8, x1-x0), rowHeight-2, style, taskTitle(l.g, l.s, i))
		if label := svg.Fit(x1-x0, 9, task.Name); label != "" {
			c.Text((x0+x1)/2, y+rowHeight*0.68, 9, "middle", svg.Ink, label)
		}
	}
}

// edge joins the end of a task to the start of another.
func (l *layout) edge(c *svg.Canvas, from, to int, style string) {
	if l.rowOf[from] < 0 || l.rowOf[to] < 0 {
		return
	}
	_, x0, y0 := l.box(from)
	x1, _, y1 := l.box(to)
	c.Line(x0, y0+rowHeight/2, x1, y1+rowHeight/2, style)
}

// lanes distributes tasks that take time over rows: work below its pod, transfers below their pair.
func lanes(g *dag.Graph, s *dag.Schedule) ([]row, []int) {
	var order []int
	for i := range g.Tasks {
		if s.Spans[i].End > s.Spans[i].Start {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(s.Spans[a].Start, s.Spans[b].Start) })
	byPlace := make(map[string][]*row)
	var places []string
	at := make(map[int]*row)
	for _, i := range order {
		t := &g.Tasks[i]
		place := g.Pods[t.From].Name
		if t.Transfer() {
			place += " - " + g.Pods[t.To].Name
		}
		if byPlace[place] == nil {
			places = append(places, place)
		}
		free := slices.IndexFunc(byPlace[place], func(r *row) bool { return r.end <= s.Spans[i].Start+1e-6*s.Makespan/1e3 })
		if free < 0 {
			free = len(byPlace[place])
			byPlace[place] = append(byPlace[place], &row{place: place})
		}
		r := byPlace[place][free]
		r.tasks, r.end = append(r.tasks, i), s.Spans[i].End
		at[i] = r
	}
	slices.Sort(places)
	var rows []row
	rowOf := slices.Repeat([]int{-1}, len(g.Tasks))
	for _, place := range places {
		for _, r := range byPlace[place] {
			for _, i := range r.tasks {
				rowOf[i] = len(rows)
			}
			rows = append(rows, *r)
		}
	}
	return rows, rowOf
}

// kindsOf lists kinds of tasks in the order in which they appear.
func kindsOf(g *dag.Graph) []string {
	var kinds []string
	for i := range g.Tasks {
		if k := g.Tasks[i].Kind; !slices.Contains(kinds, k) {
			kinds = append(kinds, k)
		}
	}
	return kinds
}

func taskTitle(g *dag.Graph, s *dag.Schedule, i int) string {
	t, span := &g.Tasks[i], &s.Spans[i]
	text := fmt.Sprintf("%s: %s to %s", t.Name, ms(span.Start), ms(span.End))
	if t.Transfer() {
		text += fmt.Sprintf(", %.4g MB in %d flows, %.4g of %.4g GB/s on average", t.Bytes/1e6, t.Flows,
			t.Bytes/math.Max(1e-9, span.End-span.Start)/1e3, g.FullRate(t)/1e3)
	}
	return text
}

// kindNames are the kinds whose own name is an abbreviation.
var kindNames = map[string]string{"": "other", "pp": "pipeline (pp)", "dp": "gradients (dp)"}

// legend writes the colours of kinds in a line and returns the place after it.
func legend(c *svg.Canvas, kinds []string, x, y float64) float64 {
	for k, name := range kinds {
		if long, ok := kindNames[name]; ok {
			name = long
		}
		c.Rect(x, y, 14, 12, fmt.Sprintf(`fill="%s"`, svg.Colour(k)), "")
		c.Text(x+19, y+10, 11, "start", svg.Ink, name)
		x += 36 + svg.TextWidth(name, 11)
	}
	const critical = "critical path"
	c.Rect(x, y, 14, 12, fmt.Sprintf(`fill="white" stroke="%s" stroke-width="1.6"`, svg.Late), "")
	c.Text(x+19, y+10, 11, "start", svg.Ink, critical)
	return x + 36 + svg.TextWidth(critical, 11)
}
