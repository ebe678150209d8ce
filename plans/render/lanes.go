package render

import (
	"fmt"

	"lightpath/internal/svg"
)

const (
	laneHeight = 22.0
	laneGap    = 8.0
)

// lanesHeight is the room of the lanes above the planes.
func (d *drawing) lanesHeight() float64 { return float64(len(d.o.Lanes)) * (laneHeight + laneGap) }

// lanes draws the rows above the planes.
func (d *drawing) lanes() {
	y := d.top + laneGap/2
	for _, lane := range d.o.Lanes {
		d.Text(d.left-8, y+laneHeight*0.66, d.font+1, "end", svg.Ink, lane.Name)
		d.Rect(d.left, y, d.width, laneHeight, fmt.Sprintf(`fill="%s" stroke="%s"`, svg.Track, svg.Grid), "")
		for _, s := range lane.Spans {
			d.laneSpan(lane.Name, s, y)
		}
		y += laneHeight + laneGap
	}
}

// laneSpan draws one span of a lane.
func (d *drawing) laneSpan(lane string, s Span, y float64) {
	if !finite(s.StartUS) || !finite(s.EndUS) || s.EndUS < s.StartUS {
		return
	}
	fill := s.Fill
	if fill == "" {
		fill = d.stepColour(s.Step)
	}
	x := d.x(s.StartUS)
	w := max(0.8, d.x(s.EndUS)-x)
	var labels []string
	if s.Label != "" {
		labels = append(labels, s.Label)
	}
	style := fmt.Sprintf(`fill="%s"%s%s`, fill, d.times(s.StartUS, s.EndUS), d.labelled(labels))
	d.Rect(x, y+1, w, laneHeight-2, style, fmt.Sprintf("%s: %s, %s to %s (%s)", lane, s.Label, d.unit.format(s.StartUS),
		d.unit.format(s.EndUS), d.unit.format(s.EndUS-s.StartUS)))
	if label := svg.Fit(w, d.font, labels...); label != "" {
		d.over.Text(x+w/2, y+laneHeight*0.66, d.font, "middle", svg.Ink, label)
	}
}

// stepText names a step: by Options.StepNames, or by its number.
func (d *drawing) stepText(step int) string {
	if step >= 0 && step < len(d.o.StepNames) {
		return d.o.StepNames[step]
	}
	return fmt.Sprintf("step %d", step)
}

// stepsWord is what steps are.
func (d *drawing) stepsWord() string {
	if d.o.StepNames != nil {
		return "calls"
	}
	return "steps"
}

// doneWord is what ends with the last step.
func (d *drawing) doneWord() string {
	if d.o.StepNames != nil {
		return "iteration"
	}
	return "CCT"
}
