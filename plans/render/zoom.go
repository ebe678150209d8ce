package render

import (
	_ "embed"
	"fmt"
	"html/template"
	"strings"

	"lightpath/internal/svg"
	"lightpath/plans"
)

//go:embed zoom.js
var zoomText string

// ZoomScript returns the element that lets a reader zoom the timelines of a page with the mouse. A page has it once,
// after its timelines. It changes timelines that were drawn with [Options.Zoom].
func ZoomScript() template.HTML { return template.HTML("<script>\n" + zoomText + "</script>\n") }

// maxDetail bounds the entries of a picture that a reader can zoom. In a picture with more entries, one
// stands for all that are within a pixel, so that pages stay small.
const maxDetail = 30000

// zoomDetail is how much closer than a pixel the entries of a picture with few of them may be.
const zoomDetail = 64

func (d *drawing) detail() float64 {
	entries := 0
	for _, source := range [][][]plans.Entry{d.plan.Planes, d.o.Measured} {
		for _, plane := range source {
			entries += len(plane)
		}
	}
	if !d.o.Zoom || entries > maxDetail {
		return 1
	}
	return zoomDetail
}

// openZoom begins the group of elements that the script changes.
func (d *drawing) openZoom(bottom float64) {
	if d.o.Zoom {
		fmt.Fprintf(d, `<g class="lightpath-zoom" data-left="%.2f" data-width="%.2f" data-top="%.2f" data-bottom="%.2f" `+
			`data-span="%g" data-unit="%g" data-font="%g" data-ink="%s" data-faint="%s" data-grid="%s">`+"\n",
			d.left, d.width, d.top, bottom, d.span, d.unit.us, d.font, svg.Ink, svg.Faint, svg.Grid)
	}
}

func (d *drawing) closeZoom() {
	if d.o.Zoom {
		d.WriteString("</g>\n")
	}
}

// times returns the attribute that tells the script which times, in us, an element spans.
func (d *drawing) times(startUS, endUS float64) string {
	if !d.o.Zoom || !finite(startUS) || !finite(endUS) {
		return ""
	}
	return fmt.Sprintf(` data-t="%.9g %.9g"`, startUS, endUS)
}

// labelled returns the attribute with the labels that the script chooses from.
func (d *drawing) labelled(labels []string) string {
	if !d.o.Zoom || len(labels) == 0 {
		return ""
	}
	return fmt.Sprintf(` data-labels="%s"`, svg.Escape(strings.Join(labels, "|")))
}

// class puts the elements that draw writes into a group, which the script finds by its name and replaces.
func (d *drawing) class(c *svg.Canvas, name string, draw func()) {
	if d.o.Zoom {
		fmt.Fprintf(c, `<g class="%s">`, name)
		defer c.WriteString("</g>\n")
	}
	draw()
}
