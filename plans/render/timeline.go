package render

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"lightpath/internal/brief"
	"lightpath/internal/svg"
	"lightpath/plans"
	"lightpath/plans/circuit"
)

// Options select what to draw in addition to the plan. The zero value draws the plan alone.
type Options struct {
	Title string // default: the planner's name
	Width int    // of the picture in pixels; default 1100, at least 400
	// Problem lets the legend name the pattern and the size of each step.
	Problem *plans.Problem
	// Measured is what a run did: entries per plane, in us from its start. They are drawn
	// below the planned ones of the same plane, on the same axis.
	Measured [][]plans.Entry
	// MeasuredCCTUS is the completion time of that run; 0: the end of its last transmit.
	MeasuredCCTUS float64
	// WithoutBarrierUS is the least time of this plan if a plane starts a step as soon as it can: without the
	// barrier that the cost model has between steps. 0: the run has that barrier too. A value of the plan's CCT or
	// more explains nothing and is not drawn.
	WithoutBarrierUS float64
	// StepNames replace "step 0", "step 1", ... where entries stand for something else, such as the calls of an iteration.
	StepNames []string
	// Lanes are rows above the planes.
	Lanes []Lane
	// Zoom draws what [ZoomScript] needs. A picture without it has no need of a page.
	Zoom bool
}

// Lane is a row of spans that are no entries of planes.
type Lane struct {
	Name  string
	Spans []Span
}

// Span is a part of a lane, in us.
type Span struct {
	Label          string
	StartUS, EndUS float64
	Step           int    // whose colour the span has
	Fill           string // another colour; "" is that of the step
}

const defaultWidth = 1100

// drawing is a timeline under construction: the SVG so far, and positions.
type drawing struct {
	svg.Canvas
	plan        *plans.Plan
	o           Options
	left, width float64 // of the tracks
	top         float64 // of the first track's place, below title and labels of marks
	notes       []string
	font        float64
	span        float64 // us from the left to the right end of the tracks
	unit        unit
	steps       []int          // that are sent or stand in lanes, in order
	holds       []*plans.Entry // one for each held map, as they appear
	maps        map[uint64]int // index of a held map in holds
	traffic     map[*plans.Entry]traffic
	flows       [][][2]int // of the problem's steps, as they are asked for
	over        svg.Canvas // elements above all others
	measuredCCT float64
}

const (
	labelWidth = 120.0
	margin     = 18.0
	headHeight = 98.0 // title, summary and three lines of mark labels
	noteLine   = 15.0
	axisHeight = 40.0
	legendLine = 22.0
)

// Timeline writes plan as an SVG picture. The error is that of w.
func Timeline(w io.Writer, plan *plans.Plan, o Options) error {
	d := newDrawing(plan, o)
	rows := d.rows()
	tracks := d.top
	for _, r := range rows {
		tracks = max(tracks, r.y+r.height)
	}
	legend := d.legend()
	height := tracks + axisHeight + legend.height() + margin
	total := d.left + d.width + margin

	d.WriteString(patterns)
	d.head()
	d.openZoom(tracks)
	d.axis(tracks)
	d.lanes()
	for _, r := range rows {
		d.row(r)
	}
	d.links(rows)
	d.marks(tracks)
	d.class(&d.Canvas, "labels", func() { d.WriteString(d.over.String()) })
	d.closeZoom()
	legend.draw(d, tracks+axisHeight)
	_, err := io.WriteString(w, d.Picture(total, height))
	return err
}

// patterns are the fills of reconfigurations and of forwarding. All pictures of a page define the same ones.
const patterns = `<defs><pattern id="hatch" width="7" height="7" patternUnits="userSpaceOnUse" ` +
	`patternTransform="rotate(45)"><rect width="7" height="7" fill="#ffffff"/>` +
	`<line x1="0" y1="0" x2="0" y2="7" stroke="#7a808c" stroke-width="2.4"/></pattern>` +
	`<pattern id="forward" width="6" height="5" patternUnits="userSpaceOnUse">` +
	`<rect width="6" height="5" fill="#1f2430"/>` +
	`<path d="M1 0.5L4 2.5L1 4.5" fill="none" stroke="#ffffff" stroke-width="1.2"/></pattern></defs>` + "\n"

