package picture

import (
	"fmt"
	"math"

	"lightpath/internal/svg"
	"lightpath/plans/circuit"
	"lightpath/plans/lumos"
	"lightpath/plans/lumos/matrix"
)

// Sizes of the pictures of an optical core, in pixels.
const (
	coreMargin  = 24.0
	coreFont    = 12.0
	panelGap    = 26.0
	portPitch   = 17.0
	spineWidth  = 116.0
	wireWidth   = 420.0
	mostPicture = 16 // pods, groups or ports drawn at most; the rest is said in words
)

// Wiring draws how one group of OCSes is wired to the spines of that number: egress solid, ingress
// dashed, the OCSes in two colours by turns.
func Wiring(f lumos.Fabric, w lumos.Wiring) (string, error) {
	cables, err := f.Cables(w)
	if err != nil {
		return "", err
	}
	pods, ports := min(f.Pods, 3), min(f.KSpine, 4)
	var c svg.Canvas
	c.Text(coreMargin, coreMargin, coreFont+3, "start", svg.Ink,
		fmt.Sprintf("%s wiring: the first spine of each pod, and its group of %d OCSes", w, f.KSpine))
	said := fmt.Sprintf("solid: sends into the core; dashed: receives from it. %d of %d pods, %d of %d ports of a spine.",
		pods, f.Pods, ports, f.KSpine)
	c.Text(coreMargin, coreMargin+20, coreFont, "start", svg.Faint, said)
	top := coreMargin + 44
	podHeight := float64(2*ports)*portPitch + 12
	podY := func(pod int) float64 { return top + float64(pod)*(podHeight+panelGap) }
	portY := func(pod, port int, egress bool) float64 {
		side := 0.0
		if !egress {
			side = 1
		}
		return podY(pod) + 6 + (float64(2*port)+side+0.5)*portPitch
	}
	height := podY(pods-1) + podHeight
	switches := ports
	if w == lumos.Doubled {
		switches = ports / 2
	}
	left, right := coreMargin+spineWidth, coreMargin+spineWidth+wireWidth
	ocsHeight := (height - top - panelGap*float64(switches-1)) / float64(switches)
	ocsY := func(k int) float64 { return top + float64(k)*(ocsHeight+panelGap) }
	for pod := range pods {
		c.Rect(coreMargin, podY(pod), spineWidth, podHeight, fmt.Sprintf(`fill="%s" stroke="%s"`, svg.Track, svg.Ink), "")
		c.Text(coreMargin+8, podY(pod)+podHeight/2+4, coreFont, "start", svg.Ink, fmt.Sprintf("pod %d", pod))
		for port := range ports {
			c.Text(left-6, portY(pod, port, true)+4, coreFont-1, "end", svg.Faint, fmt.Sprintf("%d out", port))
			c.Text(left-6, portY(pod, port, false)+4, coreFont-1, "end", svg.Faint, fmt.Sprintf("%d in", port))
		}
	}
	for k := range switches {
		c.Rect(right, ocsY(k), spineWidth, ocsHeight,
			fmt.Sprintf(`fill="%s" stroke="%s"`, []string{"#8dbbe8", "#f2b56b"}[k%2], svg.Ink), "")
		c.Text(right+spineWidth/2, ocsY(k)+ocsHeight/2+4, coreFont, "middle", svg.Ink, fmt.Sprintf("OCS %d", k))
	}
	for _, cable := range cables {
		if cable.Spine != 0 || cable.Pod >= pods || cable.Port >= ports || cable.OCS >= switches {
			continue
		}
		colour, dash := []string{"#2b6cb0", "#c2660c"}[cable.OCS%2], ""
		slot := 2 * cable.OCSPort
		if !cable.Egress {
			dash, slot = ` stroke-dasharray="5 3"`, slot+1
		}
		slots := 2 * pods
		if w == lumos.Doubled {
			slots *= 2
		}
		y := ocsY(cable.OCS) + (float64(slot)+0.5)*ocsHeight/float64(slots)
		c.Line(left, portY(cable.Pod, cable.Port, cable.Egress), right, y, fmt.Sprintf(`stroke="%s" stroke-width="1.2"%s`,
			colour, dash))
	}
	return c.Picture(right+spineWidth+coreMargin, height+coreMargin), nil
}

// Logical draws a logical topology: for all spines together and for each, the links between pods.
func Logical(l *lumos.Logical) string {
	f := l.Fabric
	all := matrix.New(f.Pods)
	for _, core := range l.Core {
		for i := range f.Pods {
			for _, cell := range core.Row(i) {
				all.Add(i, cell.Col, cell.Count)
			}
		}
	}
	var c svg.Canvas
	c.Text(coreMargin, coreMargin, coreFont+3, "start", svg.Ink,
		fmt.Sprintf("Logical topology: %d pods, %d spines each, %d links", f.Pods, f.Spines(), all.Total()/2))
	c.Text(coreMargin, coreMargin+20, coreFont, "start", svg.Faint,
		fmt.Sprintf("A cell: the links between two pods. Contention between leaf and spine: %d (1 is none).",
			max(1, l.Contention())))
	top := coreMargin + 64
	size := math.Max(220, math.Min(420, float64(f.Pods)*34))
	heat(&c, coreMargin+24, top, size, "all spines", all)
	shown := min(f.Spines(), mostPicture)
	columns := int(math.Ceil(math.Sqrt(float64(shown))))
	small := math.Max(120, (size-panelGap*float64((shown-1)/columns))/math.Ceil(float64(shown)/float64(columns)))
	x0 := coreMargin + 24 + size + 3*panelGap
	for h := range shown {
		heat(&c, x0+float64(h%columns)*(small+panelGap), top+float64(h/columns)*(small+panelGap), small,
			fmt.Sprintf("spine %d", h), l.Core[h])
	}
	rows := float64((shown + columns - 1) / columns)
	height := math.Max(top+size+panelGap, top+rows*(small+panelGap))
	if shown < f.Spines() {
		c.Text(x0, height+coreFont, coreFont, "start", svg.Faint, fmt.Sprintf("and %d more spines", f.Spines()-shown))
		height += 2 * coreFont
	}
	return c.Picture(x0+float64(columns)*(small+panelGap)+coreMargin, height+coreMargin)
}

