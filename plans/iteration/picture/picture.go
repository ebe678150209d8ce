// Package picture turns an iteration plan into one timeline for package render: the computation, the calls, and what
// each plane sends and switches.
//
// Layer: above iteration and render. It decides nothing and performs no I/O.
package picture

import (
	"fmt"
	"math"
	"slices"

	"lightpath/internal/svg"
	"lightpath/plans"
	"lightpath/plans/iteration"
	"lightpath/plans/iteration/trace"
	"lightpath/plans/render"
)

// kindsOf numbers the names of calls: calls of one name have one colour.
func kindsOf(t *trace.Trace) (kinds []int, names []string) {
	known := map[string]int{}
	for i := range t.Calls {
		name := t.Label(i)
		if _, ok := known[name]; !ok {
			known[name] = len(names)
			names = append(names, name)
		}
		kinds = append(kinds, known[name])
	}
	return kinds, names
}

// Timeline returns the iteration as a plan whose steps are kinds of calls, with the options to draw it. A call is one
// entry of a plane, however many its plan has, unless the plane switches between them.
func Timeline(p *iteration.Plan) (*plans.Plan, render.Options) {
	t := p.Trace
	name := t.Name
	if name == "" {
		name = "iteration"
	}
	out := &plans.Plan{Version: plans.Version, Planner: "iteration", CCTUS: p.IterationUS, LowerBoundUS: p.LowerBoundUS,
		BoundProof: "calls at their own bounds, without switches between them", Digest: p.Digest}
	first := slices.IndexFunc(p.Calls, func(c iteration.Placed) bool { return c.Plan != iteration.OnPackets })
	if first >= 0 {
		out.Initial, out.Planes = p.PlanAt(first).Initial, make([][]plans.Entry, len(p.PlanAt(first).Planes))
	}
	kinds, names := kindsOf(t)
	o := render.Options{Title: fmt.Sprintf("%s: one iteration, %s of %s exposed", name, iteration.Millis(p.ExposedUS()),
		iteration.Millis(p.IterationUS)), StepNames: names}
	late := make([][]plans.Entry, len(out.Planes)) // switches for the next iteration
	for at := range p.Calls {
		c := &p.Calls[at]
		plan := p.PlanAt(at)
		if plan == nil {
			continue
		}
		for _, s := range c.Switches {
			e := plans.Entry{Kind: plans.Reconfigure, To: plan.Initial[s.Plane], StartUS: s.StartUS, EndUS: s.EndUS}
			if s.StartUS < 0 {
				before := e
				before.StartUS, before.EndUS = s.StartUS+p.IterationUS, math.Min(p.IterationUS, s.EndUS+p.IterationUS)
				late[s.Plane] = append(late[s.Plane], before)
				e.StartUS = 0
			}
			if e.EndUS > e.StartUS {
				out.Planes[s.Plane] = append(out.Planes[s.Plane], e)
			}
		}
		for j, entries := range plan.Planes {
			out.Planes[j] = append(out.Planes[j], merged(entries, c, kinds[c.Call])...)
		}
	}
	for j := range late {
		out.Planes[j] = append(out.Planes[j], late[j]...)
	}
	o.Lanes = lanes(p, kinds)
	return out, o
}

// merged returns the entries of a plane in a call, in the time of the iteration, transmits between two switches as one.
func merged(entries []plans.Entry, c *iteration.Placed, kind int) []plans.Entry {
	var out []plans.Entry
	for _, e := range entries {
		n := len(out)
		if e.Kind == plans.Hold { // of a demand
			e.Kind = plans.Transmit
		}
		if e.Kind == plans.Transmit && n > 0 && out[n-1].Kind == plans.Transmit {
			out[n-1].EndUS = c.StartUS + e.EndUS
			continue
		}
		one := plans.Entry{Kind: e.Kind, To: e.To, StartUS: c.StartUS + e.StartUS, EndUS: c.StartUS + e.EndUS}
		if e.Kind == plans.Transmit {
			one.Step = kind
		}
		out = append(out, one)
	}
	return out
}

// lanes returns the computation that calls wait for, the calls on circuits, those on packet planes if there are any,
// and when calls wait for circuits.
func lanes(p *iteration.Plan, kinds []int) []render.Lane {
	t := p.Trace
	end := make([]float64, len(t.Calls))
	for i := range p.Calls {
		end[p.Calls[i].Call] = p.Calls[i].EndUS
	}
	compute, calls := render.Lane{Name: "computation"}, render.Lane{Name: "calls"}
	packets, waits := render.Lane{Name: "packet planes"}, render.Lane{Name: "waits for circuits"}
	until := 0.0
	work := func(from, to float64) {
		if from = math.Max(from, until); to > from {
			compute.Spans = append(compute.Spans, render.Span{StartUS: from, EndUS: to, Fill: svg.Hatch})
			until = to
		}
	}
	for i := range p.Calls {
		c := &p.Calls[i]
		ready := t.Ready(c.Call, end)
		for _, a := range t.Calls[c.Call].After {
			from := 0.0
			if a.Call != trace.Begin {
				from = end[a.Call]
			}
			if plans.SameUS(from+a.GapUS, ready) {
				work(from, ready)
			}
		}
		label := t.Label(c.Call)
		on := &calls
		if c.Plan == iteration.OnPackets {
			on = &packets
		}
		on.Spans = append(on.Spans, render.Span{Label: label, StartUS: c.StartUS, EndUS: c.EndUS, Step: kinds[c.Call]})
		if c.StartUS > ready+plans.Tolerance(ready, c.StartUS) {
			waits.Spans = append(waits.Spans, render.Span{Label: label, StartUS: ready, EndUS: c.StartUS, Fill: svg.Late})
		}
	}
	for i := range t.Calls {
		if plans.SameUS(end[i]+t.Calls[i].TailUS, p.IterationUS) {
			work(end[i], p.IterationUS)
		}
	}
	if plans.SameUS(t.ComputeUS, p.IterationUS) {
		work(0, p.IterationUS)
	}
	if packets.Spans == nil {
		return []render.Lane{compute, calls, waits}
	}
	return []render.Lane{compute, calls, packets, waits}
}
