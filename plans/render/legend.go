package render

import (
	"fmt"
	"slices"

	"lightpath/plans"
)

// maxLegend bounds the steps that a legend lists.
const maxLegend = 36

// legend explains colours and hatching below the axis.
type legend struct {
	items []legendItem
	lines int
}

type legendItem struct {
	fill, label string
	x, line     float64
}

// legend lays out one item for each step that plan or run sends, for held maps, and for
// the hatched and the empty parts.
func (d *drawing) legend() *legend {
	l := &legend{}
	add := func(fill, label string) { l.items = append(l.items, legendItem{fill: fill, label: label}) }
	steps, holds := d.sent()
	for i, step := range steps {
		if i == maxLegend {
			add("none", fmt.Sprintf("... %d steps in all", len(steps)))
			break
		}
		add(colour(step), d.stepName(step))
	}
	for i, hold := range holds {
		if i == maxLegend {
			add("none", fmt.Sprintf("... %d maps in all", len(holds)))
			break
		}
		add(colour(d.holdColour(hold)), "hold "+MapName(hold.To))
	}
	add("url(#hatch)", "reconfiguration")
	add(trackFill, "idle")
	x, line := margin, 0.0
	for i := range l.items {
		w := 22 + textWidth(l.items[i].label, 11) + 16
		if x+w > d.left+d.width && x > margin {
			x, line = margin, line+1
		}
		l.items[i].x, l.items[i].line = x, line
		x += w
	}
	l.lines = int(line) + 1
	return l
}

func (l *legend) height() float64 { return legendLine * float64(l.lines) }

func (l *legend) draw(d *drawing, y float64) {
	for _, item := range l.items {
		top := y + item.line*legendLine
		if item.fill != "none" {
			d.rect(item.x, top, 16, 13, fmt.Sprintf(`fill="%s" stroke="%s" stroke-width="0.7"`, item.fill, ink), "")
		}
		d.text(item.x+22, top+11, 11, "start", ink, item.label)
	}
}

// sent lists the steps in order and one hold for each held map.
func (d *drawing) sent() (steps []int, holds []*plans.Entry) {
	seenStep, seenMap := make(map[int]bool), make(map[uint64]bool)
	for _, source := range [][][]plans.Entry{d.plan.Planes, d.o.Measured} {
		for _, entries := range source {
			for i := range entries {
				switch e := &entries[i]; e.Kind {
				case plans.Transmit:
					if !seenStep[e.Step] {
						seenStep[e.Step] = true
						steps = append(steps, e.Step)
					}
				case plans.Hold:
					if key := e.To.Digest(); !seenMap[key] {
						seenMap[key] = true
						holds = append(holds, e)
					}
				case plans.Reconfigure:
				}
			}
		}
	}
	slices.Sort(steps)
	return steps, holds
}

// stepName is "step 3: xor 4, 5 MB" where the problem is known, else "step 3".
func (d *drawing) stepName(step int) string {
	name := fmt.Sprintf("step %d", step)
	p := d.o.Problem
	if p == nil || step < 0 || step >= len(p.Steps) {
		return name
	}
	s := &p.Steps[step]
	if s.To != nil {
		return fmt.Sprintf("%s: %s, %s", name, MapName(s.To), size(s.Bytes))
	}
	return fmt.Sprintf("%s: %d flows, %s", name, len(s.Flows), size(s.Bytes))
}
