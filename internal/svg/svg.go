package svg

import (
	"fmt"
	"html"
	"math"
	"strings"

	"lightpath/internal/brief"
)

// Colours of text and lines.
const (
	Ink   = "#1f2430"
	Faint = "#6b7280"
	Grid  = "#d9dde3"
	Track = "#f4f5f7" // an empty track
	Late  = "#b3261e" // elements on the critical path
	Good  = "#14663c" // bounds, and circuits that stay
	Cool  = "#1d4ed8" // measured
	Hatch = "#a4a9b3"
)

// Font is the family of all text.
const Font = "DejaVu Sans, Verdana, sans-serif"

// Canvas collects SVG elements. The zero value is empty.
type Canvas struct {
	strings.Builder
}

// Picture returns the elements so far as a picture of w x h pixels with a white background.
func (c *Canvas) Picture(w, h float64) string {
	var p Canvas
	const head = `<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%.0f" viewBox="0 0 %.0f %.0f"` +
		` font-family="%s">` + "\n"
	fmt.Fprintf(&p, head, w, h, w, h, Font)
	p.Rect(0, 0, w, h, `fill="white"`, "")
	p.WriteString(c.String())
	p.WriteString("</svg>\n")
	return p.String()
}

// Rect writes a rectangle. Viewers show title when the pointer is over it; "" is no title.
func (c *Canvas) Rect(x, y, w, h float64, attributes, title string) {
	fmt.Fprintf(c, `<rect x="%.2f" y="%.2f" width="%.2f" height="%.2f" %s`, x, y, w, h, attributes)
	c.end("rect", title)
}

// Circle writes a circle around (x, y).
func (c *Canvas) Circle(x, y, r float64, attributes, title string) {
	fmt.Fprintf(c, `<circle cx="%.2f" cy="%.2f" r="%.2f" %s`, x, y, r, attributes)
	c.end("circle", title)
}

// Path writes a path; d is its data.
func (c *Canvas) Path(d, attributes, title string) {
	fmt.Fprintf(c, `<path d="%s" %s`, d, attributes)
	c.end("path", title)
}

// end closes an element that may have a title.
func (c *Canvas) end(name, title string) {
	if title == "" {
		c.WriteString("/>\n")
		return
	}
	fmt.Fprintf(c, "><title>%s</title></%s>\n", Escape(title), name)
}

// Line writes a line.
func (c *Canvas) Line(x1, y1, x2, y2 float64, attributes string) {
	fmt.Fprintf(c, `<line x1="%.2f" y1="%.2f" x2="%.2f" y2="%.2f" %s/>`+"\n", x1, y1, x2, y2, attributes)
}

// Text writes s with its baseline at y; anchor is start, middle or end.
func (c *Canvas) Text(x, y, size float64, anchor, fill, s string) {
	fmt.Fprintf(c, `<text x="%.2f" y="%.2f" font-size="%g" text-anchor="%s" fill="%s">%s</text>`+"\n",
		x, y, size, anchor, fill, Escape(s))
}

// NiceStep returns 1, 2 or 5 times a power of ten, so that about n steps make up span; 1 if span is not
// positive and finite.
func NiceStep(span float64, n int) float64 {
	raw := span / float64(n)
	if !(raw > 0) || math.IsInf(raw, 0) {
		return 1
	}
	power := math.Pow(10, math.Floor(math.Log10(raw)))
	for _, m := range []float64{1, 2, 5} {
		if raw <= m*power {
			return m * power
		}
	}
	return 10 * power
}

// Escape returns s as text of XML and HTML. Characters that XML forbids become spaces.
func Escape(s string) string {
	return html.EscapeString(strings.Map(func(r rune) rune {
		if r < ' ' || r == 0xfffe || r == 0xffff {
			return ' '
		}
		return r
	}, s))
}

// TextWidth estimates the width of s in pixels, without a font.
func TextWidth(s string, size float64) float64 { return 0.61 * size * float64(len(s)) }

// Cut returns s, or as much of its beginning as fits into w pixels.
func Cut(w, size float64, s string) string { return brief.Text(s, int(w/TextWidth("x", size))) }

// Fit returns the first label that fits into w pixels, or "".
func Fit(w, size float64, labels ...string) string {
	for _, s := range labels {
		if TextWidth(s, size)+6 <= w {
			return s
		}
	}
	return ""
}
