package barrier

import (
	"fmt"

	"lightpath/bench/sampling"
	"lightpath/internal/svg"
)

// Dimensions of the picture, in pixels.
const (
	svgWidth, svgHeight = 640.0, 260.0
	svgLeft, svgRight   = 48.0, 16.0
	svgTop, svgBottom   = 40.0, 48.0
)

// SVG draws the histogram: time on a logarithmic axis, the share of rounds as bars.
func (r *Report) SVG() []byte {
	var c svg.Canvas
	c.Text(svgLeft, 16, 13, "start", svg.Ink, fmt.Sprintf("Barrier of %d ranks, %s, %s: p50 %v, p99 %v",
		r.Ranks, r.Name, r.Mode, r.All.P50, r.All.P99))
	c.Text(svgLeft, 30, 11, "start", svg.Faint,
		fmt.Sprintf("%d rounds on %d CPUs; from the last post until the last rank knows",
			r.Rounds, r.CPUs))
	most := 1
	for _, k := range r.Histogram {
		most = max(most, k.Count)
	}
	w := (svgWidth - svgLeft - svgRight) / float64(max(len(r.Histogram), 1))
	const base = svgHeight - svgBottom
	each := 4 // four bars are a factor of two
	for n := len(r.Histogram); n > 0 && float64(each)*w < svg.TextWidth(upper(r.Histogram[n-1]), 11)+6; {
		each += 4
	}
	for i, k := range r.Histogram {
		h := (base - svgTop) * float64(k.Count) / float64(most)
		x := svgLeft + float64(i)*w
		c.Rect(x, base-h, max(w-1, 0.5), h, fmt.Sprintf(`fill="%s"`, svg.Colour(0)),
			fmt.Sprintf("below %v: %d", k.Below, k.Count))
		if i%each == 0 {
			c.Text(x+w, base+14, 11, "middle", svg.Ink, upper(k))
		}
	}
	c.Line(svgLeft, base, svgWidth-svgRight, base, fmt.Sprintf(`stroke="%s"`, svg.Ink))
	c.Text(svgLeft-4, svgTop+4, 11, "end", svg.Ink, fmt.Sprintf("%.0f %%", 100*float64(most)/float64(max(r.Rounds, 1))))
	c.Text(svgWidth/2, svgHeight-12, 11, "middle", svg.Ink, "microseconds, upper end of the bar")
	return []byte(c.Picture(svgWidth, svgHeight))
}

// upper returns the end of a bucket, in microseconds.
func upper(k sampling.Bucket) string { return fmt.Sprintf("%.0f", float64(k.Below)/1e3) }
