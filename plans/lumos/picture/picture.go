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
	l := newWiringLayout(f, w)
	left, right := coreMargin+spineWidth, coreMargin+spineWidth+wireWidth
	var c svg.Canvas
	c.Text(coreMargin, coreMargin, coreFont+3, "start", svg.Ink,
		fmt.Sprintf("%s wiring: the first spine of each pod, and its group of %d OCSes", w, f.KSpine))
	said := fmt.Sprintf("solid: sends into the core; dashed: receives from it. %d of %d pods, %d of %d ports of a spine.",
		l.pods, f.Pods, l.ports, f.KSpine)
	c.Text(coreMargin, coreMargin+20, coreFont, "start", svg.Faint, said)
	for pod := range l.pods {
		y := l.podY(pod)
		c.Rect(coreMargin, y, spineWidth, l.podHeight, fmt.Sprintf(`fill="%s" stroke="%s"`, svg.Track, svg.Ink), "")
		c.Text(coreMargin+8, y+l.podHeight/2+4, coreFont, "start", svg.Ink, fmt.Sprintf("pod %d", pod))
		for port := range l.ports {
			c.Text(left-6, l.portY(pod, port, true)+4, coreFont-1, "end", svg.Faint, fmt.Sprintf("%d out", port))
			c.Text(left-6, l.portY(pod, port, false)+4, coreFont-1, "end", svg.Faint, fmt.Sprintf("%d in", port))
		}
	}
	for k := range l.switches {
		c.Rect(right, l.ocsY(k), spineWidth, l.ocsHeight,
			fmt.Sprintf(`fill="%s" stroke="%s"`, []string{"#8dbbe8", "#f2b56b"}[k%2], svg.Ink), "")
		c.Text(right+spineWidth/2, l.ocsY(k)+l.ocsHeight/2+4, coreFont, "middle", svg.Ink, fmt.Sprintf("OCS %d", k))
	}
	for _, cable := range cables {
		if cable.Spine != 0 || cable.Pod >= l.pods || cable.Port >= l.ports || cable.OCS >= l.switches {
			continue
		}
		colour, dash := []string{"#2b6cb0", "#c2660c"}[cable.OCS%2], ""
		if !cable.Egress {
			dash = ` stroke-dasharray="5 3"`
		}
		c.Line(left, l.portY(cable.Pod, cable.Port, cable.Egress), right, l.slotY(cable.OCS, cable.OCSPort, cable.Egress),
			fmt.Sprintf(`stroke="%s" stroke-width="1.2"%s`, colour, dash))
	}
	return c.Picture(right+spineWidth+coreMargin, l.height()+coreMargin), nil
}

// wiringLayout is the place of pods, ports and switches in a picture of a wiring.
type wiringLayout struct {
	pods, ports, switches int // that are drawn
	slots                 int // of a switch, for the cables drawn
	podHeight, ocsHeight  float64
}

func newWiringLayout(f lumos.Fabric, w lumos.Wiring) wiringLayout {
	l := wiringLayout{pods: min(f.Pods, 3), ports: min(f.KSpine, 4)}
	l.switches, l.slots = l.ports, 2*l.pods
	if w == lumos.Doubled {
		l.switches, l.slots = l.ports/2, 4*l.pods
	}
	l.podHeight = float64(2*l.ports)*portPitch + 12
	l.ocsHeight = (l.height() - wiringTop - panelGap*float64(l.switches-1)) / float64(l.switches)
	return l
}

const wiringTop = coreMargin + 44

func (l *wiringLayout) height() float64 { return l.podY(l.pods-1) + l.podHeight }

func (l *wiringLayout) podY(pod int) float64 { return wiringTop + float64(pod)*(l.podHeight+panelGap) }

func (l *wiringLayout) ocsY(k int) float64 { return wiringTop + float64(k)*(l.ocsHeight+panelGap) }

func (l *wiringLayout) portY(pod, port int, egress bool) float64 {
	return l.podY(pod) + 6 + (pairY(port, egress)+0.5)*portPitch
}

func (l *wiringLayout) slotY(ocs, port int, egress bool) float64 {
	return l.ocsY(ocs) + (pairY(port, egress)+0.5)*l.ocsHeight/float64(l.slots)
}

// pairY numbers the two directions of a port: egress above.
func pairY(port int, egress bool) float64 {
	if egress {
		return float64(2 * port)
	}
	return float64(2*port + 1)
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
			fmt.Sprintf("Step %d: %d pairs of OCSes; at most %.1f %% of a leaf's links dark (leaf %d)", s+1, len(step.Moves),
				100*step.Affected, step.Leaf))
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