func newDrawing(plan *plans.Plan, o Options) *drawing {
	o.Width = cmp.Or(o.Width, defaultWidth)
	d := &drawing{plan: plan, o: o, left: margin + labelWidth, font: 11, maps: make(map[uint64]int)}
	d.width = float64(max(400, o.Width)) - d.left - margin
	d.span = math.Max(plan.CCTUS, plan.LowerBoundUS)
	for _, entries := range plan.Planes {
		d.stretch(entries, nil)
	}
	if !(o.WithoutBarrierUS < plan.CCTUS) || plans.SameUS(o.WithoutBarrierUS, plan.CCTUS) {
		d.o.WithoutBarrierUS = 0
	}
	d.measuredCCT = o.MeasuredCCTUS
	for _, entries := range o.Measured {
		var cct *float64
		if o.MeasuredCCTUS == 0 {
			cct = &d.measuredCCT
		}
		d.stretch(entries, cct)
	}
	d.span = math.Max(d.span, d.measuredCCT)
	if !(d.span > 0) || math.IsInf(d.span, 0) {
		d.span = 1
	}
	d.unit = unitFor(d.span)
	d.measureTraffic()
	d.collect()
	d.note()
	d.top = headHeight + noteLine*float64(len(d.notes))
	d.span *= 1.015 // the last line stays clear of the frame
	return d
}

// stretch makes room for entries; cct, where not nil, becomes the end of the last of them
// that sends.
func (d *drawing) stretch(entries []plans.Entry, cct *float64) {
	for i := range entries {
		if e := &entries[i]; e.EndUS > d.span && !math.IsInf(e.EndUS, 0) {
			d.span = e.EndUS
		}
		if cct != nil && entries[i].Kind != plans.Reconfigure {
			*cct = math.Max(*cct, entries[i].EndUS)
		}
	}
}

// x is the position of a time, kept within the tracks.
func (d *drawing) x(us float64) float64 {
	return d.left + d.width*math.Min(1, math.Max(0, us/d.span))
}

// row is the place of a plane in the picture, or of several planes in a row that do the same.
type row struct {
	plane, last int     // the first and the last plane
	y, height   float64 // of all its tracks
	track       float64 // height of one track
}

// manyPlanes is from how many planes on rows are low, and planes that do the same share a row.
const manyPlanes = 7

func (d *drawing) rows() []row {
	var rows []row
	for j := range d.plan.Planes {
		if n := len(rows); n > 0 && d.same(j-1, j) {
			rows[n-1].last = j
			continue
		}
		rows = append(rows, row{plane: j, last: j})
	}
	track, gap := 34.0, 16.0
	switch {
	case len(rows) > 16:
		track, gap, d.font = 14, 5, 9
	case len(rows) >= manyPlanes:
		track, gap = 22, 8
	}
	height := track
	if d.o.Measured != nil {
		height = 2*track + 3
	}
	y := d.top + gap/2 + d.lanesHeight()
	for i := range rows {
		rows[i].y, rows[i].height, rows[i].track = y, height, track
		y += height + gap
		if len(rows) > 16 && i%8 == 7 { // blocks of eight help to follow a row to its name
			y += gap
		}
	}
	return rows
}

