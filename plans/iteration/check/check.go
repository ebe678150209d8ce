package check

import (
	"fmt"
	"math"

	"lightpath/plans"
	"lightpath/plans/check"
	"lightpath/plans/circuit"
	"lightpath/plans/iteration"
	"lightpath/plans/iteration/trace"
)

// Report describes a feasible plan.
type Report struct {
	IterationUS      float64
	ExposedUS        float64
	Reconfigurations int // in gaps and in calls, all planes
}

// Check verifies a plan for a problem: the trace and the fabric's digest; plan, circuits, order and waits of the calls;
// switches between them; stated times and bound. If the plan is not feasible, the error wraps [check.ErrInfeasible].
// Check ignores the plan's own digest.
func Check(p *iteration.Problem, plan *iteration.Plan) (Report, error) {
	c := &checker{p: p, plan: plan}
	if c.structure() {
		c.calls()
		c.waits()
		c.totals()
	}
	if err := c.bad.Err(); err != nil {
		return c.report, fmt.Errorf("iteration %w", err)
	}
	return c.report, nil
}

type checker struct {
	p      *iteration.Problem
	plan   *iteration.Plan
	report Report
	bad    check.Infeasible // in the order of grants
	end    []float64        // by call
	places []int            // of the calls on circuits, in the order of grants
}

// structure checks what later checks rely on.
func (c *checker) structure() bool {
	q := c.plan
	if q.Trace.Digest() != c.p.Trace.Digest() {
		c.bad.Addf("trace: is not the trace of the problem")
		return false
	}
	if q.Fabric != c.p.Digest {
		c.bad.Addf("fabric: the plan is for the fabric %.16q, this one is %.16q", q.Fabric, c.p.Digest)
	}
	for _, v := range []float64{q.IterationUS, q.ComputeUS, q.LowerBoundUS} {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			c.bad.Addf("iteration_us, compute_us, lower_bound_us: %v is not finite", v)
		}
	}
	if len(q.Calls) != len(c.p.Trace.Calls) {
		c.bad.Addf("calls: has %d, the trace has %d", len(q.Calls), len(c.p.Trace.Calls))
		return false
	}
	seen := make([]bool, len(q.Calls))
	for at := range q.Calls {
		call := &q.Calls[at]
		switch {
		case call.Call < 0 || call.Call >= len(seen):
			c.bad.Addf("calls[%d].call: the trace has no call %d", at, call.Call)
		case seen[call.Call]:
			c.bad.Addf("calls[%d].call: call %d is there twice", at, call.Call)
		default:
			seen[call.Call] = true
		}
		if call.Plan < iteration.OnPackets || call.Plan >= len(q.Plans) {
			c.bad.Addf("calls[%d].plan: there is no plan %d", at, call.Plan)
		} else if call.Plan != iteration.OnPackets {
			c.places = append(c.places, at)
		}
	}
	for i, one := range q.Plans {
		if len(one.Planes) != c.p.Fabric.Planes || len(one.Initial) != c.p.Fabric.Planes {
			c.bad.Addf("plans[%d]: has %d planes and %d initial maps, the fabric has %d planes", i, len(one.Planes),
				len(one.Initial), c.p.Fabric.Planes)
		}
	}
	return len(c.bad.Violations) == 0
}

// fits is a plan that was checked for one shape.
type fits struct{ plan, shape int }

// calls checks every call: those on packet planes by themselves, others on the circuits that the call before leaves.
func (c *checker) calls() {
	c.end = make([]float64, len(c.plan.Calls))
	for at := range c.plan.Calls {
		call := &c.plan.Calls[at]
		c.end[call.Call] = call.EndUS
		if !plans.AtLeastUS(call.StartUS, 0) {
			c.bad.Addf("calls[%d]: starts at %v us, before the iteration", at, call.StartUS)
		}
		us, packets := c.p.PacketUS(call.Call)
		switch {
		case packets != (call.Plan == iteration.OnPackets):
			c.bad.Addf("calls[%d].plan: %d, but for call %d packet planes are %s", at, call.Plan, call.Call,
				map[bool]string{true: "faster", false: "not faster"}[packets])
		case packets && !plans.AtLeastUS(call.EndUS, call.StartUS+us):
			c.bad.Addf("calls[%d]: lasts %v us, it takes %v us on packet planes", at, call.EndUS-call.StartUS, us)
		case packets && len(call.Switches) > 0:
			c.bad.Addf("calls[%d].switches: a call on packet planes needs no circuits", at)
		}
	}
	c.onCircuits()
}

// onCircuits checks the calls on circuits.
func (c *checker) onCircuits() {
	known := map[fits]check.Report{}
	sound := true // all plans are feasible, so maps can be followed
	for _, at := range c.places {
		call := &c.plan.Calls[at]
		key := fits{call.Plan, c.p.Of[call.Call]}
		report, ok := known[key]
		if !ok {
			problem := *c.p.Shapes[key.shape]
			problem.Initial = c.plan.Plans[call.Plan].Initial
			var err error
			// A plan with given circuits may state a bound for these only; totals checks the bound of the iteration.
			if report, err = check.Check(&problem, c.plan.Plans[call.Plan]); err != nil {
				c.bad.Addf("calls[%d]: plans[%d] for call %d: %v", at, call.Plan, call.Call, err)
				sound = false
			}
			known[key] = report
		}
		c.report.Reconfigurations += report.Reconfigurations
		if got := call.EndUS - call.StartUS; !plans.AtLeastUS(call.EndUS, call.StartUS+report.CCTUS) {
			c.bad.Addf("calls[%d]: lasts %v us, its plan needs %v us", at, got, report.CCTUS)
		}
	}
	for k := range c.places {
		if sound {
			c.gap(k)
		}
	}
}

