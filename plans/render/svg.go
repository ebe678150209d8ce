package render

import (
	"fmt"
	"html"
	"math"
	"strings"

	"lightpath/plans"
)

// palette holds the colours of steps; neighbours differ in hue and in lightness, and all
// carry dark text. Step i has colour i modulo their number.
var palette = []string{
	"#8dbbe8", "#f2b56b", "#9ed29a", "#d9a3d6", "#f0e07a", "#7fd0c8",
	"#eb9c95", "#b3b3e6", "#c7da6f", "#e3bfa0", "#9fb8c9", "#f3b4cf",
}

func colour(step int) string {
	return palette[((step%len(palette))+len(palette))%len(palette)]
}

const (
	ink       = "#1f2430"
	faint     = "#6b7280"
	grid      = "#d9dde3"
	trackFill = "#f4f5f7"
	cctInk    = "#b3261e"
	boundInk  = "#14663c"
	runInk    = "#1d4ed8"
)

// canvas collects SVG elements.
type canvas struct {
	strings.Builder
}

func (c *canvas) rect(x, y, w, h float64, attributes, title string) {
	fmt.Fprintf(c, `<rect x="%.2f" y="%.2f" width="%.2f" height="%.2f" %s`, x, y, w, h, attributes)
	if title == "" {
		c.WriteString("/>\n")
		return
	}
	fmt.Fprintf(c, "><title>%s</title></rect>\n", escape(title))
}

func (c *canvas) line(x1, y1, x2, y2 float64, attributes string) {
	fmt.Fprintf(c, `<line x1="%.2f" y1="%.2f" x2="%.2f" y2="%.2f" %s/>`+"\n", x1, y1, x2, y2, attributes)
}

// text writes s with its baseline at y; anchor is start, middle or end.
func (c *canvas) text(x, y, size float64, anchor, fill, s string) {
	fmt.Fprintf(c, `<text x="%.2f" y="%.2f" font-size="%g" text-anchor="%s" fill="%s">%s</text>`+"\n",
		x, y, size, anchor, fill, escape(s))
}

// escape makes s text of XML and HTML; characters that XML cannot hold become spaces.
func escape(s string) string {
	return html.EscapeString(strings.Map(func(r rune) rune {
		if r < ' ' || r == 0xfffe || r == 0xffff {
			return ' '
		}
		return r
	}, s))
}

// textWidth estimates the width of s; the drawing must not depend on a font.
func textWidth(s string, size float64) float64 { return 0.61 * size * float64(len(s)) }

// fit returns the first of the labels that has room in w, else "".
func fit(w, size float64, labels ...string) string {
	for _, s := range labels {
		if textWidth(s, size)+6 <= w {
			return s
		}
	}
	return ""
}

// track draws the entries of one plane in a band at y of height h.
func (d *drawing) track(y, h float64, entries []plans.Entry) {
	d.rect(d.left, y, d.width, h, fmt.Sprintf(`fill="%s" stroke="%s"`, trackFill, grid), "idle")
	lastX := math.Inf(-1)
	for i := range entries {
		e := &entries[i]
		x0, x1 := d.x(e.StartUS), d.x(e.EndUS)
		if math.IsNaN(x0) || math.IsNaN(x1) || x1 < x0 {
			continue
		}
		if x1-x0 < 0.8 {
			if x0-lastX < 0.4 { // too many to tell apart: one of them stands for all
				continue
			}
			x1 = x0 + 0.8
		}
		lastX = x1
		d.entry(x0, y, x1-x0, h, e)
	}
}

func (d *drawing) entry(x, y, w, h float64, e *plans.Entry) {
	label, style := "", ""
	switch e.Kind {
	case plans.Transmit:
		step := fmt.Sprintf("step %d", e.Step)
		labels := []string{step, fmt.Sprint(e.Step)}
		switch {
		case e.Joint != "":
			labels = append([]string{step + ", joint"}, labels...)
		case e.Bytes > 0:
			labels = append([]string{step + ", " + size(e.Bytes)}, labels...)
		}
		label = fit(w, d.font, labels...)
		style = fmt.Sprintf(`fill="%s" stroke="%s" stroke-width="0.7"`, colour(e.Step), ink)
	case plans.Hold:
		label = fit(w, d.font, "hold "+MapName(e.To), MapName(e.To))
		style = fmt.Sprintf(`fill="%s" stroke="%s" stroke-width="0.7"`, colour(d.holdColour(e)), ink)
	default:
		label = fit(w, d.font, "to "+MapName(e.To), MapName(e.To))
		style = fmt.Sprintf(`fill="url(#hatch)" stroke="%s" stroke-width="0.7"`, ink)
	}
	d.rect(x, y+1, w, h-2, style, d.describe(e))
	if label == "" {
		return
	}
	if e.Kind == plans.Reconfigure { // a plain ground, or the hatching makes it unreadable
		tw := textWidth(label, d.font)
		d.rect(x+w/2-tw/2-2, y+h/2-d.font/2-2, tw+4, d.font+4, `fill="white" opacity="0.85"`, "")
	}
	d.text(x+w/2, y+h/2+d.font*0.36, d.font, "middle", ink, label)
}

// holdColour gives every map of a plan with holds a colour of its own.
func (d *drawing) holdColour(e *plans.Entry) int {
	key := e.To.Digest()
	c, ok := d.maps[key]
	if !ok {
		c = len(d.maps)
		d.maps[key] = c
	}
	return c
}

// describe is the text that a reader gets who points at an entry.
func (d *drawing) describe(e *plans.Entry) string {
	when := fmt.Sprintf("%s to %s (%s)", d.unit.format(e.StartUS), d.unit.format(e.EndUS), d.unit.format(e.EndUS-e.StartUS))
	switch {
	case e.Kind == plans.Transmit && e.Joint != "":
		return fmt.Sprintf("step %d, joint %s: %s", e.Step, e.Joint, when)
	case e.Kind == plans.Transmit && e.Flows != nil:
		return fmt.Sprintf("step %d, %s for each of %d flows: %s", e.Step, size(e.Bytes), len(e.Flows), when)
	case e.Kind == plans.Transmit:
		return fmt.Sprintf("step %d, %s for each flow: %s", e.Step, size(e.Bytes), when)
	case e.Kind == plans.Hold:
		return fmt.Sprintf("hold %s: %s", MapName(e.To), when)
	}
	return fmt.Sprintf("switch to %s: %s", MapName(e.To), when)
}
