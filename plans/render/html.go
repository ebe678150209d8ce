package render

import (
	"fmt"
	"io"
	"strings"

	"lightpath/internal/svg"
	"lightpath/plans"
)

// HTML writes plan as a self-contained page: its timeline, which a reader can zoom, the proof of its bound, and
// a table of its entries. The error is that of w.
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
</style></head><body>
`, svg.Escape(title), svg.Ink, svg.Grid, svg.Grid)
	o.Zoom = true
	if err := Timeline(&b, plan, o); err != nil {
		return err
	}
	b.WriteString(string(ZoomScript()))
	if plan.BoundProof != "" {
		fmt.Fprintf(&b, "<p>Lower bound: %s.</p>\n", svg.Escape(strings.TrimSuffix(plan.BoundProof, ".")))
	}
	if plan.Digest != "" {
		fmt.Fprintf(&b, "<p>Digest: <code>%s</code></p>\n", svg.Escape(plan.Digest))
	}
	writeTable(&b, plan, o)
	b.WriteString("</body></html>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// maxRows bounds the table of a page.
const maxRows = 5000

func writeTable(b *strings.Builder, plan *plans.Plan, o Options) {
	d := &drawing{o: o}
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
				j, svg.Escape(d.what(e)), number(e.StartUS), number(e.EndUS), number(e.EndUS-e.StartUS))
		}
	}
	if rows > maxRows {
		fmt.Fprintf(b, "<tr><td></td><td>... %d entries in all</td></tr>\n", rows)
	}
	b.WriteString("</table></details>\n")
}
