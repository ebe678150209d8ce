package barrier

import (
	"fmt"
	"strings"
)

// Dimensions of the picture, in pixels.
const (
	svgWidth, svgHeight = 640, 260
	svgLeft, svgBottom  = 48, 48
	svgTop              = 40
)

// SVG draws the histogram: time on a logarithmic axis, the share of rounds as bars.
func (r *Report) SVG() []byte {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d" font-family="sans-serif" font-size="11">`+"\n", svgWidth, svgHeight)
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" fill="white"/>`+"\n")
	fmt.Fprintf(&b, `<text x="%d" y="16" font-size="13">Barrier of %d ranks, %s, %s: p50 %v, p99 %v</text>`+"\n",
		svgLeft, r.Ranks, escape(r.Name), r.Mode, r.All.P50, r.All.P99)
	fmt.Fprintf(&b, `<text x="%d" y="30" fill="#666">%d rounds on %d CPUs; from the last post until the last rank knows</text>`+"\n", svgLeft, r.Rounds, r.CPUs)
	most := 1
	for _, k := range r.Histogram {
		most = max(most, k.Count)
	}
	n := max(len(r.Histogram), 1)
	w := float64(svgWidth-svgLeft-16) / float64(n)
	base := float64(svgHeight - svgBottom)
	for i, k := range r.Histogram {
		h := (base - svgTop) * float64(k.Count) / float64(most)
		x := svgLeft + float64(i)*w
		fmt.Fprintf(&b, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="#3b6ea5"><title>below %v: %d</title></rect>`+"\n", x, base-h, max(w-1, 0.5), h, k.Below, k.Count)
		if i%4 == 0 {
			fmt.Fprintf(&b, `<text x="%.1f" y="%.1f" text-anchor="middle">%s</text>`+"\n", x+w, base+14, micros(k))
		}
	}
	fmt.Fprintf(&b, `<line x1="%d" y1="%.1f" x2="%d" y2="%.1f" stroke="black"/>`+"\n", svgLeft, base, svgWidth-16, base)
	fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="end">%.0f %%</text>`+"\n", svgLeft-4, svgTop+4, 100*float64(most)/float64(max(r.Rounds, 1)))
	fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="middle">microseconds, upper end of the bar</text>`+"\n</svg>\n", svgWidth/2, svgHeight-12)
	return []byte(b.String())
}

func micros(k Bucket) string { return fmt.Sprintf("%.3g", float64(k.Below)/1e3) }

func escape(s string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;").Replace(s)
}
