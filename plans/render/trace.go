package render

import (
	"fmt"

	"lightpath/internal/chrometrace"
	"lightpath/plans"
)

// Trace returns plan as a trace: one lane for each plane, one complete event for each entry, times in us.
// Below the plan it has the run of o.Measured, if there is one.
func Trace(plan *plans.Plan, o Options) *chrometrace.File {
	d := newDrawing(plan, o)
	f := chrometrace.New()
	sources := []struct {
		name   string
		planes [][]plans.Entry
	}{{"plan", plan.Planes}, {"measured", o.Measured}}
	for pid, s := range sources {
		if s.planes == nil {
			continue
		}
		name := s.name
		if plan.Planner != "" {
			name += " of " + plan.Planner
		}
		f.NameProcess(pid, name)
		for j, entries := range s.planes {
			f.NameLane(pid, j, fmt.Sprintf("plane %d", j))
			for i := range entries {
				e := &entries[i]
				if us := e.EndUS - e.StartUS; us >= 0 && finite(us) { // JSON has no other numbers
					f.Slice(pid, j, d.traceName(e), string(e.Kind), e.StartUS, us, d.traceArgs(e))
				}
			}
		}
	}
	for lane, l := range d.o.Lanes {
		f.NameProcess(len(sources), "iteration")
		f.NameLane(len(sources), lane, l.Name)
		for _, s := range l.Spans {
			if us := s.EndUS - s.StartUS; us >= 0 && finite(us) {
				f.Slice(len(sources), lane, s.Label, l.Name, s.StartUS, us, nil)
			}
		}
	}
	return f
}

// traceName is short: viewers write it into the slice.
func (d *drawing) traceName(e *plans.Entry) string {
	if e.Kind == plans.Transmit {
		return d.stepText(e.Step)
	}
	return Describe(e)
}

func (d *drawing) traceArgs(e *plans.Entry) map[string]any {
	args := map[string]any{"what": d.what(e)}
	if e.Kind != plans.Transmit || d.o.StepNames != nil {
		return args
	}
	if e.Joint == "" && finite(e.Bytes) {
		args["bytes per flow"] = e.Bytes
	}
	if t := d.traffic[e]; t.hops > 1 {
		args["hops"], args["flows on the busiest circuit"] = t.hops, t.load
	}
	return args
}
