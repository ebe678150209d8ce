package render

import (
	"fmt"
	"math"

	"lightpath/internal/svg"
	"lightpath/plans"
	"lightpath/plans/circuit"
)

// traffic is the load of a transmit on its plane's circuits: the hops of its longest flow and the most flows on one
// circuit. Joint transmits have no load.
type traffic struct{ hops, load int }

func (t traffic) String() string {
	if t.load > 1 {
		return fmt.Sprintf("H%d L%d", t.hops, t.load)
	}
	return fmt.Sprintf("H%d", t.hops)
}

// jointKey tells joint transmits apart.
type jointKey struct {
	step int
	id   string
}

func keyOf(e *plans.Entry) jointKey { return jointKey{e.Step, e.Joint} }

// measureTraffic follows every plane's circuits through the plan. Without the problem, or if plan and problem do not
// fit, entries have no traffic.
func (d *drawing) measureTraffic() {
	d.traffic = make(map[*plans.Entry]traffic)
	joint := make(map[jointKey]int)
	for j, entries := range d.plan.Planes {
		var current circuit.Permutation
		if j < len(d.plan.Initial) {
			current = d.plan.Initial[j]
		}
		var l plans.Loader
		valid := d.setMap(&l, current)
		for i := range entries {
			e := &entries[i]
			switch {
			case e.Kind == plans.Reconfigure:
				valid = d.setMap(&l, e.To)
			case e.Kind != plans.Transmit:
			case e.Joint != "":
				for _, r := range e.Routes {
					joint[keyOf(e)] = max(joint[keyOf(e)], len(r.Path))
				}
			case valid:
				if flows := d.flowsOf(e); len(flows) > 0 {
					if h, load, bad := l.Measure(flows); bad < 0 {
						d.traffic[e] = traffic{h, load}
					}
				}
			}
		}
	}
	for _, entries := range d.plan.Planes {
		for i := range entries {
			if e := &entries[i]; e.Kind == plans.Transmit && e.Joint != "" {
				d.traffic[e] = traffic{hops: joint[keyOf(e)]}
			}
		}
	}
}

// setMap reports whether l could be set to p.
func (d *drawing) setMap(l *plans.Loader, p circuit.Permutation) bool {
	if d.o.Problem == nil || d.o.Problem.Ranks < 1 || p.Validate(d.o.Problem.Ranks) != nil {
		return false
	}
	l.SetMap(p)
	return true
}

// flowsOf are the flows of a transmit; nil where the problem has no such step or flows.
func (d *drawing) flowsOf(e *plans.Entry) [][2]int {
	if e.Step < 0 || e.Step >= len(d.o.Problem.Steps) {
		return nil
	}
	if d.flows == nil {
		d.flows = make([][][2]int, len(d.o.Problem.Steps))
	}
	if d.flows[e.Step] == nil {
		d.flows[e.Step] = d.o.Problem.Steps[e.Step].FlowList()
	}
	all := d.flows[e.Step]
	for _, f := range all {
		if f[0] < 0 || f[1] < 0 || f[0] >= d.o.Problem.Ranks || f[1] >= d.o.Problem.Ranks {
			return nil
		}
	}
	if e.Flows == nil {
		return all
	}
	some := make([][2]int, len(e.Flows))
	for i, f := range e.Flows {
		if f < 0 || f >= len(all) {
			return nil
		}
		some[i] = all[f]
	}
	return some
}

// shares returns the parts of the time until completion, over all planes, spent sending and switching; ok is false if
// they are undefined.
func (d *drawing) shares() (sending, switching float64, ok bool) {
	for _, entries := range d.plan.Planes {
		for i := range entries {
			e := &entries[i]
			length := math.Min(e.EndUS, d.plan.CCTUS) - math.Max(0, e.StartUS)
			if !(length > 0) {
				continue
			}
			if e.Kind == plans.Reconfigure {
				switching += length
			} else {
				sending += length
			}
		}
	}
	all := d.plan.CCTUS * float64(len(d.plan.Planes))
	sending, switching = sending/all, switching/all
	return sending, switching, sending > 0 && sending+switching < 1+1e-6
}

// links joins the blocks of a joint transmit from plane to plane.
func (d *drawing) links(rows []row) {
	last := make(map[jointKey]int) // the row that showed a joint transmit last
	ends := make(map[jointKey]*plans.Entry)
	for j, r := range rows {
		entries := d.plan.Planes[r.plane]
		for i := range entries {
			e := &entries[i]
			if e.Kind != plans.Transmit || e.Joint == "" {
				continue
			}
			id := keyOf(e)
			if k, seen := last[id]; seen {
				x0, x1 := d.x(ends[id].StartUS), d.x(e.EndUS)
				from, to := rows[k].y+rows[k].track-1, rows[j].y+1
				if x1 > x0 && to > from {
					d.Rect(x0, from, x1-x0, to-from, fmt.Sprintf(`fill="%s" opacity="0.55" pointer-events="none"%s`,
						d.stepColour(e.Step), d.times(ends[id].StartUS, e.EndUS)), "")
					edge := fmt.Sprintf(`stroke="%s" stroke-width="0.7"`, svg.Ink)
					d.Line(x0, from, x0, to, edge+d.times(ends[id].StartUS, ends[id].StartUS))
					d.Line(x1, from, x1, to, edge+d.times(e.EndUS, e.EndUS))
				}
			}
			last[id], ends[id] = j, e
		}
	}
}