// same reports whether planes a and b of many have equal entries, so that one row shows both.
func (d *drawing) same(a, b int) bool {
	equal := func(e, f plans.Entry) bool {
		return e.Joint == "" && e.Kind == f.Kind && e.Step == f.Step && e.Bytes == f.Bytes && e.StartUS == f.StartUS &&
			e.EndUS == f.EndUS && slices.Equal(e.Flows, f.Flows) && slices.Equal(e.To, f.To)
	}
	var first [2]circuit.Permutation
	for i, plane := range []int{a, b} {
		if plane < len(d.plan.Initial) {
			first[i] = d.plan.Initial[plane]
		}
	}
	return len(d.plan.Planes) >= manyPlanes && d.o.Measured == nil && slices.Equal(first[0], first[1]) &&
		slices.EqualFunc(d.plan.Planes[a], d.plan.Planes[b], equal)
}

func (d *drawing) row(r row) {
	name := fmt.Sprintf("plane %d", r.plane)
	if r.last > r.plane {
		name = fmt.Sprintf("planes %d to %d", r.plane, r.last)
	}
	begins := ""
	if r.plane < len(d.plan.Initial) {
		begins = "begins " + MapName(d.plan.Initial[r.plane])
	}
	right := d.left - 8
	d.track(r.plane, r.y, r.track, d.plan.Planes[r.plane])
	switch {
	case d.o.Measured != nil:
		d.Text(margin, r.y+r.track*0.62, d.font+2, "start", svg.Ink, name)
		d.Text(right, r.y+r.track*0.62, d.font-1, "end", svg.Faint, "planned")
		d.Text(right, r.y+r.track*1.62+3, d.font-1, "end", svg.Cool, "measured")
		d.Text(margin, r.y+r.track*1.62+3, d.font-2, "start", svg.Faint, strings.Replace(begins, "begins", "from", 1))
		if r.plane < len(d.o.Measured) {
			d.track(r.plane, r.y+r.track+3, r.track, d.o.Measured[r.plane])
		}
	case begins != "" && r.track > 30:
		d.Text(right, r.y+r.track*0.42, d.font+2, "end", svg.Ink, name)
		d.Text(right, r.y+r.track*0.42+14, d.font-1, "end", svg.Faint, begins)
	default:
		d.Text(right, r.y+r.track*0.66, d.font+1, "end", svg.Ink, name)
	}
}

// head writes the title and one line that sums up.
func (d *drawing) head() {
	title := svg.Cut(d.left+d.width-margin, 17, cmp.Or(d.o.Title, d.plan.Planner))
	d.Text(margin, 26, 17, "start", svg.Ink, title)
	sum := "completes in " + d.unit.format(d.plan.CCTUS)
	if d.plan.LowerBoundUS > 0 {
		sum += ", lower bound " + d.unit.format(d.plan.LowerBoundUS)
		switch gap := d.plan.CCTUS/d.plan.LowerBoundUS - 1; {
		case plans.SameUS(d.plan.CCTUS, d.plan.LowerBoundUS):
			sum += ": optimal"
			if d.o.WithoutBarrierUS > 0 {
				sum += " with the barrier"
			}
		case gap > 0:
			sum += ": at most " + number(math.Ceil(1e4*gap)/100) + " % above the optimum"
		}
	}
	if sending, switching, ok := d.shares(); ok {
		sum += fmt.Sprintf("; planes send %.0f %%, switch %.0f %%, idle %.0f %% of the time", 100*sending, 100*switching,
			math.Max(0, 100*(1-sending-switching)))
	}
	if d.measuredCCT > 0 && d.plan.CCTUS > 0 {
		sum += fmt.Sprintf("; measured %s (%+.1f %%)", d.unit.format(d.measuredCCT), 100*(d.measuredCCT/d.plan.CCTUS-1))
	}
	d.Text(margin, 46, 12, "start", svg.Faint, sum)
	for i, note := range d.notes {
		d.Text(margin, 63+noteLine*float64(i), 12, "start", svg.Faint, note)
	}
}

