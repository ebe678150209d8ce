package report

import (
	"fmt"
	"math"

	"lightpath/internal/svg"
	"lightpath/plans/delta/dag"
)

// Topology draws pods on a circle with their links: as thick as they have circuits, which
// their labels count. Images, the copies of a projected job's pods, are dashed and outside.
func Topology(g *dag.Graph, circuits dag.Circuits) string {
	var c svg.Canvas
	at, size := places(g)
	most := 1
	for _, n := range circuits {
		most = max(most, n)
	}
	for l, k := range g.Links {
		a, b := at[k.Pods[0]], at[k.Pods[1]]
		c.Path(fmt.Sprintf("M%.1f %.1fL%.1f %.1f", a[0], a[1], b[0], b[1]),
			fmt.Sprintf(`stroke="%s" stroke-width="%.1f" stroke-linecap="round" opacity="0.75" fill="none"`, svg.Colour(l),
				2+14*float64(circuits[l])/float64(most)),
			linkTitle(g, l, circuits[l]))
	}
	for l, k := range g.Links { // labels above all lines
		a, b := at[k.Pods[0]], at[k.Pods[1]]
		x, y := a[0]+(b[0]-a[0])*0.5, a[1]+(b[1]-a[1])*0.5
		label := fmt.Sprint(circuits[l])
		w := svg.TextWidth(label, 13) + 8
		c.Rect(x-w/2, y-10, w, 19, fmt.Sprintf(`rx="4" fill="white" stroke="%s"`, svg.Grid), linkTitle(g, l, circuits[l]))
		c.Text(x, y+5, 13, "middle", svg.Ink, label)
	}
	used := g.PortsUsed(circuits)
	for p := range g.Pods {
		pod := &g.Pods[p]
		style, below := fmt.Sprintf(`fill="white" stroke="%s" stroke-width="1.6"`, svg.Ink),
			fmt.Sprintf("%d/%d ports", used[p], pod.Ports)
		if pod.Image {
			style, below = fmt.Sprintf(`fill="%s" stroke="%s" stroke-dasharray="4 3"`, svg.Track, svg.Faint), "next replica"
		}
		title := pod.Name
		if len(pod.Copies) > 1 {
			title += fmt.Sprintf(", for %d replicas", len(pod.Copies))
		}
		c.Circle(at[p][0], at[p][1], 36, style, title)
		c.Text(at[p][0], at[p][1]-1, 12, "middle", svg.Ink, pod.Name)
		c.Text(at[p][0], at[p][1]+13, 9, "middle", svg.Faint, below)
	}
	return c.Picture(size, size)
}

func linkTitle(g *dag.Graph, l, n int) string {
	k := g.Links[l]
	s := fmt.Sprintf("%s to %s: %d circuits, %g Gb/s each way", g.Pods[k.Pods[0]].Name, g.Pods[k.Pods[1]].Name, n,
		float64(n)*g.Gbps)
	if len(k.Copies) > 1 {
		s += fmt.Sprintf("; %d such pairs in the job", len(k.Copies))
	}
	return s
}

// places puts pods on a circle and images outside of what they are joined to.
func places(g *dag.Graph) ([][2]float64, float64) {
	var real []int
	for p := range g.Pods {
		if !g.Pods[p].Image {
			real = append(real, p)
		}
	}
	images := len(g.Pods) - len(real)
	inner := math.Max(110, 34*float64(len(real)))
	outer := inner
	if images > 0 {
		outer += 150
	}
	size := 2*outer + 120
	at := make([][2]float64, len(g.Pods))
	angle := make([]float64, len(g.Pods))
	place := func(p int, radius float64) {
		at[p] = [2]float64{size/2 + radius*math.Cos(angle[p]), size/2 + radius*math.Sin(angle[p])}
	}
	for i, p := range real {
		angle[p] = 2*math.Pi*float64(i)/float64(len(real)) - math.Pi/2
		place(p, inner)
	}
	for _, k := range g.Links {
		for side, p := range k.Pods {
			if g.Pods[p].Image {
				angle[p] = angle[k.Pods[1-side]]
				place(p, outer)
			}
		}
	}
	for p := range g.Pods {
		if g.Pods[p].Image && at[p] == [2]float64{} { // joined to nothing
			at[p] = [2]float64{size / 2, size / 2}
		}
	}
	return at, size
}
