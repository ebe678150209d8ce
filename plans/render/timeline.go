package render

import (
	"fmt"
	"io"
	"math"
	"strings"

	"lightpath/internal/svg"
	"lightpath/plans"
)

// Options say what to draw beside the plan. The zero value draws the plan alone.
type Options struct {
	Title string // default: the planner's name
	Width int    // of the picture in pixels; default 1100, at least 400
	// Problem lets the legend name the pattern and the size of each step.
	Problem *plans.Problem
	// PlaneNames replaces "plane 0", "plane 1", ...
	PlaneNames []string
	// Measured is what a run did: entries per plane, in us from its start. They are drawn
	// below the planned ones of the same plane, on the same axis.
	Measured [][]plans.Entry
	// MeasuredCCTUS is the completion time of that run; 0: the end of its last transmit.
	MeasuredCCTUS float64

	suffix string // of the names of patterns, which a page with several pictures shares
}

const defaultWidth = 1100

// drawing is a timeline in the making: the SVG so far and where things are.
type drawing struct {
	svg.Canvas
	plan        *plans.Plan
	o           Options
	left, width float64 // of the tracks
	font        float64
	span        float64 // us from the left to the right end of the tracks
	unit        unit
	steps       []int          // that are sent, in order
	holds       []*plans.Entry // one for each held map, as they appear
	maps        map[uint64]int // index of a held map in holds
	traffic     map[*plans.Entry]traffic
	flows       [][][2]int // of the problem's steps, as they are asked for
	over        svg.Canvas // what goes above everything else
	measuredCCT float64
}

const (
	labelWidth = 120.0
	margin     = 18.0
	headHeight = 98.0 // title, summary and three lines of mark labels
	axisHeight = 40.0
	legendLine = 22.0
)

// Timeline writes plan as an SVG picture. The error is that of w.
func Timeline(w io.Writer, plan *plans.Plan, o Options) error {
	d := newDrawing(plan, o)
	rows := d.rows()
	tracks := headHeight
	for _, r := range rows {
		tracks = max(tracks, r.y+r.height)
	}
	legend := d.legend()
	height := tracks + axisHeight + legend.height() + margin
	total := d.left + d.width + margin

	fmt.Fprintf(d, `<defs><pattern id="hatch%[1]s" width="7" height="7" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">`+
		`<rect width="7" height="7" fill="#ffffff"/><line x1="0" y1="0" x2="0" y2="7" stroke="#7a808c" stroke-width="2.4"/></pattern>`+
		`<pattern id="forward%[1]s" width="6" height="5" patternUnits="userSpaceOnUse"><rect width="6" height="5" fill="#1f2430"/>`+
		`<path d="M1 0.5L4 2.5L1 4.5" fill="none" stroke="#ffffff" stroke-width="1.2"/></pattern></defs>`+"\n", d.o.suffix)
	d.head()
	d.axis(tracks)
	for _, r := range rows {
		d.row(r)
	}
	d.links(rows)
	d.marks(tracks)
	d.WriteString(d.over.String())
	legend.draw(d, tracks+axisHeight)
	_, err := io.WriteString(w, d.Picture(total, height))
	return err
}