// gap checks the switches before call k on circuits, and its first circuits.
func (c *checker) gap(k int) {
	at, h, back := c.places[k], k-1, 0.0
	if k == 0 {
		h, back = len(c.places)-1, c.plan.IterationUS
	}
	before, call := &c.plan.Calls[c.places[h]], &c.plan.Calls[at]
	end := before.EndUS - back
	if !plans.AtLeastUS(call.StartUS, end) {
		c.bad.Addf("calls[%d]: starts at %v us, while the call before holds the planes until %v us", at, call.StartUS, end)
	}
	old, now := c.plan.Plans[before.Plan], c.plan.Plans[call.Plan]
	switched := make(map[int]iteration.Switch, len(call.Switches))
	for k, sw := range call.Switches {
		if _, twice := switched[sw.Plane]; twice || sw.Plane < 0 || sw.Plane >= c.p.Fabric.Planes {
			c.bad.Addf("calls[%d].switches[%d]: plane %d is there twice or does not exist", at, k, sw.Plane)
			continue
		}
		switched[sw.Plane] = sw
	}
	for j := range c.p.Fabric.Planes {
		has, busy := old.Initial[j], end
		for _, e := range old.Planes[j] {
			if e.Kind == plans.Reconfigure {
				has = e.To
			}
			busy = math.Max(busy, before.StartUS-back+e.EndUS)
		}
		sw, ok := switched[j]
		switch {
		case ok:
			c.report.Reconfigurations++
			c.switches(at, j, sw, has, now.Initial[j], busy)
			if o, both := switched[j^1]; c.p.Fabric.Circuits == plans.Interleaved &&
				(!both || !plans.SameUS(o.StartUS, sw.StartUS) || !plans.SameUS(o.EndUS, sw.EndUS)) {
				c.bad.Addf("calls[%d]: plane %d switches without its interleaved partner", at, j)
			}
		case !plans.AtLeastUS(call.StartUS, busy):
			c.bad.Addf("calls[%d]: starts at %v us, plane %d reconfigures until %v us", at, call.StartUS, j, busy)
		case c.p.Shapes[c.p.Of[call.Call]].Demand == nil && !has.Equal(now.Initial[j]):
			c.bad.Addf("calls[%d]: plane %d does not have the circuits on which plans[%d] begins", at, j, call.Plan)
		}
	}
}

// switches checks one reconfiguration of a gap.
func (c *checker) switches(at, plane int, sw iteration.Switch, from, to circuit.Permutation, busy float64) {
	needs := c.p.Fabric.ReconfigUS
	if per := c.p.Fabric.ReconfigPerPort; per > 0 {
		needs += per * float64(from.Changes(to))
	}
	where := fmt.Sprintf("calls[%d]: the switch of plane %d", at, plane)
	switch {
	case math.IsNaN(sw.StartUS) || !plans.AtLeastUS(sw.StartUS, busy):
		c.bad.Addf("%s starts at %v us, the plane is busy until %v us", where, sw.StartUS, busy)
	case math.IsNaN(sw.EndUS) || !plans.AtLeastUS(sw.EndUS, sw.StartUS+needs):
		c.bad.Addf("%s lasts %v us, the model needs %v us", where, sw.EndUS-sw.StartUS, needs)
	case !plans.AtLeastUS(c.plan.Calls[at].StartUS, sw.EndUS):
		c.bad.Addf("%s ends at %v us, after the call has started", where, sw.EndUS)
	}
}

// waits checks that each call comes after what it waits for.
func (c *checker) waits() {
	for at := range c.plan.Calls {
		call := &c.plan.Calls[at]
		for _, a := range c.p.Trace.Calls[call.Call].After {
			from := 0.0
			if a.Call != trace.Begin {
				from = c.end[a.Call]
			}
			if !plans.AtLeastUS(call.StartUS, from+a.GapUS) {
				c.bad.Addf("calls[%d]: call %d starts at %v us, it comes %v us after call %d at the earliest, at %v us", at,
					call.Call, call.StartUS, a.GapUS, a.Call, from+a.GapUS)
			}
		}
	}
}

// totals checks the stated times.
func (c *checker) totals() {
	t := c.p.Trace
	least, free := t.ComputeUS, make([]float64, len(t.Calls))
	compute := t.ComputeUS
	for i := range t.Calls {
		least = math.Max(least, c.end[i]+t.Calls[i].TailUS)
		for _, a := range t.Calls[i].After {
			at := a.GapUS
			if a.Call != trace.Begin {
				at += free[a.Call]
			}
			free[i] = math.Max(free[i], at)
		}
		compute = math.Max(compute, free[i]+t.Calls[i].TailUS)
	}
	if !plans.SameUS(least, c.plan.IterationUS) {
		c.bad.Addf("iteration_us: the plan states %v us, its calls need %v us", c.plan.IterationUS, least)
	}
	if !plans.SameUS(compute, c.plan.ComputeUS) {
		c.bad.Addf("compute_us: the plan states %v us, the trace has %v us", c.plan.ComputeUS, compute)
	}
	if !plans.AtLeastUS(least, c.plan.LowerBoundUS) {
		c.bad.Addf("lower_bound_us: %v us is above the time of the iteration of %v us", c.plan.LowerBoundUS, least)
	}
	c.report.IterationUS, c.report.ExposedUS = least, least-compute
}
