package render

import (
	"fmt"
	"io"
	"strings"

	"lightpath/internal/svg"
	"lightpath/plans"
)

// HTML writes plan as a self-contained page: its timeline, what proves its bound, and a
// table of its entries. The error is that of w.
func HTML(w io.Writer, plan *plans.Plan, o Options) error {
	var b strings.Builder
	title := o.Title
	if title == "" {
		title = "Lightpath plan"
		if plan.Planner != "" {
			title += ": " + plan.Planner
		}
	}
	fmt.Fprintf(&b, `<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>%s</title>
<style>
body{font:14px/1.5 "DejaVu Sans",Verdana,sans-serif;color:%s;margin:24px auto;max-width:1240px;padding:0 16px}
svg{border:1px solid %s}
table{border-collapse:collapse;margin:12px 0}
th,td{border-bottom:1px solid %s;padding:3px 14px 3px 0;text-align:left}
td.n{text-align:right;font-variant-numeric:tabular-nums}
%s</style></head><body>
`, svg.Escape(title), svg.Ink, svg.Grid, svg.Grid, zoomStyle)
	if err := writeZoom(&b, plan, o); err != nil {
		return err
	}
	if plan.BoundProof != "" {
		fmt.Fprintf(&b, "<p>Lower bound: %s.</p>\n", svg.Escape(strings.TrimSuffix(plan.BoundProof, ".")))
	}
	if plan.Digest != "" {
		fmt.Fprintf(&b, "<p>Digest: <code>%s</code></p>\n", svg.Escape(plan.Digest))
	}
	writeTable(&b, plan)
	b.WriteString("</body></html>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// zoomStyle shows the timeline of the chosen width. Without a script, the choice is one of
// radio buttons that stand before the timelines.
const zoomStyle = `body{max-width:none}
.zoom>input{margin:0 4px 0 14px}
.zoom>div{display:none;overflow-x:auto}
#z1:checked~.z1,#z4:checked~.z4,#z16:checked~.z16{display:block}
`

// maxDrawn bounds the entries that all widths of a page draw together.
const maxDrawn = 30000

// writeZoom writes the timeline one, four and sixteen times as wide, as far as the page
// stays small; wider ones have room for more labels.
func writeZoom(b *strings.Builder, plan *plans.Plan, o Options) error {
	entries := 1
	for _, plane := range plan.Planes {
		entries += len(plane)
	}
	width := defaultWidth
	if o.Width > 0 {
		width = o.Width
	}
	var widths []int
	for i, f := range []int{1, 4, 16} {
		if i == 0 || (i+1)*entries <= maxDrawn {
			widths = append(widths, f)
		}
	}
	b.WriteString(`<div class="zoom">Width:`)
	for i, f := range widths {
		checked := ""
		if i == 0 {
			checked = " checked"
		}
		fmt.Fprintf(b, `<input type="radio" name="z" id="z%d"%s><label for="z%d">%dx</label>`, f, checked, f, f)
	}
	b.WriteString("\n")
	for _, f := range widths {
		o.Width, o.suffix = width*f, fmt.Sprintf("-%d", f)
		fmt.Fprintf(b, `<div class="z%d">`+"\n", f)
		if err := Timeline(b, plan, o); err != nil {
			return err
		}
		b.WriteString("</div>\n")
	}
	b.WriteString("</div>\n")
	return nil
}

// maxRows bounds the table of a page.
const maxRows = 5000

func writeTable(b *strings.Builder, plan *plans.Plan) {
	b.WriteString("<details open><summary>Entries</summary><table>\n" +
		"<tr><th>plane</th><th>what</th><th>start [us]</th><th>end [us]</th><th>duration [us]</th></tr>\n")
	rows := 0
	for j, entries := range plan.Planes {
		for i := range entries {
			if rows++; rows > maxRows {
				continue
			}
			e := &entries[i]
			fmt.Fprintf(b, `<tr><td>%d</td><td>%s</td><td class="n">%s</td><td class="n">%s</td><td class="n">%s</td></tr>`+"\n",
				j, svg.Escape(Describe(e)), number(e.StartUS), number(e.EndUS), number(e.EndUS-e.StartUS))
		}
	}
	if rows > maxRows {
		fmt.Fprintf(b, "<tr><td></td><td>... %d entries in all</td></tr>\n", rows)
	}
	b.WriteString("</table></details>\n")
}