// note collects lines that explain surprising pictures: a run that is faster than the optimum, and work after the
// completion time.
func (d *drawing) note() {
	if us := d.o.WithoutBarrierUS; us > 0 {
		d.notes = append(d.notes, fmt.Sprintf("The plan has a barrier between steps and the run has none. "+
			"Without the barrier this plan needs at least %s.", d.unit.format(us)))
	}
	if planned := resets(d.plan.Planes); planned > 0 && d.o.StepNames == nil {
		text := "After the last step of their plane: " + brief.Count(planned, "reconfiguration") + " planned"
		if d.o.Measured != nil {
			text += fmt.Sprintf(", %d measured", resets(d.o.Measured))
		}
		d.notes = append(d.notes, text+". They set the circuits for the next call and may end after the CCT line.")
	}
}

// resets counts the reconfigurations that no transmit of their plane follows.
func resets(planes [][]plans.Entry) (n int) {
	for _, entries := range planes {
		for _, e := range slices.Backward(entries) {
			if e.Kind != plans.Reconfigure {
				break
			}
			n++
		}
	}
	return n
}

// axis draws ticks, grid lines and the unit below the tracks.
func (d *drawing) axis(bottom float64) {
	span := d.span / d.unit.us
	step := svg.NiceStep(span, max(2, int(d.width/90)))
	d.class(&d.Canvas, "ticks", func() {
		for i := 0; float64(i)*step <= span; i++ {
			v := float64(i) * step
			x := d.x(v * d.unit.us)
			d.Line(x, d.top, x, bottom+4, fmt.Sprintf(`stroke="%s" stroke-width="0.8"`, svg.Grid))
			d.Text(x, bottom+17, 10.5, "middle", svg.Faint, number(v))
		}
	})
	d.Line(d.left, bottom+4, d.left+d.width, bottom+4, fmt.Sprintf(`stroke="%s"`, svg.Faint))
	d.Text(d.left-8, bottom+17, 10.5, "end", svg.Faint, "time ["+d.unit.name+"]")
}

// marks draws the lines of completion time and bound through all tracks.
func (d *drawing) marks(bottom float64) {
	type mark struct {
		us            float64
		label, colour string
		dash          string
	}
	marks := []mark{{d.plan.CCTUS, d.doneWord() + " " + d.unit.format(d.plan.CCTUS), svg.Late, ""}}
	if d.plan.LowerBoundUS > 0 {
		if plans.SameUS(d.plan.LowerBoundUS, d.plan.CCTUS) {
			marks[0].label += " = bound"
			if d.o.WithoutBarrierUS > 0 {
				marks[0].label += " with barrier"
			}
		} else {
			marks = append(marks, mark{d.plan.LowerBoundUS, "bound " + d.unit.format(d.plan.LowerBoundUS), svg.Good, "6 4"})
		}
	}
	if us := d.o.WithoutBarrierUS; us > 0 {
		marks = append(marks, mark{us, "bound without barrier " + d.unit.format(us), svg.Good, "6 4"})
	}
	if d.measuredCCT > 0 {
		marks = append(marks, mark{d.measuredCCT, "measured " + d.unit.format(d.measuredCCT), svg.Cool, "2 3"})
	}
	var used [][3]float64 // the stretches that labels take, and on which line
	for _, m := range marks {
		if math.IsNaN(m.us) {
			continue
		}
		x := d.x(m.us)
		times := d.times(m.us, m.us)
		d.Line(x, d.top-6, x, bottom+4,
			fmt.Sprintf(`stroke="%s" stroke-width="1.8" stroke-dasharray="%s"%s`, m.colour, m.dash, times))
		w := svg.TextWidth(m.label, 11)
		from := math.Max(margin, math.Min(x-w/2, d.left+d.width-w))
		level := 0.0
		for _, u := range used { // in order of lines, as each label goes above those it meets
			if from < u[1]+8 && u[0] < from+w+8 {
				level = max(level, u[2]+1)
			}
		}
		used = append(used, [3]float64{from, from + w, level})
		if times != "" {
			fmt.Fprintf(d, "<g%s>", times)
		}
		d.Text(from+w/2, d.top-10-13*level, 11, "middle", m.colour, m.label)
		if times != "" {
			d.WriteString("</g>\n")
		}
	}
}
