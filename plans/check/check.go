package check

import (
	"fmt"
	"math"

	"lightpath/plans"
	"lightpath/plans/circuit"
)

// Report describes a feasible plan.
type Report struct {
	CCTUS            float64 // end of the last transmit or hold
	EndUS            float64 // end of the last entry; later than CCTUS where a reset follows
	Reconfigurations int     // entries, all planes
}

// Check verifies plan against problem: circuits, their kinds and switching, durations,
// order (P1, P2, P3), conservation of every flow or coverage of the demand, initial and
// final maps, the stated CCT and bound. If problem is not valid, the error wraps [plans.ErrProblem]. If plan is not
// feasible, it is an [*Infeasible], and the report holds what could still be computed. Check ignores digests.
func Check(problem *plans.Problem, plan *plans.Plan) (Report, error) {
	if err := problem.Validate(); err != nil {
		return Report{}, err
	}
	c := &checker{p: problem, plan: plan}
	if c.structure() {
		if problem.Demand != nil {
			c.demand()
		} else {
			c.steps()
		}
		c.pairs()
		c.totals()
	}
	return c.report, c.bad.Err()
}

type checker struct {
	p      *plans.Problem
	plan   *plans.Plan
	report Report
	bad    Infeasible
}

// entryf reports what is wrong with entry i of plane j.
func (c *checker) entryf(j, i int, format string, args ...any) {
	e := &c.plan.Planes[j][i]
	what := string(e.Kind)
	if e.Kind == plans.Transmit {
		what = fmt.Sprintf("transmit of step %d", e.Step)
	}
	c.bad.Addf("planes[%d][%d] (%s): %s", j, i, what, fmt.Sprintf(format, args...))
}

// structure checks what all later checks rely on: one list of entries for each plane,
// maps that are permutations, numbers that are finite, and kinds that fit the problem.
func (c *checker) structure() bool {
	if len(c.plan.Planes) != c.p.Planes {
		c.bad.Addf("planes: has %d planes, the problem has %d", len(c.plan.Planes), c.p.Planes)
		return false
	}
	for _, f := range []struct {
		name  string
		value float64
	}{{"cct_us", c.plan.CCTUS}, {"lower_bound_us", c.plan.LowerBoundUS}} {
		if !finite(f.value) {
			c.bad.Addf("%s: %v is not finite", f.name, f.value)
		}
	}
	if c.p.Demand == nil {
		c.initialMaps()
	}
	for j, entries := range c.plan.Planes {
		for i := range entries {
			c.entryStructure(j, i, &entries[i])
		}
	}
	return len(c.bad.Violations) == 0
}

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

func (c *checker) initialMaps() {
	maps := c.plan.Initial
	if maps == nil {
		return
	}
	if len(maps) != c.p.Planes {
		c.bad.Addf("initial: has %d maps, want one for each of %d planes", len(maps), c.p.Planes)
		return
	}
	for j, m := range maps {
		if err := m.Validate(c.p.Ranks); err != nil {
			c.bad.Addf("initial[%d]: %v", j, err)
			return
		}
	}
	for j := range maps {
		if err := c.p.Circuits.Holds(maps, j); err != nil {
			c.bad.Addf("initial[%d]: %v", j, err)
		}
		if c.p.Initial != nil && !maps[j].Equal(c.p.Initial[j]) {
			c.bad.Addf("initial[%d]: is not the initial map of the problem", j)
		}
	}
}

func (c *checker) entryStructure(j, i int, e *plans.Entry) {
	if !finite(e.StartUS) || !finite(e.EndUS) || !finite(e.Bytes) {
		c.entryf(j, i, "times and bytes must be finite")
		return
	}
	switch e.Kind {
	case plans.Reconfigure, plans.Hold:
		if e.Kind == plans.Hold && c.p.Demand == nil {
			c.entryf(j, i, "a problem with steps has no holds")
		}
		if err := e.To.Validate(c.p.Ranks); err != nil {
			c.entryf(j, i, "to: %v", err)
		} else if c.p.Circuits == plans.Duplex && !e.To.Involution() {
			c.entryf(j, i, "to: a duplex plane holds involutions only")
		}
	case plans.Transmit:
		switch {
		case c.p.Demand != nil:
			c.entryf(j, i, "a problem with a demand has no transmits")
		case e.Step < 0 || e.Step >= len(c.p.Steps):
			c.entryf(j, i, "the problem has %d steps", len(c.p.Steps))
		case e.Bytes < 0:
			c.entryf(j, i, "bytes: %v is negative", e.Bytes)
		}
	default:
		c.entryf(j, i, "unknown kind %q", e.Kind)
	}
}

