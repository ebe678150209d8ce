package render

import (
	"fmt"
	"math"
	"slices"

	"lightpath/internal/brief"
	"lightpath/internal/svg"
	"lightpath/plans"
)

// track draws the entries of one plane in a band at y of height h.
func (d *drawing) track(plane int, y, h float64, entries []plans.Entry) {
	d.Rect(d.left, y, d.width, h, fmt.Sprintf(`fill="%s" stroke="%s"`, svg.Track, svg.Grid), "idle")
	detail := d.detail()
	lastX := math.Inf(-1)
	for i := range entries {
		e := &entries[i]
		x0, x1 := d.x(e.StartUS), d.x(e.EndUS)
		if math.IsNaN(x0) || math.IsNaN(x1) || x1 < x0 {
			continue
		}
		if x1-x0 < 0.8 {
			if x0-lastX < 0.4/detail { // too many to tell apart: one of them stands for all
				continue
			}
			lastX, x1 = math.Max(x1, x0+0.8/detail), x0+0.8
		} else {
			lastX = x1
		}
		d.entry(plane, x0, y, x1-x0, h, e)
	}
}

// entry draws one entry; its label goes above the lines that cross the tracks.
func (d *drawing) entry(plane int, x, y, w, h float64, e *plans.Entry) {
	fill, stroke := d.pattern("hatch"), fmt.Sprintf(`stroke="%s" stroke-width="0.7"`, svg.Ink)
	switch e.Kind {
	case plans.Transmit:
		fill = d.stepColour(e.Step)
	case plans.Hold:
		fill = d.mapColour(e)
	case plans.Reconfigure:
	}
	if w < 3.5 { // outlines would be all there is to see
		stroke = ""
		if e.Kind == plans.Reconfigure {
			fill = svg.Hatch
		}
	} else if e.Flows != nil {
		stroke = fmt.Sprintf(`stroke="%s" stroke-width="1.3" stroke-dasharray="4 2"`, svg.Ink)
	}
	labels, times := d.labels(e), d.times(e.StartUS, e.EndUS)
	style := fmt.Sprintf(`fill="%s" %s%s%s`, fill, stroke, times, d.labelled(labels))
	if d.o.Zoom && e.Kind == plans.Reconfigure {
		style += ` data-ground="white"`
	}
	d.Rect(x, y+1, w, h-2, style, fmt.Sprintf("plane %d: %s", plane, d.describe(e)))
	if t := d.traffic[e]; t.hops > 1 && w >= 2 {
		d.Rect(x, y+h-1-d.band(h), w, d.band(h),
			fmt.Sprintf(`fill="%s" pointer-events="none"%s`, d.pattern("forward"), times), "")
	}
	if label := svg.Fit(w, d.font, labels...); label != "" {
		if e.Kind == plans.Reconfigure { // a plain ground, or the hatching makes it unreadable
			tw := svg.TextWidth(label, d.font)
			d.over.Rect(x+w/2-tw/2-2, y+h/2-d.font/2-2, tw+4, d.font+4, `fill="white" opacity="0.85" pointer-events="none"`, "")
		}
		d.over.Text(x+w/2, y+h/2+d.font*0.36, d.font, "middle", svg.Ink, label)
	}
}

// pattern is the fill called name.
func (d *drawing) pattern(name string) string { return "url(#" + name + ")" }

// band is the height of the mark of forwarding on a track of height h.
func (d *drawing) band(h float64) float64 { return math.Max(2.5, h*0.14) }

// labels returns possible labels of an entry, the most detailed first.
func (d *drawing) labels(e *plans.Entry) []string {
	switch e.Kind {
	case plans.Hold:
		return []string{"hold " + MapName(e.To), MapName(e.To)}
	case plans.Reconfigure:
		return []string{"to " + MapName(e.To), MapName(e.To)}
	case plans.Transmit:
	}
	step := d.stepText(e.Step)
	labels := []string{step, fmt.Sprint(e.Step)}
	if d.o.StepNames != nil {
		labels = labels[:1]
	}
	bytes := ""
	switch {
	case e.Joint != "":
		bytes = ", joint"
	case e.Bytes > 0:
		bytes = ", " + size(e.Bytes)
	}
	if t := d.traffic[e]; t.hops > 1 {
		labels = append([]string{fmt.Sprintf("%s %s", step, t), fmt.Sprintf("%d %s", e.Step, t)}, labels...)
		if bytes != "" {
			labels = append([]string{fmt.Sprintf("%s%s, %s", step, bytes, t)}, labels...)
		}
	}
	if bytes != "" {
		labels = append([]string{step + bytes}, labels...)
	}
	if e.Flows != nil {
		labels = append([]string{fmt.Sprintf("%s%s, %s", step, bytes, flows(len(e.Flows)))}, labels...)
	}
	slices.SortStableFunc(labels, func(a, b string) int { return len(b) - len(a) })
	return labels
}

// describe returns the text that appears when a reader points at an entry.
func (d *drawing) describe(e *plans.Entry) string {
	s := fmt.Sprintf("%s: %s to %s (%s)", d.what(e), d.unit.format(e.StartUS), d.unit.format(e.EndUS),
		d.unit.format(e.EndUS-e.StartUS))
	if t := d.traffic[e]; t.hops > 1 {
		s += fmt.Sprintf(", forwarded over %d hops", t.hops)
		if t.load > 1 {
			s += fmt.Sprintf(", %d flows share a circuit", t.load)
		}
	}
	return s
}

// what is [Describe], with the name of a step in place of its number and bytes.
func (d *drawing) what(e *plans.Entry) string {
	if e.Kind == plans.Transmit && d.o.StepNames != nil {
		return d.stepText(e.Step)
	}
	return Describe(e)
}

// Describe says what an entry does, without its times: "step 3, 5 MB for each flow".
func Describe(e *plans.Entry) string {
	switch {
	case e.Kind == plans.Hold:
		return "hold " + MapName(e.To)
	case e.Kind == plans.Reconfigure:
		return "switch to " + MapName(e.To)
	case e.Joint != "":
		return fmt.Sprintf("step %d, joint %s", e.Step, e.Joint)
	case e.Flows != nil:
		return fmt.Sprintf("step %d, %s for each of %s", e.Step, size(e.Bytes), flows(len(e.Flows)))
	}
	return fmt.Sprintf("step %d, %s for each flow", e.Step, size(e.Bytes))
}

func flows(n int) string { return brief.Count(n, "flow") }