// heat draws a matrix of links as a square of size, with numbers where they have room.
func heat(c *svg.Canvas, x, y, size float64, name string, m *matrix.Matrix) {
	most := 1
	for i := range m.Size() {
		for _, cell := range m.Row(i) {
			most = max(most, cell.Count)
		}
	}
	c.Text(x, y-6, coreFont, "start", svg.Ink, name)
	c.Rect(x, y, size, size, fmt.Sprintf(`fill="%s" stroke="%s"`, svg.Track, svg.Grid), "")
	pitch := size / float64(m.Size())
	for i := range m.Size() {
		for _, cell := range m.Row(i) {
			cx, cy := x+float64(cell.Col)*pitch, y+float64(i)*pitch
			c.Rect(cx, cy, pitch, pitch, fmt.Sprintf(`fill="#2b6cb0" fill-opacity="%.2f"`,
				0.15+0.7*float64(cell.Count)/float64(most)), fmt.Sprintf("pods %d and %d: %d links", i, cell.Col, cell.Count))
			if label := svg.Fit(pitch, coreFont-2, fmt.Sprint(cell.Count)); label != "" && pitch > coreFont {
				c.Text(cx+pitch/2, cy+pitch/2+4, coreFont-2, "middle", svg.Ink, label)
			}
		}
		if numbered := pitch > coreFont && size > 200; numbered {
			c.Text(x-6, y+(float64(i)+0.5)*pitch+4, coreFont-2, "end", svg.Faint, fmt.Sprint(i))
			c.Text(x+(float64(i)+0.5)*pitch, y+size+13, coreFont-2, "middle", svg.Faint, fmt.Sprint(i))
		}
	}
	if size > 200 { // the smaller ones beside it have the same axes
		c.Text(x-6, y-6, coreFont-2, "end", svg.Faint, "pod")
		c.Text(x-6, y+size+13, coreFont-2, "end", svg.Faint, "pod")
	}
}

// Steps draws the steps of a rewiring from a configuration on: for each, the pairs of OCSes of every
// group, with what moves in the step and what has moved before, and circuits by count.
func Steps(from *lumos.Configuration, steps []lumos.Step) string {
	f := from.Fabric
	const cell = 26.0
	var c svg.Canvas
	groups, pairs := min(f.Spines(), 2*mostPicture), min(f.Pairs(), 2*mostPicture)
	c.Text(coreMargin, coreMargin, coreFont+3, "start", svg.Ink,
		fmt.Sprintf("Rewiring, step by step: %d groups of OCSes, %d pairs each, %d steps in all", f.Spines(), f.Pairs(),
			len(steps)))
	c.Text(coreMargin, coreMargin+20, coreFont, "start", svg.Faint,
		"A cell is a pair of OCSes: red moves in the step (circuits made), green has moved, grey stays as it was.")
	width, height := math.Max(720, coreMargin*2+90+float64(pairs)*cell), coreMargin+44
	state := from.Clone()
	const untouched, done, moving = 0, 1, 2
	mark := make([][]int, f.Spines())
	for h := range mark {
		mark[h] = make([]int, f.Pairs())
	}
	for s, step := range steps {
		made := map[[2]int]int{}
		for _, m := range step.Moves {
			mark[m.Group][m.Pair] = moving
			made[[2]int{m.Group, m.Pair}] = state.Even[m.Group][m.Pair].Changes(m.Even)
			state.Even[m.Group][m.Pair] = m.Even
		}
		c.Text(coreMargin, height+coreFont, coreFont, "start", svg.Ink,
			fmt.Sprintf("Step %d: %d pairs of OCSes; leaf %d loses %.1f %% of its links, no leaf more", s+1, len(step.Moves),
				step.Leaf, 100*step.Affected))
		height += 24
		for h := range groups {
			c.Text(coreMargin+70, height+cell/2+4, coreFont-1, "end", svg.Faint, fmt.Sprintf("group %d", h))
			for k := range pairs {
				x := coreMargin + 80 + float64(k)*cell
				fill := []string{"#e4e7eb", "#a7d8b0", "#e5766c"}[mark[h][k]]
				c.Rect(x, height, cell-3, cell-3, fmt.Sprintf(`fill="%s"`, fill), describe(h, k, state.Even[h][k]))
				if n := made[[2]int{h, k}]; mark[h][k] == moving {
					c.Text(x+(cell-3)/2, height+cell/2+3, coreFont-2, "middle", svg.Ink, fmt.Sprint(n))
					mark[h][k] = done
				}
			}
			height += cell
		}
		height += panelGap / 2
	}
	return c.Picture(width, height+coreMargin)
}

func describe(h, k int, m circuit.Permutation) string {
	return fmt.Sprintf("group %d, OCSes %d and %d: %v and its inverse", h, 2*k, 2*k+1, []int(m))
}