// initialOf returns the map with which plane j begins. It is dark if neither the problem nor the plan states one.
func (c *checker) initialOf(j int) circuit.Permutation {
	switch {
	case c.plan.Initial != nil:
		return c.plan.Initial[j]
	case c.p.Initial != nil:
		return c.p.Initial[j]
	}
	return circuit.AllDark(c.p.Ranks)
}

// clock checks one plane's time order (P2), entry by entry.
type clock struct {
	lastEnd float64
}

func (k *clock) advance(c *checker, j, i int, e *plans.Entry) {
	switch {
	case !plans.AtLeastUS(e.StartUS, 0):
		c.entryf(j, i, "starts at %v us, before 0", e.StartUS)
	case !plans.AtLeastUS(e.EndUS, e.StartUS):
		c.entryf(j, i, "ends at %v us, before its start at %v us", e.EndUS, e.StartUS)
	case !plans.AtLeastUS(e.StartUS, k.lastEnd):
		c.entryf(j, i, "starts at %v us, while the entry before it lasts until %v us (P2)", e.StartUS, k.lastEnd)
	}
	k.lastEnd = math.Max(k.lastEnd, e.EndUS)
	c.report.EndUS = math.Max(c.report.EndUS, e.EndUS)
	if e.Kind == plans.Reconfigure {
		c.report.Reconfigurations++
	} else {
		c.report.CCTUS = math.Max(c.report.CCTUS, e.EndUS)
	}
}

// lasts reports an entry that is shorter than its cost.
func (c *checker) lasts(j, i int, e *plans.Entry, cost float64) {
	if got := e.EndUS - e.StartUS; got < cost-plans.Tolerance(e.EndUS, cost) || math.IsNaN(cost) {
		c.entryf(j, i, "lasts %v us, the model needs %v us", got, cost)
	}
}

// pairs checks that interleaved planes 2j and 2j+1 switch together, to inverse maps.
func (c *checker) pairs() {
	if c.p.Circuits != plans.Interleaved {
		return
	}
	for j := 0; j < c.p.Planes; j += 2 {
		a, b := c.switches(j), c.switches(j+1)
		if len(a) != len(b) {
			c.bad.Addf("planes[%d] and planes[%d] are interleaved but switch %d and %d times", j, j+1, len(a), len(b))
			continue
		}
		for k := range a {
			e, f := &c.plan.Planes[j][a[k]], &c.plan.Planes[j+1][b[k]]
			if !plans.SameUS(e.StartUS, f.StartUS) || !plans.SameUS(e.EndUS, f.EndUS) {
				c.entryf(j, a[k], "its interleaved partner planes[%d][%d] does not switch at the same time", j+1, b[k])
			}
			if !f.To.Equal(e.To.Inverse()) {
				c.entryf(j, a[k], "its interleaved partner planes[%d][%d] does not take the inverse map", j+1, b[k])
			}
		}
	}
}

// switches lists the reconfigurations of plane j.
func (c *checker) switches(j int) []int {
	var at []int
	for i := range c.plan.Planes[j] {
		if c.plan.Planes[j][i].Kind == plans.Reconfigure {
			at = append(at, i)
		}
	}
	return at
}

func (c *checker) totals() {
	if !plans.SameUS(c.plan.CCTUS, c.report.CCTUS) {
		c.bad.Addf("cct_us: the plan states %v us, its last transmission ends at %v us", c.plan.CCTUS, c.report.CCTUS)
	}
	if !plans.AtLeastUS(c.report.CCTUS, c.plan.LowerBoundUS) {
		c.bad.Addf("lower_bound_us: %v us is above the completion time of %v us", c.plan.LowerBoundUS, c.report.CCTUS)
	}
}