func newDrawing(plan *plans.Plan, o Options) *drawing {
	if o.Width == 0 {
		o.Width = defaultWidth
	}
	d := &drawing{plan: plan, o: o, left: margin + labelWidth, font: 11, maps: make(map[uint64]int)}
	d.width = float64(max(400, o.Width)) - d.left - margin
	d.span = math.Max(plan.CCTUS, plan.LowerBoundUS)
	for _, entries := range plan.Planes {
		d.stretch(entries, nil)
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

// row is a plane's place in the picture.
type row struct {
	plane     int
	y, height float64 // of all its tracks
	track     float64 // height of one track
}

func (d *drawing) rows() []row {
	track, gap := 34.0, 16.0
	switch {
	case len(d.plan.Planes) > 16:
		track, gap, d.font = 14, 5, 9
	case len(d.plan.Planes) > 6:
		track, gap = 22, 8
	}
	height := track
	if d.o.Measured != nil {
		height = 2*track + 3
	}
	rows := make([]row, len(d.plan.Planes))
	for j := range rows {
		rows[j] = row{plane: j, y: headHeight + float64(j)*(height+gap) + gap/2, height: height, track: track}
	}
	return rows
}

func (d *drawing) planeName(plane int) string {
	if plane < len(d.o.PlaneNames) {
		return d.o.PlaneNames[plane]
	}
	return fmt.Sprintf("plane %d", plane)
}

func (d *drawing) row(r row) {
	name := d.planeName(r.plane)
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
	title := d.o.Title
	if title == "" {
		title = d.plan.Planner
	}
	d.Text(margin, 26, 17, "start", svg.Ink, title)
	sum := "completes in " + d.unit.format(d.plan.CCTUS)
	if d.plan.LowerBoundUS > 0 {
		sum += ", lower bound " + d.unit.format(d.plan.LowerBoundUS)
		switch gap := d.plan.CCTUS/d.plan.LowerBoundUS - 1; {
		case plans.SameUS(d.plan.CCTUS, d.plan.LowerBoundUS):
			sum += ": optimal"
		case gap > 0:
			sum += ": at most " + number(math.Ceil(1e4*gap)/100) + " % above the optimum"
		}
	}
	if sending, switching, ok := d.shares(); ok {
		sum += fmt.Sprintf("; planes send %.0f %%, switch %.0f %%, idle %.0f %% of the time", 100*sending, 100*switching, math.Max(0, 100*(1-sending-switching)))
	}
	if d.measuredCCT > 0 && d.plan.CCTUS > 0 {
		sum += fmt.Sprintf("; measured %s (%+.1f %%)", d.unit.format(d.measuredCCT), 100*(d.measuredCCT/d.plan.CCTUS-1))
	}
	d.Text(margin, 46, 12, "start", svg.Faint, sum)
}

// axis draws ticks, grid lines and the unit below the tracks.
func (d *drawing) axis(bottom float64) {
	span := d.span / d.unit.us
	step := tickStep(span, max(2, int(d.width/90)))
	for i := 0; float64(i)*step <= span; i++ {
		v := float64(i) * step
		x := d.x(v * d.unit.us)
		d.Line(x, headHeight, x, bottom+4, fmt.Sprintf(`stroke="%s" stroke-width="0.8"`, svg.Grid))
		d.Text(x, bottom+17, 10.5, "middle", svg.Faint, number(v))
	}
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
	marks := []mark{{d.plan.CCTUS, "CCT " + d.unit.format(d.plan.CCTUS), svg.Late, ""}}
	if d.plan.LowerBoundUS > 0 {
		if plans.SameUS(d.plan.LowerBoundUS, d.plan.CCTUS) {
			marks[0].label += " = bound"
		} else {
			marks = append(marks, mark{d.plan.LowerBoundUS, "bound " + d.unit.format(d.plan.LowerBoundUS), svg.Good, "6 4"})
		}
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
		d.Line(x, headHeight-6, x, bottom+4, fmt.Sprintf(`stroke="%s" stroke-width="1.8" stroke-dasharray="%s"`, m.colour, m.dash))
		w := svg.TextWidth(m.label, 11)
		from := math.Max(margin, math.Min(x-w/2, d.left+d.width-w))
		level := 0.0
		for _, u := range used { // in order of lines, as each label goes above those it meets
			if from < u[1]+8 && u[0] < from+w+8 {
				level = max(level, u[2]+1)
			}
		}
		used = append(used, [3]float64{from, from + w, level})
		d.Text(from+w/2, headHeight-10-13*level, 11, "middle", m.colour, m.label)
	}
}
