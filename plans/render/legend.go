package render

import (
	"fmt"
	"slices"

	"lightpath/internal/svg"
	"lightpath/plans"
)

// maxLegend bounds the maps that a legend lists.
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
	add := func(fill, label string) {
		label = svg.Cut(d.left+d.width-margin-22, 11, label)
		l.items = append(l.items, legendItem{fill: fill, label: label})
	}
	if n := len(d.steps); n > fewSteps {
		for _, i := range []int{0, n / 4, n / 2, 3 * n / 4, n - 1} {
			add(d.stepColour(d.steps[i]), d.stepName(d.steps[i]))
		}
		add("none", fmt.Sprintf("(%d %s)", n, d.stepsWord()))
	} else {
		for _, step := range d.steps {
			add(d.stepColour(step), d.stepName(step))
		}
	}
	for i, hold := range d.holds {
		if i == maxLegend {
			add("none", fmt.Sprintf("... %d maps in all", len(d.holds)))
			break
		}
		add(d.mapColour(hold), "hold "+MapName(hold.To))
	}
	forwards, some, joint := d.kinds()
	if joint {
		add("none", "blocks joined over planes: one joint transmit")
	}
	if forwards {
		add(d.pattern("forward"), "ranks forward; H2 L4: at most 2 hops, 4 flows on the busiest circuit")
	}
	if some {
		add("dashed", "some of the step's flows")
	}
	add(d.pattern("hatch"), "reconfiguration")
	add(svg.Track, "idle")
	x, line := margin, 0.0
	for i := range l.items {
		w := 22 + svg.TextWidth(l.items[i].label, 11) + 16
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
		switch item.fill {
		case "none":
			d.Text(item.x, top+11, 11, "start", svg.Faint, item.label)
			continue
		case "dashed":
			d.Rect(item.x, top, 16, 13, fmt.Sprintf(`fill="white" stroke="%s" stroke-width="1.3" stroke-dasharray="4 2"`,
				svg.Ink), "")
		default:
			d.Rect(item.x, top, 16, 13, fmt.Sprintf(`fill="%s" stroke="%s" stroke-width="0.7"`, item.fill, svg.Ink), "")
		}
		d.Text(item.x+22, top+11, 11, "start", svg.Ink, item.label)
	}
}

// collect lists the steps that are sent or stand in lanes, in order, and one hold for each held map.
func (d *drawing) collect() {
	seen := make(map[int]bool)
	see := func(step int) {
		if !seen[step] {
			seen[step] = true
			d.steps = append(d.steps, step)
		}
	}
	for _, lane := range d.o.Lanes {
		for _, s := range lane.Spans {
			if s.Fill == "" {
				see(s.Step)
			}
		}
	}
	for _, source := range [][][]plans.Entry{d.plan.Planes, d.o.Measured} {
		for _, entries := range source {
			for i := range entries {
				switch e := &entries[i]; e.Kind {
				case plans.Transmit:
					see(e.Step)
				case plans.Hold:
					if key := e.To.Digest(); !d.held(key) {
						d.maps[key] = len(d.holds)
						d.holds = append(d.holds, e)
					}
				case plans.Reconfigure:
				}
			}
		}
	}
	slices.Sort(d.steps)
}

func (d *drawing) held(key uint64) bool {
	_, ok := d.maps[key]
	return ok
}

// kinds reports which marks the plan's transmits have.
func (d *drawing) kinds() (forwards, some, joint bool) {
	for _, entries := range d.plan.Planes {
		for i := range entries {
			e := &entries[i]
			forwards = forwards || d.traffic[e].hops > 1
			some = some || e.Flows != nil
			joint = joint || e.Joint != ""
		}
	}
	return forwards, some, joint
}

// stepName returns "step 3: xor 4, 5 MB" if the problem is known, else "step 3".
func (d *drawing) stepName(step int) string {
	name := d.stepText(step)
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
